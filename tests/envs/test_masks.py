from __future__ import annotations

import gymnasium as gym
import numpy as np
import pytest
import tiny_envs

from lit_rl.envs.make import make_env
from lit_rl.envs.vector import make_vector_env, probe
from lit_rl.errors import EnvError, UsageError


def test_a_mask_in_info_becomes_part_of_every_observation():
    env = make_env(tiny_envs.Masking, {})
    assert env.observation_space == gym.spaces.Dict({"obs": tiny_envs.FLAT, "action_mask": gym.spaces.MultiBinary(3)})
    obs, info = env.reset(seed=0)
    assert obs["action_mask"].tolist() == [0, 1, 1] and obs["action_mask"].dtype == np.int8
    assert info == {"kept": 5}
    obs, *_ = env.step(1)
    assert obs["action_mask"].tolist() == [1, 0, 1]
    assert obs["obs"][1] == 1
    assert env.observation_space.contains(obs)


def test_the_final_observation_has_its_own_mask():
    envs = make_vector_env(tiny_envs.Masking, {"length": 2}, 2, "sync", autoreset="same_step")
    obs, _ = envs.reset(seed=0)
    assert obs["action_mask"].tolist() == [[0, 1, 1]] * 2
    envs.step(np.array([1, 1]))
    obs, _, _, _, info = envs.step(np.array([1, 1]))
    assert obs["action_mask"].tolist() == [[0, 1, 1]] * 2
    assert info["final_obs"][1]["action_mask"].tolist() == [1, 1, 0]
    envs.close()


def test_a_mask_that_forbids_everything_names_env_and_step():
    env = make_env(tiny_envs.Masking, {"masks": [[1, 0, 0], [0, 0, 0]]}, index=3)
    env.reset(seed=0)
    with pytest.raises(
        EnvError, match=r"^env 3, step 1 \(step 1 of its episode\): its action_mask forbids every action$"
    ):
        env.step(0)


def test_where_an_episode_terminated_nothing_allowed_means_all():
    env = make_env(tiny_envs.Masking, {"masks": [[1, 0, 0], [0, 0, 0]], "length": 1})
    env.reset(seed=0)
    obs, _, terminated, _, _ = env.step(0)
    assert terminated and obs["action_mask"].tolist() == [1, 1, 1]


def test_a_truncated_episode_needs_a_mask_because_it_bootstraps():
    env = make_env(tiny_envs.Masking, {"masks": [[1, 0, 0], [0, 0, 0]], "length": 1, "truncates": True})
    env.reset(seed=0)
    with pytest.raises(EnvError, match="forbids every action"):
        env.step(0)


def test_a_mask_of_the_wrong_length_is_named():
    env = make_env(tiny_envs.Masking, {"masks": [[1, 0, 0], [1, 0]]})
    env.reset(seed=0)
    with pytest.raises(EnvError, match=r"shape \(2,\).*\(3,\)"):
        env.step(0)


def test_a_mask_that_the_observation_has_already_stays():
    env = make_env(tiny_envs.MaskShown, {"length": 2})
    assert env.observation_space == tiny_envs.MaskShown.observation_space
    obs, _ = env.reset(seed=0)
    assert obs["action_mask"].tolist() == [1, 0]
    env.step(0)
    assert env.step(0)[0]["action_mask"].tolist() == [1, 1], "terminated"


def test_masks_of_several_actions_are_joined():
    env = make_env(tiny_envs.Parts, {})
    assert env.reset(seed=0)[0]["action_mask"].tolist() == [1, 0, 0, 1, 1]
    with pytest.raises(EnvError, match="no action_mask here"):
        env.step([0, 1])


def test_a_mask_of_continuous_actions_is_refused():
    class Continuous(tiny_envs.Masking):
        action_space = gym.spaces.Box(-1, 1, (1,))

    with pytest.raises(UsageError, match="needs Discrete or MultiDiscrete"):
        make_env(Continuous, {})


def test_a_real_env_with_masks():
    spaces = probe("Taxi-v4" if "Taxi-v4" in gym.registry else "Taxi-v3", {})
    assert spaces.observation["obs"] == gym.spaces.Discrete(500)
    assert spaces.observation["action_mask"].n == 6
