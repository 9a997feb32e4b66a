"""Categorical distributions over discrete actions."""

from __future__ import annotations

import numpy as np
import torch
from gymnasium import spaces as gs
from torch import Tensor, nn

from lit_rl.functional import distributions as d
from lit_rl.functional.tree import Tree
from lit_rl.policies.base import action_mask


class Categorical(nn.Module):
    """P independent choices: one for Discrete, one for each part of a MultiDiscrete or each bit of a MultiBinary.

    Its parameters are logits (B, P, A), A the most that any part has to choose from; what a part does not have, or a mask
    forbids, has the lowest finite logit. Actions are indices from 0: (B,) for Discrete, else (B, P).
    """

    there: Tensor | None
    place: Tensor

    def __init__(self, space: gs.Discrete | gs.MultiDiscrete | gs.MultiBinary) -> None:
        super().__init__()
        self.space = space
        self.single = isinstance(space, gs.Discrete)
        if isinstance(space, gs.Discrete):
            sizes, start = np.array([space.n]), np.asarray(space.start)
        elif isinstance(space, gs.MultiDiscrete):
            sizes, start = space.nvec.reshape(-1), space.start
        else:
            sizes, start = np.full(int(np.prod(space.shape)), 2), np.asarray(0)
        self.start = start if np.any(start) else None
        self._as_it_is = self.single and self.start is None and space.dtype == np.int64  # what argmax gives
        self.parts, self.most = len(sizes), int(sizes.max())
        self.outputs = self.parts * self.most
        there = np.arange(self.most) < sizes[:, None]
        self.register_buffer("there", None if there.all() else torch.from_numpy(there), persistent=False)
        # where a mask, which has no gaps, says of each choice whether it is allowed
        place = np.minimum((sizes.cumsum() - sizes)[:, None] + np.arange(self.most), sizes.sum() - 1)
        self.register_buffer("place", torch.from_numpy(place.reshape(-1)), persistent=False)

    def forward(self, output: Tensor, obs: Tree) -> Tensor:
        """Logits (B, P, A) from a network's (B, outputs)."""
        logits = output.view(-1, self.parts, self.most)
        mask = action_mask(obs)
        if mask is not None:
            logits = d.mask_logits(logits, mask[:, self.place].view_as(logits))
        return d.mask_logits(logits, self.there)

    def mode(self, logits: Tensor) -> Tensor:
        """The likeliest action."""
        return self._joined(d.categorical_mode(logits))

    def sample(self, logits: Tensor, noise: Tensor) -> Tensor:
        """An action by the Gumbel-max trick."""
        return self._joined((logits + noise.view_as(logits)).argmax(-1))

    def random(self, noise: Tensor, obs: Tree) -> Tensor:
        """An action of equal chances."""
        return self.sample(self(torch.zeros_like(noise), obs), noise)

    def log_prob(self, logits: Tensor, action: Tensor) -> Tensor:
        """Log-probability (B,) of actions."""
        return d.categorical_log_prob(logits, action.view(-1, self.parts)).sum(1)

    def entropy(self, logits: Tensor) -> Tensor:
        """Entropy (B,) in nats."""
        return d.categorical_entropy(logits).sum(1)

    def kl(self, logits: Tensor, other: nn.Module, other_logits: Tensor) -> Tensor:
        """KL(other || this) in nats, (B,)."""
        return d.categorical_kl(other_logits, logits).sum(1)

    def draw(self, steps: int, envs: int, generator: torch.Generator) -> Tensor:
        """Gumbel noise (steps, envs, outputs)."""
        return d.gumbel(torch.rand(steps, envs, self.outputs, generator=generator))

    def scaled(self, drawn: np.ndarray) -> np.ndarray:
        """The noise as it is."""
        return drawn

    def host_sample(self, output: np.ndarray, noise: np.ndarray | None) -> np.ndarray:
        """:meth:`sample`, or without noise :meth:`mode`, in numpy from a network's output, where nothing is masked."""
        if noise is not None:
            output += noise
        action: np.ndarray = output.argmax(1) if self.single else output.reshape(-1, self.parts, self.most).argmax(2)
        return action

    def host_log_prob(self, output: np.ndarray, action: np.ndarray) -> np.ndarray:
        """:meth:`log_prob` in numpy from a network's output, where nothing is masked."""
        logits = output.reshape(-1, self.most)  # (B P, A)
        logits -= logits.max(1, keepdims=True)
        chosen = logits[np.arange(len(logits)), action.reshape(-1)]
        log_prob = chosen - np.log(np.exp(logits, out=logits).sum(1))
        joint: np.ndarray = log_prob if self.single else log_prob.reshape(-1, self.parts).sum(1)
        return joint

    @property
    def host(self) -> bool:
        """Whether :meth:`host_sample` does what :meth:`sample` does."""
        return self.there is None

    def to_env(self, action: np.ndarray) -> np.ndarray:
        """Actions as the environment takes them."""
        if self._as_it_is:
            return action
        shaped = action.reshape(len(action), *(self.space.shape or ()))
        return shaped.astype(self.space.dtype, copy=False) if self.start is None else shaped + self.start

    def _joined(self, action: Tensor) -> Tensor:
        return action.squeeze(1) if self.single else action
