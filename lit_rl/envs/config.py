"""The settings that say which environment is learned in, and how many copies of it run."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from lit_rl.envs.atari import Atari
from lit_rl.envs.rules import Rules
from lit_rl.envs.wrappers import Wrappers
from lit_rl.errors import UsageError

VectorEnvKind = Literal["sync", "async", "native", "envpool"]


@dataclass
class EnvConfig:
    """Which environment to learn in. Raises UsageError for values that cannot be meant."""

    env: str | None = "CartPole-v1"
    """Environment id (module:Env-v0 included), or the import path of an env class or factory (pkg.mod:Name); null: none."""

    env_config: dict[str, Any] = field(default_factory=dict)
    """Keyword arguments of the environment, such as '{"max_episode_steps": 200}'."""

    num_envs: int = 1
    """Environments that learn side by side, per device (at least 1)."""

    vector_env: VectorEnvKind = "sync"
    """sync: all envs in this process; async: a process per env; native: the environment's own vectorised version (Atari:
    ale-py's, in threads); envpool: EnvPool's."""

    atari: bool = False
    """The standard preprocessing of Atari games: no-ops, 4 frames per action, 84 x 84 grey; in training also lives as
    episodes and the sign of rewards."""

    frame_stack: int | None = None
    """Newest frames of an episode that the policy sees at once; by default 4 with --atari, otherwise 1."""

    max_episode_steps: int | None = None
    """Truncate an episode after so many env steps, where the environment's own limit is not earlier."""

    soft_reset: bool = False
    """Go on from where max_episode_steps cut an episode, in the next one; only what the environment ends is reset."""

    no_termination: bool = False
    """Take every end of an episode for a truncation: the value of what would come next counts."""

    clip_rewards: bool = False
    """Learn from the sign of rewards; evaluations show raw ones."""

    eval_env_config: dict[str, Any] = field(default_factory=dict)
    """Keyword arguments of the environments of evaluations and of the test, over those of env_config."""

    def __post_init__(self) -> None:
        # A class or factory is welcome from Python; on the command line it is its import path.
        named = isinstance(self.env, str) and self.env.strip()
        if self.env is not None and not callable(self.env) and not named:
            raise UsageError(f"--env is {self.env!r}; give an environment id such as CartPole-v1 or an import path")
        limit = self.max_episode_steps
        if limit is not None and (isinstance(limit, bool) or not isinstance(limit, int) or limit < 1):
            raise UsageError(f"--max_episode_steps is {limit!r}; give a whole number of at least 1")
        if limit is None and self.soft_reset:
            raise UsageError("--soft_reset goes on where --max_episode_steps cuts: give that too")
        for name in ("max_episode_steps", "no_termination", "clip_rewards"):
            if getattr(self, name) and self.vector_env in ("native", "envpool"):
                raise UsageError(f"--{name} needs envs that can be wrapped: give --vector_env sync or async")
        for name in ("env_config", "eval_env_config"):
            given = getattr(self, name)
            if not isinstance(given, dict) or not all(isinstance(key, str) for key in given):
                raise UsageError(f"--{name} is {given!r}; give keyword arguments such as {{'gravity': 9.8}}")
        if isinstance(self.num_envs, bool) or not isinstance(self.num_envs, int) or self.num_envs < 1:
            raise UsageError(f"--num_envs is {self.num_envs!r}; give a whole number of at least 1")
        if self.vector_env not in get_args(VectorEnvKind):
            raise UsageError(f"--vector_env is {self.vector_env!r}; choose {', '.join(get_args(VectorEnvKind))}")
        depth = self.frame_stack
        if depth is not None and (isinstance(depth, bool) or not isinstance(depth, int) or not 1 <= depth <= 255):
            raise UsageError(f"--frame_stack is {depth!r}; give a whole number from 1 to 255")

    @property
    def stacked_frames(self) -> int:
        """The number of frames that counts."""
        return (4 if self.atari else 1) if self.frame_stack is None else self.frame_stack

    def wrappers(self, training: bool) -> Wrappers:
        """What is put around an environment, in training or in evaluations, which show raw rewards."""
        clip_rewards = self.clip_rewards and training
        rules = Rules(self.max_episode_steps, self.soft_reset, self.no_termination, clip_rewards)
        return Wrappers(Atari(training) if self.atari else None, rules)
