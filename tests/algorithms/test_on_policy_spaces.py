"""Every on-policy algorithm, from the env's step to the env's step, in every space of actions."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from tiny_runs import make_trainer

from lit_rl import load_policy
from lit_rl.datamodule import ExperienceDataModule
from lit_rl.lit_policy import LitPolicy

ACTIONS = {
    "discrete": gym.spaces.Discrete(3, start=-4),
    "parts": gym.spaces.MultiDiscrete([2, 3], start=[0, 5]),
    "bits": gym.spaces.MultiBinary([2, 2]),
    "box": gym.spaces.Box(np.array([-3, 0], np.float32), np.array([1, np.inf], np.float32)),
    "number": gym.spaces.Box(-2, 2, (), np.float64),
}
LSTM = {"use_lstm": True, "lstm_cell_size": 8, "max_seq_len": 8}
FORBIDDEN = {"discrete": 1, "parts": 3}  # a place in the mask


class Picky(gym.Env[Any, Any]):
    """Six steps; refuses what its space does not have or its mask forbids."""

    def __init__(self, kind: str, masked: bool = False) -> None:
        self.observation_space = gym.spaces.Box(-1, 1, (3,), np.float32)
        self.action_space = ACTIONS[kind]
        self.kind, self.masked = kind, masked

    def look(self) -> tuple[np.ndarray, dict[str, Any]]:
        if not self.masked:
            return self.np_random.uniform(-1, 1, 3).astype(np.float32), {}
        mask = np.ones(3 if self.kind == "discrete" else 5, np.int8)
        mask[FORBIDDEN[self.kind]] = 0
        return self.np_random.uniform(-1, 1, 3).astype(np.float32), {"action_mask": mask}

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[np.ndarray, dict]:
        super().reset(seed=seed)
        self.t = 0
        return self.look()

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        assert self.action_space.contains(action), (action, type(action))
        if self.masked:
            places = action + 4 if self.kind == "discrete" else np.array(action) - [0, 5] + [0, 2]
            assert FORBIDDEN[self.kind] not in np.atleast_1d(places)
        self.t += 1
        obs, info = self.look()
        return obs, float(np.sum(action)), self.t == 6, False, info


@pytest.mark.parametrize("kind, masked", [*((kind, False) for kind in ACTIONS), *((kind, True) for kind in FORBIDDEN)])
@pytest.mark.parametrize("algo, memory", [("PG", {}), ("A2C", {}), ("PPO", {}), ("A2C", LSTM)], ids=str)
def test_it_trains_is_evaluated_and_served(algo, memory, kind, masked, tmp_path):
    data = ExperienceDataModule(
        Picky, {"kind": kind, "masked": masked}, num_envs=2, step_per_epoch=64, episode_per_test=3, num_test_envs=2
    )
    settings = {"hidden_sizes": [8], "rollout_length": 16, "steps_per_iteration": 64, "normalize_obs": True}
    policy = LitPolicy(algo, data.spaces, **settings, **memory)
    trainer = make_trainer(1)
    trainer.fit(policy, datamodule=data)
    assert policy.updates >= 2 and np.isfinite(policy.reported["Eval/return"])
    path = tmp_path / "policy.ckpt"
    trainer.save_checkpoint(path, weights_only=True)
    served, env = load_policy(path), Picky(kind, masked)
    obs, info = env.reset(seed=0)
    for explore in (False, True, True):
        env.step(served.act({"obs": obs, **info} if masked else obs, explore=explore))
    data.close()
