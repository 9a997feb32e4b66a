"""The fixed episodes of evaluations and of the test, as the policy of the moment plays them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import gymnasium as gym
import torch

from lit_rl.data.config import EvalConfig
from lit_rl.data.evaluation import play_episodes
from lit_rl.data.transitions import Episode
from lit_rl.envs.environments import Environments
from lit_rl.envs.seeds import env_seed
from lit_rl.policies.base import Policy

Seeds = list[tuple[int, int]]  # number and reset seed of each episode


class PlayedEpisodes:
    """Plays them, in environments that are made when the first is.

    Attributes:
        noise: evaluations explore with it; None: they act greedily.
    """

    def __init__(self, environments: Environments, config: EvalConfig, seed: int) -> None:
        self.environments, self.config, self.seed = environments, config, seed
        self.noise: torch.Generator | None = None
        self.envs: gym.vector.VectorEnv | None = None

    def share(self, domain: Literal["eval", "test"], rank: int, ranks: int) -> Seeds:
        """Those of an evaluation or of the test that a rank plays: they are split by their number."""
        count = self.config.episode_per_test if domain == "eval" else self.config.test_episodes
        return [(i, env_seed(self.seed, domain, i)) for i in range(rank, count, ranks)]

    def play(self, policy: Policy, seeds: Seeds) -> Iterator[Episode]:
        """Play these, in their order."""
        if self.envs is None:
            most = max(self.config.episode_per_test, self.config.test_episodes)
            self.envs = self.environments.evaluation(min(self.config.num_test_envs, most))
        return play_episodes(policy, self.envs, self.environments.spaces, seeds, self.noise)

    def film(self, policy: Policy, folder: Path, prefix: str, episodes: int) -> None:
        """Play the first episodes of an evaluation again and write ``<prefix>-episode-<n>.mp4`` of each into ``folder``."""
        seeds = self.share("eval", 0, 1)[:episodes]
        envs = self.environments.filmed(folder, prefix, len(seeds))
        try:
            for _ in play_episodes(policy, envs, self.environments.spaces, seeds):
                pass
        finally:
            envs.close()

    def reports_success(self, policy: Policy) -> bool:
        """Whether the environment says of an episode if it succeeded, which only playing one shows."""
        (episode,) = self.play(policy, self.share("eval", 0, 1)[:1])
        return episode.success is not None

    def close(self) -> None:
        """End the environments; the next episode makes new ones."""
        if self.envs is not None:
            self.envs.close()
            self.envs = None
