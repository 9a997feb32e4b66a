"""The interface between data and learning: sources make experience, an iteration at a time, when it is pulled."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Protocol

import torch
from torch import Tensor

from lit_rl.policies.base import Policy


class Experience(Protocol):
    """One iteration: pulling its next minibatch first collects what that minibatch needs.

    Not iterable itself: Lightning drains what it can iterate when it guesses a batch size.
    """

    @property
    def env_steps(self) -> int:
        """Env steps collected so far in the run, over all envs and ranks."""

    def minibatches(self) -> Iterator[Any]:
        """The minibatches of this iteration, one per update, each a NamedTuple of tensors.

        A minibatch may lie in the memory of the one before: copy what is to outlive its update.
        """

    def feedback(self, td_error: Tensor | None, enough: bool = False) -> None:
        """Hand back the TD errors (B,) of the minibatch just learned from, and whether its rollout has taught enough.

        What is enough must be so on all ranks: they make the same number of updates.
        """


class Source(Protocol):
    """Makes experience by a plan: collects and keeps it, or reads it."""

    env_steps: int

    def experience(self, policy: Policy) -> Experience:
        """The next iteration."""

    @property
    def kept(self) -> str:
        """What it has gathered that another source could go on with, in words; empty where there is nothing."""

    @property
    def generators(self) -> list[torch.Generator]:
        """Of what is sampled or shuffled."""

    def adopt(self, other: Source) -> bool:
        """Take over what another source has kept, where it fits; whether it did."""

    def cut(self) -> None:
        """Truncate the episodes under way, which are not counted as finished; what is collected next begins fresh ones."""

    def state_dict(self) -> dict[str, Any]:
        """Everything that the next iteration depends on, the collector included where there is one."""

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from a saved state, with fresh episodes: as if it had been saved right after :meth:`cut`."""
