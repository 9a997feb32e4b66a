"""Minibatches of recorded transitions."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from lit_rl.data.experience import Source
from lit_rl.data.offline.data_set import TrainingData
from lit_rl.data.offline.window import Window, mixed
from lit_rl.data.plans import OfflinePlan
from lit_rl.data.transitions import Transitions
from lit_rl.functional.tree import tree_map
from lit_rl.policies.base import Policy

AT_ONCE = 16  # minibatches drawn together: drawing costs about as much for all of them as for one


class OfflineSource:
    """Draws minibatches from recorded episodes by an :class:`OfflinePlan`; it makes no env steps."""

    def __init__(self, plan: OfflinePlan, data: TrainingData, seed: int) -> None:
        self.plan, self.data = plan, data
        self.env_steps = 0
        self.generator = torch.Generator().manual_seed(seed)
        share = data.window_mb / len(data.parts)
        self.windows = [Window(part, seed + i, plan.gamma, share, data.stacking) for i, part in enumerate(data.parts)]
        self._probability = torch.tensor([part.probability for part in data.parts])

    def experience(self, policy: Policy) -> OfflineExperience:
        return OfflineExperience(self, policy)

    def draw(self, count: int) -> Transitions:
        """``count`` transitions, each from a part by its probability; the windows move on."""
        for window in self.windows:
            window.fill()
        if len(self.windows) == 1:
            batch = self.windows[0].draw(count, self.plan.n_step, self.generator)
            self.windows[0].move(count)
            return batch
        chosen = torch.multinomial(self._probability, count, replacement=True, generator=self.generator)
        counts = torch.bincount(chosen, minlength=len(self.windows)).tolist()
        parts = [w.draw(n, self.plan.n_step, self.generator) for w, n in zip(self.windows, counts, strict=True)]
        for window, drawn in zip(self.windows, counts, strict=True):
            window.move(drawn)
        return mixed(parts, chosen)

    def sample(self, updates: int) -> Iterator[Transitions]:
        """Minibatches for this many updates."""
        size = self.plan.batch_size
        for first in range(0, updates, AT_ONCE):
            count = min(AT_ONCE, updates - first)
            whole = self.draw(count * size)
            noise = torch.randn(count, *self.plan.noise, generator=self.generator)
            for i in range(count):
                part = tree_map(lambda x, i=i: x[i * size : (i + 1) * size], tuple(whole[:-1]))
                yield Transitions._make((*part, noise[i]))

    @property
    def generators(self) -> list[torch.Generator]:
        """Of what is sampled or shuffled."""
        return [self.generator]

    @property
    def kept(self) -> str:
        """Nothing: the data stay where they are."""
        return ""

    def adopt(self, other: Source) -> bool:
        """Go on along the x-axis from another source."""
        self.env_steps = other.env_steps
        return isinstance(other, OfflineSource)

    def cut(self) -> None:
        """Nothing: no episode is under way."""

    def state_dict(self) -> dict[str, Any]:
        return {
            "env_steps": self.env_steps,
            "generator": self.generator.get_state(),
            "windows": [window.state_dict() for window in self.windows],
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.env_steps = state["env_steps"]
        self.generator.set_state(state["generator"])
        for window, saved in zip(self.windows, state["windows"], strict=True):
            window.load_state_dict(saved)


class OfflineExperience:
    """One iteration of updates on recorded transitions."""

    def __init__(self, source: OfflineSource, policy: Policy) -> None:
        self._source, self._policy = source, policy

    @property
    def env_steps(self) -> int:
        return self._source.env_steps

    def minibatches(self) -> Iterator[Transitions]:
        device = next(self._policy.parameters()).device
        for batch in self._source.sample(self._source.plan.steps_per_iteration):
            yield batch if device.type == "cpu" else Transitions(*tree_map(lambda x: x.to(device), tuple(batch)))

    def feedback(self, td_error: Tensor | None, enough: bool = False) -> None:
        """There are no priorities."""
