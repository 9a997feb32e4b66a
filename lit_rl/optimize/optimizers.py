"""Optimizers without the optimizer's Python in the way of one small kernel."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor


class FlatAdam(torch.optim.Adam):
    """``torch.optim.Adam`` over groups of one flat parameter each; :meth:`step_group` steps a single group.

    It saves, loads and shows its learning rates as any Adam does.
    """

    def __init__(self, groups: list[dict[str, Any]], **settings: Any) -> None:
        super().__init__(groups, fused=True, **settings)
        for group in self.param_groups:
            (flat,) = group["params"]
            zeros = torch.zeros_like(flat, memory_format=torch.preserve_format)
            step = torch.zeros((), dtype=torch.float32, device=flat.device)
            self.state[flat] = {"step": step, "exp_avg": zeros.detach(), "exp_avg_sq": zeros.detach().clone()}

    def step_group(self, index: int, gradient: Tensor) -> None:
        """Step group ``index`` down its gradient."""
        group = self.param_groups[index]
        (flat,) = group["params"]
        state = self.state[flat]
        state["step"].add_(1.0)
        torch._fused_adam_(
            [flat.data],  # which costs less than to switch autograd off
            [gradient],
            [state["exp_avg"]],
            [state["exp_avg_sq"]],
            [],
            [state["step"]],
            lr=group["lr"],
            beta1=group["betas"][0],
            beta2=group["betas"][1],
            weight_decay=group["weight_decay"],
            eps=group["eps"],
            amsgrad=False,
            maximize=False,
        )


class FlatRMSprop(torch.optim.RMSprop):
    """``torch.optim.RMSprop``, not centered and without momentum, over groups of one flat parameter each."""

    def __init__(self, groups: list[dict[str, Any]], **settings: Any) -> None:
        super().__init__(groups, **settings)
        for group in self.param_groups:
            (flat,) = group["params"]
            step = torch.zeros((), dtype=torch.float32)
            self.state[flat] = {"step": step, "square_avg": torch.zeros_like(flat).detach()}

    def step_group(self, index: int, gradient: Tensor) -> None:
        """Step group ``index`` down its gradient."""
        group = self.param_groups[index]
        (flat,) = group["params"]
        state = self.state[flat]
        state["step"].add_(1.0)
        square_avg = state["square_avg"].mul_(group["alpha"]).addcmul_(gradient, gradient, value=1 - group["alpha"])
        flat.data.addcdiv_(gradient, square_avg.sqrt().add_(group["eps"]), value=-group["lr"])


KINDS: dict[str, Callable[..., torch.optim.Optimizer]] = {"adam": FlatAdam, "rmsprop": FlatRMSprop}
