"""The Atari preprocessing: one set of pixels, rewards and ends, whoever steps the games."""

from __future__ import annotations

import gymnasium as gym
import numpy as np
import pytest

from lit_rl.envs import atari, native
from lit_rl.envs.atari import Atari
from lit_rl.envs.make import make_env
from lit_rl.envs.vector import make_vector_env, probe
from lit_rl.envs.wrappers import Wrappers
from lit_rl.errors import UsageError

BREAKOUT, PONG = "BreakoutNoFrameskip-v4", "PongNoFrameskip-v4"


@pytest.fixture
def no_noops(monkeypatch):
    """A game that begins in one way only."""
    monkeypatch.setattr(atari, "NOOPS", 0)
    monkeypatch.setattr(native, "NOOPS", 1)


@pytest.mark.parametrize(
    ("env", "training"), [(BREAKOUT, True), ("ALE/Breakout-v5", False)], ids=["training", "evaluation"]
)
def test_the_native_envs_show_what_the_wrapped_ones_show_to_the_pixel(env, training, no_noops):
    config = {"repeat_action_probability": 0.0}
    autoreset = "same_step" if training else "disabled"
    both = [
        make_vector_env(env, config, 2, kind, autoreset=autoreset, wrappers=Wrappers(Atari(training)))
        for kind in ("sync", "native")
    ]
    obs = [envs.reset(seed=[3, 4])[0] for envs in both]
    generator, ends = np.random.default_rng(0), 0
    for _ in range(300):
        assert np.array_equal(*obs)
        action = generator.integers(0, both[0].single_action_space.n, 2)
        (one, *signals, info), (other, *their_signals, their_info) = [envs.step(action) for envs in both]
        assert all(map(np.array_equal, signals, their_signals))
        obs, ended = [one, other], signals[1] | signals[2]
        if ended.any() and training:
            finals = [[x["final_obs"][i] for i in np.flatnonzero(ended)] for x in (info, their_info)]
            assert np.array_equal(*finals)
        elif ended.any():
            assert np.array_equal(*obs)
            obs = [e.reset(seed=[5, 6], options={"reset_mask": ended.copy()})[0] for e in both]
        ends += ended.sum()
    assert ends > (8 if training else 1)


def test_training_plays_lives_for_signs_and_evaluation_whole_games_for_points(no_noops):
    def play(training):
        env = make_env(BREAKOUT, {"max_num_frames_per_episode": 4000}, Wrappers(Atari(training)))
        env.reset(seed=0)
        generator, rewards, lives = np.random.default_rng(2), [], []
        for _ in range(400):
            _, reward, terminated, truncated, info = env.step(int(generator.integers(4)))
            rewards.append(reward)
            if terminated or truncated:
                lives.append(info["lives"])
                env.reset()
        return rewards, lives

    (signs, lives), (points, at_the_end) = play(True), play(False)
    assert set(signs) == {0.0, 1.0} and max(points) >= 1.0
    assert lives[:5] == [4, 3, 2, 1, 0] and set(at_the_end) == {0}


def test_seven_points_at_once_are_one_in_training():
    class Paying(gym.Wrapper):
        def step(self, action):
            obs, _, terminated, truncated, info = self.env.step(action)
            return obs, 7.0, terminated, truncated, info

    def rewards(training):
        game = Paying(make_env(PONG, {"frameskip": 1}).unwrapped)
        env = Atari(training).wrap(game, PONG)
        env.reset(seed=0)
        return env.step(0)[1]

    assert (rewards(True), rewards(False)) == (1.0, 28.0)  # four frames of one action


def test_a_seed_begins_a_new_game_and_decides_on_its_noops():
    env = make_env(BREAKOUT, {}, Wrappers(Atari(True)))
    first = env.reset(seed=3)[0]
    frames = [env.reset(seed=seed)[1]["episode_frame_number"] for seed in range(4)]
    assert 1 < len(set(frames)) and max(frames) <= 31
    assert np.array_equal(env.reset(seed=3)[0], first)
    envs = make_vector_env(BREAKOUT, {}, 2, "native", autoreset="disabled", wrappers=Wrappers(Atari(False)))
    obs = envs.reset(seed=[3, 4])[0].copy()
    envs.step(np.array([0, 0]))
    again = envs.reset(seed=[9, 3], options={"reset_mask": np.array([False, True])})[0]
    assert np.array_equal(again[1], obs[0])


def test_one_frame_is_84_by_84_grey():
    assert probe("ALE/Pong-v5", {}, Wrappers(Atari(False))).observation == gym.spaces.Box(0, 255, (84, 84), np.uint8)


@pytest.mark.parametrize(
    ("env", "config", "kind", "preprocessing", "says"),
    [
        ("CartPole-v1", {}, "sync", Atari(True), "--atari needs an Atari game such as PongNoFrameskip-v4"),
        (PONG, {"frameskip": 4}, "sync", Atari(True), "--atari needs single frames of PongNoFrameskip-v4"),
        (PONG, {}, "native", None, "plays PongNoFrameskip-v4 preprocessed: add --atari"),
        (PONG, {"mode": 3}, "native", Atari(True), "--env_config does not fit the native PongNoFrameskip-v4"),
    ],
)
def test_what_cannot_be_preprocessed_is_refused(env, config, kind, preprocessing, says):
    with pytest.raises(UsageError, match=says):
        make_vector_env(env, config, 1, kind, autoreset="same_step", wrappers=Wrappers(preprocessing))
