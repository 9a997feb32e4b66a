"""The standard preprocessing of Atari games: Machado et al. 2018 (arXiv:1709.06009), as in the Nature DQN paper.

Up to 30 no-ops begin a game (and FIRE, where the game waits for it), an action lasts 4 frames, and what is seen is the
maximum of the last two, in 84 x 84 shades of grey. In training a lost life ends an episode, the game goes on in the next
one, and rewards are cut to their sign; evaluation plays whole games for their raw score.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.wrappers import AtariPreprocessing

from lit_rl.errors import UsageError

NOOPS, SKIP, SIDE = 30, 4, 84


def is_ale(env: object) -> bool:
    """Whether this is the id of a game of ale-py's, which must have been imported."""
    spec = gym.registry.get(env) if isinstance(env, str) else None
    return spec is not None and spec.entry_point == "ale_py.env:AtariEnv"


@dataclass(frozen=True)
class Atari:
    """The preprocessing, for training or for evaluation."""

    training: bool

    def wrap(self, game: gym.Env[Any, Any], name: str) -> gym.Env[Any, Any]:
        """The game, preprocessed; it must not skip frames itself.

        Raises:
            UsageError: it is no Atari game, or skips frames.
            gymnasium.error.DependencyNotInstalled: OpenCV is missing.
        """
        if not hasattr(game.unwrapped, "ale"):
            raise UsageError(f"--atari needs an Atari game such as PongNoFrameskip-v4 or ALE/Pong-v5, not {name}")
        if getattr(game.unwrapped, "_frameskip", None) != 1:
            raise UsageError(f"--atari needs single frames of {name}: make it with frameskip=1")
        wrapped = AtariPreprocessing(Fire(game), noop_max=NOOPS, frame_skip=SKIP, screen_size=SIDE)
        return Lives(wrapped) if self.training else wrapped


class Fire(gym.Wrapper[Any, Any, Any, Any]):
    """Presses FIRE for a frame at the start of a game that has it."""

    def __init__(self, game: gym.Env[Any, Any]) -> None:
        super().__init__(game)
        meanings = game.unwrapped.get_action_meanings()  # type: ignore[attr-defined]
        self._fire = meanings.index("FIRE") if "FIRE" in meanings else None

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """As Gymnasium's."""
        obs, info = self.env.reset(seed=seed, options=options)
        if self._fire is not None:
            obs, _, _, _, info = self.env.step(self._fire)
        return obs, info


class Lives(gym.Wrapper[Any, Any, Any, Any]):
    """A life is an episode: where one is lost and others are left, the next episode goes on with the game as it stands.

    A reset with a seed begins a new game. Rewards become their sign.
    """

    def __init__(self, game: gym.Env[Any, Any]) -> None:
        super().__init__(game)
        self._lives = 0
        self._over = True  # the game, not the episode
        self._now: tuple[Any, dict[str, Any]] = (None, {})

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """As Gymnasium's."""
        if self._over or seed is not None:
            self._now = self.env.reset(seed=seed, options=options)
            self._lives, self._over = self._left(), False
        return self._now

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """As Gymnasium's."""
        obs, reward, terminated, truncated, info = self.env.step(action)
        self._now, self._over = (obs, info), terminated or truncated
        left, before = self._left(), self._lives
        self._lives = left
        return obs, float(np.sign(float(reward))), terminated or 0 < left < before, truncated, info

    def _left(self) -> int:
        lives: int = self.unwrapped.ale.lives()  # type: ignore[attr-defined]
        return lives
