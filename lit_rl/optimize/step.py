"""Gradient → average over ranks → clip → step, for one named group of parameters at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal

import torch
from torch import Tensor, nn

from lit_rl.algorithms.base import Algorithm, Loss
from lit_rl.collectives import averaged, gathered, ranks
from lit_rl.errors import NumericsError
from lit_rl.optimize.flat import FlatGroup
from lit_rl.optimize.gradient import Gradient, gradient
from lit_rl.optimize.optimizers import KINDS, FlatAdam, FlatRMSprop

GradientOf = Callable[[str, Callable[..., Loss], Sequence[nn.Parameter], Sequence[Any]], Gradient]


def _eager(group: str, loss_fn: Callable[..., Loss], parameters: Sequence[nn.Parameter], tensors: Any) -> Gradient:
    return gradient(loss_fn, parameters, tensors)


class GradientStep:
    """``optimize(group, loss_fn, *tensors)``: one gradient step on that group alone.

    Args:
        groups: parameters by group name; those that require no gradient stay as they are.
        optimizer: the kind of optimizer, a name in :data:`lit_rl.optimize.optimizers.KINDS`.
        settings: its settings.
        clip: largest norm (or absolute value) of a group's gradient; None leaves it as it is.
        clip_algorithm: what ``clip`` limits.

    ``gradient`` is what computes the gradients, eager code unless it is replaced (see :mod:`lit_rl.optimize.native`).
    """

    def __init__(
        self,
        groups: Mapping[str, list[nn.Parameter]],
        optimizer: str = "adam",
        settings: Mapping[str, Any] | None = None,
        clip: float | None = None,
        clip_algorithm: Literal["norm", "value"] = "norm",
    ) -> None:
        learned = {name: [p for p in parameters if p.requires_grad] for name, parameters in groups.items()}
        self.groups = {name: FlatGroup(parameters) for name, parameters in learned.items()}
        self._index = {name: i for i, name in enumerate(self.groups)}
        self.clip, self.clip_algorithm = clip, clip_algorithm
        flat_groups = [{"params": [g.flat], "name": name} for name, g in self.groups.items()]
        self.gradient: GradientOf = _eager
        self.optimizer: torch.optim.Optimizer = KINDS[optimizer](flat_groups, **(settings or {}))
        # by group of which some is frozen: 1 where it learns, 0 where not; None where nothing does
        self._learns: dict[str, Tensor | None] = {}

    @classmethod
    def of(cls, algorithm: Algorithm) -> GradientStep:
        """The steps that an algorithm's settings describe."""
        config = algorithm.config
        clip = config.gradient_clip_val, config.gradient_clip_algorithm
        return cls(algorithm.groups(), *algorithm.optimizer(), *clip)

    def attach(self) -> None:
        """Mend flat groups whose module was moved since."""
        for group in self.groups.values():
            if not group.attached:
                group.attach()

    def freeze(self, parameters: Iterable[nn.Parameter]) -> None:
        """Move none of these parameters from now on, until :meth:`thaw`."""
        frozen = {id(p) for p in parameters}
        for name, group in self.groups.items():
            if any(id(p) in frozen for p in group.parameters):
                learns = torch.cat(
                    [torch.full_like(p.detach(), id(p) not in frozen).view(-1) for p in group.parameters]
                )
                self._learns[name] = learns if learns.any() else None

    def thaw(self, parameters: Iterable[nn.Parameter]) -> None:
        """Move these parameters again, under an optimizer that remembers nothing of their groups: its moments stood at 0."""
        frozen = {id(p) for p in parameters}
        for name, group in self.groups.items():
            if any(id(p) in frozen for p in group.parameters):
                self._learns.pop(name, None)
                for moment in self.optimizer.state[group.flat].values():
                    moment.zero_()

    def __call__(self, group: str, loss_fn: Callable[..., Loss], *tensors: Any) -> tuple[dict[str, Tensor], Any]:
        """Step ``group`` down the gradient of ``loss_fn(*tensors)``; the loss's metrics and aux, without gradients.

        Gradient and metrics are means over ranks; aux is this rank's.

        Raises:
            NumericsError: the gradient is NaN or infinite.
        """
        target, learns = self.groups[group], self._learns.get(group)
        if learns is None and group in self._learns:
            return _evaluate(loss_fn, tensors)
        own, metrics, aux = self.gradient(group, loss_fn, target.parameters, tensors)
        flat = own = own if learns is None else own * learns
        if ranks() > 1:
            flat, metrics = _average(own, metrics)
        try:
            self._clip(group, flat)
        except NumericsError as error:  # on all ranks, since the average is the same
            raise NumericsError(f"{error}{_whose(own)}") from None
        self._step(group, target, flat)
        return metrics, aux

    def _step(self, name: str, group: FlatGroup, gradient: Tensor) -> None:
        if isinstance(self.optimizer, (FlatAdam, FlatRMSprop)):
            self.optimizer.step_group(self._index[name], gradient)
        else:  # any other optimizer moves what has a gradient
            group.flat.grad = gradient
            self.optimizer.step()
            group.flat.grad = None

    def _clip(self, group: str, gradient: Tensor) -> None:
        norm = torch.linalg.vector_norm(gradient).item()  # also the check for NaN: one read per update
        if not norm < float("inf"):
            raise NumericsError(f"the gradient of the {group} loss is {'NaN' if norm != norm else 'infinite'}")
        if self.clip is None:
            return
        if self.clip_algorithm == "value":
            gradient.clamp_(-self.clip, self.clip)
        elif norm > self.clip:
            gradient.mul_(self.clip / (norm + 1e-6))

    def set_lr(self, group: str, lr: float) -> None:
        """Set a group's learning rate."""
        self.optimizer.param_groups[self._index[group]]["lr"] = lr

    def set_lrs(self, lrs: Mapping[str, float]) -> None:
        """Set the learning rate of each of these groups."""
        for group, lr in lrs.items():
            self.set_lr(group, lr)

    def check_finite(self) -> None:
        """Refuse weights that have run away.

        Raises:
            NumericsError: some are NaN or infinite; the message names their group.
        """
        for name, group in self.groups.items():
            if not torch.isfinite(group.flat.detach().sum()):
                raise NumericsError(f"the weights of the {name} group are NaN or infinite")


def _evaluate(loss_fn: Callable[..., Loss], tensors: tuple[Any, ...]) -> tuple[dict[str, Tensor], Any]:
    """What a step would return, without one."""
    with torch.no_grad():
        loss = loss_fn(*tensors)
    metrics = loss.metrics
    if metrics and ranks() > 1:
        _, metrics = _average(loss.value.new_zeros(0), metrics)
    return metrics, loss.aux


def _average(gradient: Tensor, metrics: dict[str, Tensor]) -> tuple[Tensor, dict[str, Tensor]]:
    """The means over ranks, by one message: what is decided by a metric is then decided alike everywhere."""
    both = averaged(torch.cat([gradient, *(x.reshape(1).to(gradient.dtype) for x in metrics.values())]))
    means = both[len(gradient) :].clone()  # metrics are kept for a while, and would keep the gradient with them
    return both[: len(gradient)], dict(zip(metrics, means.unbind(), strict=True))


def _whose(gradient: Tensor) -> str:
    """The ranks that this gradient was bad on, before it was averaged."""
    if ranks() == 1:
        return ""
    bad = gathered((~torch.isfinite(gradient).all()).float())
    return f" on rank {', '.join(str(rank) for rank, x in enumerate(bad) if x)}"
