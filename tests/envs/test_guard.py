from __future__ import annotations

import signal

import gymnasium as gym
import numpy as np
import pytest
import tiny_envs
import torch

from lit_rl.envs.guard import Guard
from lit_rl.envs.make import make_env
from lit_rl.errors import EnvError


@pytest.mark.parametrize(
    "reward", [2, 2.0, np.float64(2), np.int64(2), np.float32(2), np.array(2), np.array([2.0]), torch.tensor([2.0])]
)
def test_rewards_of_any_kind_of_number_become_floats(reward):
    env = make_env(tiny_envs.Counting, {"reward": reward})
    env.reset(seed=0)
    got = env.step(0)[1]
    assert type(got) is float
    assert got == 2.0


@pytest.mark.parametrize("reward", [None, "2", np.ones(2), np.array([]), [None], 1j])
def test_rewards_that_are_no_number_name_env_and_step(reward):
    env = make_env(tiny_envs.Counting, {"reward": reward}, index=4)
    env.reset(seed=0)
    with pytest.raises(EnvError, match=r"env 4, step 1 .*reward"):
        env.step(0)


def test_first_and_final_observation_survive_an_env_that_reuses_its_array():
    env = make_env(tiny_envs.Reusing, {"length": 2})
    first, _ = env.reset(seed=0)
    episode = first[0]
    env.step(0)
    final, *_ = env.step(0)
    env.reset()
    assert first.tolist() == [episode, 0]
    assert final.tolist() == [episode, 2]


def test_stop_iteration_becomes_an_error_with_env_step_and_the_envs_traceback():
    env = make_env(tiny_envs.Stopping, {"length": 9}, index=2)
    env.reset(seed=0)
    env.step(0)
    env.reset(seed=0)
    env.step(0)
    env.step(0)
    with pytest.raises(EnvError) as caught:
        env.step(0)
    text = str(caught.value)
    assert text.startswith("env 2, step 4 (step 3 of its episode) raised StopIteration")
    assert "next(iter(()))" in text and "tiny_envs.py" in text
    assert "guard.py" not in text
    assert str(EnvError(caught.value)) == text, "an async vector env rebuilds it so"


def test_an_env_that_exits_does_not_end_the_run():
    class Exiting(tiny_envs.Counting):
        def step(self, action):
            raise SystemExit(0)

    env = make_env(Exiting, {})
    env.reset(seed=0)
    with pytest.raises(EnvError, match="raised SystemExit"):
        env.step(0)


def test_ctrl_c_passes_through_and_what_an_env_raises_like_it_does_not():
    class Raising(tiny_envs.Counting):
        def __init__(self, error):
            super().__init__()
            self.error = error

        def step(self, action):
            raise self.error

    def step(error):
        env = make_env(Raising, {"error": error})
        env.reset(seed=0)
        env.step(0)

    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            step(KeyboardInterrupt())
        signal.signal(signal.SIGINT, lambda *_: None)  # as a run has one, which raises no KeyboardInterrupt
        with pytest.raises(EnvError, match="raised KeyboardInterrupt"):
            step(KeyboardInterrupt())
    finally:
        signal.signal(signal.SIGINT, before)
    with pytest.raises(EnvError, match="raised GeneratorExit"):
        step(GeneratorExit())


def test_an_observation_outside_a_discrete_space_is_named():
    class Leaving(tiny_envs.Counting):
        observation_space = gym.spaces.Discrete(3)

        def obs(self):
            return self.t + 1

    env = make_env(Leaving, {"length": 9})
    env.reset(seed=0)
    env.step(0)
    with pytest.raises(EnvError, match=r"env 0, step 2 .* its observation 3 lies outside Discrete\(3\)"):
        env.step(0)


def test_errors_in_reset_and_render_are_named():
    class Broken(tiny_envs.Counting):
        def render(self):
            return 1 / 0

        def reset(self, *, seed=None, options=None):
            return 1 / 0

    env = Guard(Broken(), 1)
    with pytest.raises(EnvError, match="env 1, step 0 .* raised ZeroDivisionError in reset"):
        env.reset()
    with pytest.raises(EnvError, match="in render"):
        env.render()


def test_an_observation_that_changes_its_shape_is_named():
    env = make_env(tiny_envs.WrongLater, {})
    env.reset(seed=0)
    env.step(0)
    with pytest.raises(EnvError, match=r"env 0, step 2 .*shape \(1,\).*\(2,\)"):
        env.step(0)


def test_an_observation_may_be_a_list():
    class Listing(tiny_envs.Counting):
        def obs(self):
            return [0.0, 1.0]

    env = make_env(Listing, {})
    env.reset(seed=0)
    assert env.step(0)[0] == [0.0, 1.0]


def test_truncation_and_termination_stay_apart():
    for truncates in (False, True):
        env = make_env(tiny_envs.Counting, {"length": 1, "truncates": truncates})
        env.reset(seed=0)
        _, _, terminated, truncated, _ = env.step(0)
        assert (terminated, truncated) == (not truncates, truncates)


def test_the_outermost_wrapper_is_the_guard():
    assert isinstance(make_env("CartPole-v1", {}), Guard)
    assert isinstance(make_env("CartPole-v1", {}).unwrapped, gym.Env)
