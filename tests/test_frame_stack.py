"""Whole runs on stacked frames: every algorithm, both stages, and the policy that is left."""

from __future__ import annotations

import numpy as np
import pytest

import lit_rl
from lit_rl.cli import main
from lit_rl.envs.seeds import env_seed
from lit_rl.errors import UsageError
from lit_rl.functional.tree import tree_leaves

TINY = {
    "env": "CartPole-v1",
    "frame_stack": 3,
    "tuned": False,
    "step_per_epoch": 64,
    "max_epochs": 1,
    "hidden_sizes": [8],
    "episode_per_test": 2,
    "test_episodes": 3,
    "num_test_envs": 2,
    "enable_progress_bar": False,
    "logger": "false",
}
DQN = {"learning_starts": 8, "batch_size": 4, "steps_per_iteration": 32, "buffer_size": 60}
ALGORITHMS = {
    "DQN": DQN | {"prioritized": True, "n_step": 2},
    "SAC": DQN | {"vector_env": "native"},
    "PPO": {"rollout_length": 16, "epochs_per_rollout": 1, "normalize_obs": True, "vector_env": "async"},
    "ES": {"members": 8, "steps_per_iteration": 64},
}


def play(policy, env, seed):
    obs, _ = env.reset(seed=seed)
    total, over = 0.0, False
    while not over:
        obs, reward, terminated, truncated, _ = env.step(policy.act(obs))
        total, over = total + reward, terminated or truncated
    return total


@pytest.mark.parametrize("algo", ALGORITHMS)
def test_a_loaded_policy_scores_what_the_test_said(algo, tmp_path):
    summary = lit_rl.train(
        algo=algo, num_envs=2, output_dir=str(tmp_path), two_steps=True, max_epochs_2=1, **TINY, **ALGORITHMS[algo]
    )
    policy = lit_rl.load_policy(summary["best_path"])
    env = lit_rl.make_env("CartPole-v1", frame_stack=3)
    assert policy.spaces.frame_stack == 3 and policy.spaces.observation == env.observation_space
    returns = [play(policy, env, env_seed(0, "test", i)) for i in range(3)]
    assert np.mean(returns) == summary["test"]["return_mean"]


@pytest.mark.parametrize(("algo", "native"), [("DQN", True), ("PPO", False)])
def test_pong_by_one_flag(algo, native, tmp_path, capsys):
    settings = (
        DQN if algo == "DQN" else {"rollout_length": 8, "epochs_per_rollout": 1, "batch_size": 8, "share_torso": True}
    )
    game = {"env": "PongNoFrameskip-v4", "env_config": {"max_num_frames_per_episode": 120}, "frame_stack": None}
    how = {"vector_env": "native" if native else "sync", "atari": True, "num_envs": 2}
    summary = lit_rl.train(
        algo=algo, output_dir=str(tmp_path), **(TINY | settings | game | how | {"step_per_epoch": 32})
    )
    policy = lit_rl.load_policy(summary["best_path"])
    env = lit_rl.make_env(game["env"], game["env_config"], atari=True)
    assert policy.spaces.observation.shape == (4, 84, 84) == env.observation_space.shape
    assert main(["rollout", summary["best_path"], "--episodes", "1"]) == 0
    assert "1 episode)" in capsys.readouterr().out
    if not native:
        returns = [play(policy, env, env_seed(0, "test", i)) for i in range(3)]
        assert np.mean(returns) == summary["test"]["return_mean"]


def test_a_mask_stays_a_mask_beside_stacked_frames():
    import tiny_envs

    env = lit_rl.make_env(tiny_envs.Masking, frame_stack=2)
    obs, _ = env.reset(seed=0)
    assert all(np.shape(x) for x in tree_leaves(obs)) and obs["action_mask"].shape == (env.action_space.n,)
    assert obs["obs"].shape[0] == 2


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"buffer_size": 9, "num_envs": 2}, "--buffer_size 9 is too small for 2 envs: it must be at least 10"),
        ({"env": "FrozenLake-v1"}, "--frame_stack 3 needs observations with a Box, not Discrete"),
        ({"atari": True}, "--atari needs an Atari game such as PongNoFrameskip-v4"),
    ],
)
def test_what_cannot_be_stacked_is_refused_before_anything_is_created(settings, says, tmp_path):
    with pytest.raises(UsageError, match=says):
        lit_rl.train(output_dir=str(tmp_path / "out"), **(TINY | settings))
    assert not (tmp_path / "out").exists()
