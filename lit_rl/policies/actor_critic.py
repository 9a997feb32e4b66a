"""Actor-critics: an actor that gives every action a probability, and a critic that values what it sees."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import torch
from gymnasium import spaces as gs
from torch import Tensor, nn

from lit_rl.envs.spaces import Spaces, describe
from lit_rl.errors import UsageError
from lit_rl.functional.sequences import Sequences
from lit_rl.functional.tree import Tree, tree_leaves
from lit_rl.networks.architecture import Architecture
from lit_rl.networks.heads import ValueHead
from lit_rl.networks.host import host_forward
from lit_rl.networks.init import orthogonal_
from lit_rl.networks.normalize import ObservationNorm
from lit_rl.networks.recurrent import RecurrentTorso
from lit_rl.networks.torso import Torso
from lit_rl.policies.base import Acted, Evaluated, HostAct, HostEvaluate, Policy
from lit_rl.policies.categorical import Categorical
from lit_rl.policies.gaussian import Gaussian


class StochasticActor(nn.Module):
    """Torso, head and distribution: observations → the parameters of a distribution over actions."""

    torso: Torso | RecurrentTorso

    def __init__(self, spaces: Spaces, architecture: Architecture) -> None:
        super().__init__()
        self.torso = make_torso(spaces.observation, architecture)
        self.distribution = make_distribution(spaces)
        self.linear = nn.Linear(self.torso.features, self.distribution.outputs)

    def read(self, features: Tensor, obs: Tree) -> Tensor:
        """The distribution's parameters from the torso's features."""
        parameters: Tensor = self.distribution(self.linear(features), obs)
        return parameters

    def forward(self, obs: Tree) -> Tensor:
        return self.read(self.torso(obs), obs)

    @property
    def layers(self) -> list[nn.Module] | None:
        """The layers one after the other, where that is all there is; else None."""
        torso = self.torso.layers
        return [*torso, self.linear] if torso is not None and self.distribution.host else None


def make_distribution(spaces: Spaces) -> Categorical | Gaussian:
    """The distribution for a space of actions.

    Raises:
        UsageError: there is none.
    """
    action = spaces.action
    if isinstance(action, gs.Box):
        return Gaussian(action)
    if isinstance(action, (gs.Discrete, gs.MultiDiscrete, gs.MultiBinary)):
        return Categorical(action)
    raise UsageError(
        f"there is no policy for {describe(action)} actions; use Discrete, MultiDiscrete, MultiBinary or Box"
    )


def make_torso(space: gym.Space[Any], architecture: Architecture) -> Torso | RecurrentTorso:
    """A torso, with an LSTM on it where there is one."""
    torso = Torso(space, architecture)
    return torso if architecture.lstm is None else RecurrentTorso(torso, architecture.lstm)


class ActorCritic(Policy):
    """A stochastic policy and, with ``critic``, a value function, on a torso of its own or on the actor's.

    With ``normalize_obs`` both see observations normalised by the statistics of what :meth:`observe` was shown.

    Weights start orthogonal: times sqrt(2) in the torsos, 0.01 in the actor's head, so that all actions are about as
    likely, and 1 in the critic's (Schulman et al. 2017's own code). A user's own encoder keeps the weights it came with.

    With an LSTM in the architecture each torso ends in one. The state is then a tuple of one tensor for each torso,
    (B, 2, cells); where none is given, an episode begins.

    Raises:
        UsageError: spaces that it cannot handle, or a bad network.
    """

    actor: StochasticActor

    def __init__(
        self,
        spaces: Spaces,
        architecture: Architecture,
        share_torso: bool = False,
        critic: bool = True,
        normalize_obs: bool = False,
    ) -> None:
        super().__init__(spaces)
        self.norm = ObservationNorm(spaces.observation) if normalize_obs else None
        self.share_torso, self.remembers = share_torso, architecture.lstm is not None
        self.actor = StochasticActor(spaces, architecture)
        orthogonal_(self.actor.torso, 2**0.5)
        orthogonal_(self.actor.linear, 0.01)
        if critic:
            head = ValueHead(self.actor.torso.features)
            orthogonal_(head, 1.0)
            torso = None
            if not share_torso:
                torso = make_torso(spaces.observation, architecture)
                orthogonal_(torso, 2**0.5)
            self.critic = head if torso is None else nn.Sequential(torso, head)

    @property
    def torsos(self) -> list[Any]:
        """The actor's, and the critic's where it has its own: the last one is what the critic sees through."""
        return [self.actor.torso, *([self.critic[0]] if isinstance(self.critic, nn.Sequential) else [])]

    def evaluate(self, obs: Tree, action: Tensor, sequences: Sequences | tuple[()] = ()) -> Evaluated:
        """Log-probabilities and entropies of the actor, and values of the critic (0 without one)."""
        obs = self._seen(obs)
        if sequences:
            unrolled = zip(self.torsos, sequences.state, strict=True)
            features = [torso.unroll(obs, state, sequences) for torso, state in unrolled]
        else:
            features = [torso(obs) for torso in self.torsos]
        parameters = self.actor.read(features[0], obs)
        distribution = self.actor.distribution
        log_prob, entropy = distribution.log_prob(parameters, action), distribution.entropy(parameters)
        return Evaluated(log_prob, entropy, self._read_value(features[-1]))

    def log_prob(self, obs: Tree, action: Tensor) -> Tensor:
        return self.actor.distribution.log_prob(self._step(obs, None)[0], action)

    def divergence(self, other: Policy, obs: Tree) -> Tensor:
        assert isinstance(other, ActorCritic)
        mine, theirs = self._step(obs, None)[0], other._step(obs, None)[0]
        return self.actor.distribution.kl(mine, other.actor.distribution, theirs)

    def value(self, obs: Tree, state: Tree = None) -> Tensor:
        """Values (B,); 0 without a critic."""
        if self.critic is None:
            return self.actor.linear.weight.new_zeros(len(tree_leaves(obs)[0]))
        obs, torso = self._seen(obs), self.torsos[-1]
        if not isinstance(torso, RecurrentTorso):
            return self._read_value(torso(obs))
        if state is None:
            state = self.initial_state(len(tree_leaves(obs)[0]))
        return self._read_value(torso(obs, state[-1])[0])

    def observe(self, obs: Tree) -> None:
        if self.norm is not None:
            self.norm.update(obs)

    def _seen(self, obs: Tree) -> Tree:
        return obs if self.norm is None else self.norm(obs)

    def _read_value(self, features: Tensor) -> Tensor:
        """The critic's values of what its torso saw."""
        if self.critic is None:
            return features.new_zeros(len(features))
        head = self.critic[1] if isinstance(self.critic, nn.Sequential) else self.critic
        value: Tensor = head(features)
        return value

    def _step(self, obs: Tree, state: Tree) -> tuple[Tensor, Tree]:
        """The distribution's parameters for B observations, and the state after them."""
        obs, torso = self._seen(obs), self.actor.torso
        if not isinstance(torso, RecurrentTorso):
            return self.actor.read(torso(obs), obs), None
        if state is None:
            state = self.initial_state(len(tree_leaves(obs)[0]))
        stepped = [each(obs, before) for each, before in zip(self.torsos, state, strict=True)]
        return self.actor.read(stepped[0][0], obs), tuple(after for _, after in stepped)

    def act(self, obs: Tree, noise: Tensor | None = None, state: Tree = None) -> Acted:
        parameters, state = self._step(obs, state)
        distribution = self.actor.distribution
        action = distribution.mode(parameters) if noise is None else distribution.sample(parameters, noise)
        return Acted(action, state)

    def initial_state(self, envs: int) -> Tree:
        if not isinstance(self.actor.torso, RecurrentTorso):
            return None
        return tuple(torso.initial_state(envs) for torso in self.torsos)

    def draw(self, steps: int, envs: int, generator: torch.Generator) -> Tensor:
        return self.actor.distribution.draw(steps, envs, generator)

    def scaled(self, drawn: np.ndarray, env_steps: int, vector_step: int) -> np.ndarray:
        return self.actor.distribution.scaled(drawn)

    def random(self, obs: Tree, noise: Tensor) -> Tensor:
        return self.actor.distribution.random(noise, obs)

    def host_act(self) -> HostAct | None:
        forward, sample = host_forward(self.actor.layers), self.actor.distribution.host_sample
        if forward is None:
            return None
        if self.norm is None:
            return lambda obs, noise: sample(forward(obs), noise)
        seen = self.norm.host()
        return None if seen is None else lambda obs, noise: sample(forward(seen(obs)), noise)

    def host_evaluate(self) -> HostEvaluate | None:
        if self.critic is None or self.share_torso:
            return None
        parts: Any = self.critic
        torso, head = parts
        actor, distribution = host_forward(self.actor.layers), self.actor.distribution
        critic = host_forward(None if torso.layers is None else [*torso.layers, head.linear])
        seen = (lambda obs: obs) if self.norm is None else self.norm.host()
        if actor is None or critic is None or seen is None:
            return None

        def evaluate(obs: np.ndarray, action: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
            obs = seen(obs)
            return distribution.host_log_prob(actor(obs[: len(action)]), action), critic(obs)[:, 0]

        return evaluate

    def env_action(self, action: np.ndarray) -> np.ndarray:
        return self.actor.distribution.to_env(action)
