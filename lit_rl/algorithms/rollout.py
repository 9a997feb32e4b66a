"""Settings that all algorithms on rollouts share, and the plan and the policy that follow from them."""

from __future__ import annotations

from dataclasses import dataclass

from lit_rl.algorithms.base import AlgorithmConfig
from lit_rl.data.config import at_least
from lit_rl.data.plans import RolloutPlan
from lit_rl.envs.spaces import Spaces
from lit_rl.errors import UsageError
from lit_rl.functional.schedules import Schedule
from lit_rl.networks.architecture import Architecture
from lit_rl.policies.actor_critic import ActorCritic


@dataclass
class RolloutConfig(AlgorithmConfig):
    """On-policy learning"""

    gradient_clip_val: float | None = 0.5
    """Largest norm (or value) of a gradient; null for none."""
    share_torso: bool = False
    """Whether actor and critic share their hidden layers."""
    use_lstm: bool = False
    """Remember what was seen in an episode, by an LSTM behind the hidden layers."""
    lstm_cell_size: int = 256
    """Cells of each LSTM."""
    max_seq_len: int = 20
    """Env steps that gradients flow back through an LSTM, at most; minibatches are made of sequences of this length."""
    normalize_obs: bool = False
    """Normalise float observations by their running mean and standard deviation."""
    normalize_reward: bool = False
    """Divide rewards by the running standard deviation of discounted returns; evaluation shows raw ones."""
    rollout_length: int = 256
    """Env steps of each env in a rollout; an iteration holds as many rollouts as fit, one at least."""
    complete_episodes: bool = False
    """Learn from an episode when it has ended: what a rollout cuts off waits for the next one. Rollouts must be long enough
    for one env to end an episode in each."""
    gae_lambda: float = 1.0
    """Lambda of generalised advantage estimates, in [0, 1]: 1 takes all rewards to come, 0 the next one and the critic."""
    vf_coeff: float = 0.5
    """Weight of the critic's squared error."""
    entropy_coeff: Schedule = 0.0
    """Weight of the policy's entropy: a number, or [[env_step, value], ...]."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.check_schedules(entropy_coeff=(0.0, float("inf")))
        for name in ("rollout_length", "lstm_cell_size", "max_seq_len"):
            at_least(name, getattr(self, name), 1)
        at_least("vf_coeff", self.vf_coeff, 0)
        if self.complete_episodes and self.use_lstm:
            raise UsageError(
                "--complete_episodes and --use_lstm do not go together: memory runs through rollouts by itself"
            )
        if not 0 <= self.gae_lambda <= 1:
            raise UsageError(f"--gae_lambda {self.gae_lambda} is out of range: it must lie between 0 and 1")

    @property
    def architecture(self) -> Architecture:
        """What its networks have in common."""
        lstm = self.lstm_cell_size if self.use_lstm else None
        return Architecture(self.hidden_sizes, self.activation, self.encoder, lstm)

    def policy(self, spaces: Spaces, critic: bool = True) -> ActorCritic:
        """The policy that these settings describe."""
        return ActorCritic(
            spaces,
            self.architecture,
            share_torso=self.share_torso,
            critic=critic,
            normalize_obs=self.normalize_obs,
        )

    def plan(self, epochs: int = 1, batch_size: int | None = None) -> RolloutPlan:
        """The plan that these settings describe: by default one update on a whole rollout."""
        return RolloutPlan(
            steps_per_iteration=self.steps_per_iteration,
            rollout_length=self.rollout_length,
            epochs=epochs,
            batch_size=batch_size,
            gamma=self.gamma,
            gae_lambda=self.gae_lambda,
            normalize_reward=self.normalize_reward,
            sequence=self.max_seq_len if self.use_lstm else 1,
            complete_episodes=self.complete_episodes,
        )
