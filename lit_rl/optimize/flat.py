"""Parameters of a group as views of one flat tensor: one kernel to step, to clip and to average them."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor, nn


class FlatGroup:
    """Some parameters of a module, laid out one after the other in ``flat``.

    Moving a module to a device or dtype or assigning to ``.data`` breaks the views; :meth:`attach` mends them.
    """

    def __init__(self, parameters: Iterable[nn.Parameter]) -> None:
        self.parameters = list(parameters)
        self.flat = nn.Parameter(torch.empty(0))
        self.attach()

    def attach(self) -> None:
        """Make every parameter a view of ``flat`` again, with its present value, on its present device."""
        with torch.no_grad():
            values = torch.cat([p.detach().reshape(-1) for p in self.parameters])
            same = (self.flat.shape, self.flat.device, self.flat.dtype) == (values.shape, values.device, values.dtype)
            if same:
                self.flat.copy_(values)
            else:
                self.flat.data = values
            for parameter, part in zip(self.parameters, self._split(), strict=True):
                parameter.data = part.view_as(parameter)

    @property
    def attached(self) -> bool:
        """Whether every parameter still is a view of ``flat``."""
        parts = self._split()
        return all(p.data_ptr() == part.data_ptr() for p, part in zip(self.parameters, parts, strict=True))

    def _split(self) -> tuple[Tensor, ...]:
        return torch.split(self.flat.detach(), [p.numel() for p in self.parameters])
