"""The interface of everything that acts."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar, NamedTuple

import numpy as np
import torch
from gymnasium import spaces as gs
from torch import Tensor, nn

from lit_rl.envs.masks import MASK
from lit_rl.envs.spaces import Spaces
from lit_rl.functional.sequences import Sequences
from lit_rl.functional.tree import Tree

HostAct = Callable[[np.ndarray, np.ndarray | None], np.ndarray]
HostEvaluate = Callable[[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]


class Acted(NamedTuple):
    """One decision for each of B observations."""

    action: Tensor  # (B, ...) in the policy's own units: indices from 0, or unscaled floats
    state: Tree  # what the policy carries through an episode; None where it carries nothing


class Evaluated(NamedTuple):
    """What a policy of the moment says of B actions and of the observations they were taken in."""

    log_prob: Tensor  # (B,)
    entropy: Tensor  # (B,) of the whole distribution, in nats
    value: Tensor  # (B,)


class Policy(nn.Module):
    """Maps batched observations to actions; all its randomness comes in as ``noise``.

    ``actor`` is what acts, with whatever else stands here but ``beside``: it must match between two stages. ``critic`` is
    None where the actor is all there is.
    """

    beside: ClassVar[tuple[str, ...]] = ("critic",)  # parts that acting does not need
    actor: nn.Module
    critic: nn.Module | None
    remembers = False  # whether its rollouts are learned from in sequences, whose number and lengths are never the same

    def __init__(self, spaces: Spaces) -> None:
        super().__init__()
        self.critic = None
        self.spaces = spaces
        action = spaces.action
        start = action.start if isinstance(action, gs.Discrete | gs.MultiDiscrete) else 0
        self._start = np.asarray(start) if np.any(start) else None

    def act(self, obs: Tree, noise: Tensor | None = None, state: Tree = None) -> Acted:
        """Actions for B observations: greedy without ``noise``, exploring with a row (B, K) of what :meth:`noise` drew."""
        raise NotImplementedError

    def draw(self, steps: int, envs: int, generator: torch.Generator) -> Tensor:
        """Random numbers (steps, envs, J) for exploring, whatever the weights and schedules: they can be drawn ahead."""
        raise NotImplementedError

    def scaled(self, drawn: np.ndarray, env_steps: int, vector_step: int) -> np.ndarray:
        """What was drawn (steps, envs, J) as exploration noise (steps, envs, K), by weights and schedules of the moment,
        for vector steps of ``vector_step`` env steps each that follow ``env_steps``. What was drawn stays as it is."""
        return drawn

    def noise(self, steps: int, envs: int, generator: torch.Generator, env_steps: int, vector_step: int) -> Tensor:
        """Exploration noise (steps, envs, K), drawn and scaled."""
        return torch.from_numpy(self.scaled(self.draw(steps, envs, generator).numpy(), env_steps, vector_step))

    def evaluate(self, obs: Tree, action: Tensor, sequences: Sequences | tuple[()] = ()) -> Evaluated:
        """What the policy says of B actions once they are taken; only rollouts ask for it.

        ``sequences`` says how the B rows follow one another, where the policy remembers; it is () where it does not.
        """
        raise NotImplementedError

    def value(self, obs: Tree, state: Tree = None) -> Tensor:
        """Values (B,) of B observations, with what is remembered from before them; only rollouts ask for them."""
        raise NotImplementedError

    def log_prob(self, obs: Tree, action: Tensor) -> Tensor:
        """Log-probability or density (B,) of B actions in the policy's own units: what imitation makes larger."""
        raise NotImplementedError

    def behaviour_log_prob(self, obs: Tree, action: Tensor, env_steps: int) -> Tensor | None:
        """Log-probability (B,) that exploring, with schedules at ``env_steps``, takes these actions; None where it has none.

        A policy with a state has none: what it remembers is not known from an observation.
        """
        known = type(self).log_prob is not Policy.log_prob and self.initial_state(1) is None
        return self.log_prob(obs, action) if known else None

    def divergence(self, other: Policy, obs: Tree) -> Tensor:
        """How far this policy is from another of its class, (B,) >= 0, in nats: KL(other || this); 0 where they agree."""
        raise NotImplementedError

    def host_act(self) -> HostAct | None:
        """:meth:`act` as a numpy function (obs, noise or None) → action on the live weights; None where there is none."""
        return None

    def host_evaluate(self) -> HostEvaluate | None:
        """A numpy function (obs (R, ...), action (B, ...)) on the live weights; None where there is none.

        It says the log-probabilities (B,) of the actions in the first B observations, and the values (R,) of all of them.
        """
        return None

    def random(self, obs: Tree, noise: Tensor) -> Tensor:
        """Actions (B, ...) of a policy that knows nothing, made of the same noise as :meth:`act` takes."""
        raise NotImplementedError

    def observe(self, obs: Tree) -> None:
        """Take B observations into running statistics, where there are any; on several ranks, all must call it."""

    def initial_state(self, envs: int) -> Tree:
        """The state (envs, ...) at the start of an episode, or None."""
        return None

    def env_action(self, action: np.ndarray) -> np.ndarray:
        """Actions (B, ...) as the environment takes them: indices get the space's ``start`` added."""
        return action if self._start is None else action + self._start


def action_mask(obs: Tree) -> Tensor | None:
    """The mask (B, A) of allowed actions that an observation carries, as bool, or None."""
    if isinstance(obs, dict) and MASK in obs:
        mask: Tensor = obs[MASK]
        return mask.bool()
    return None
