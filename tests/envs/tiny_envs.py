"""Tiny environments that each do one thing that real ones do, some of it wrong."""

from __future__ import annotations

import os
import time

import gymnasium as gym
import numpy as np

FLAT = gym.spaces.Box(-100.0, 100.0, (2,), np.float32)


class Counting(gym.Env):
    """Observes (episode, step of it); ends after ``length`` steps, by truncation with ``truncates``."""

    observation_space = FLAT
    action_space = gym.spaces.Discrete(2)

    def __init__(self, length=3, truncates=False, reward=1.0):
        self.length, self.truncates, self.reward = length, truncates, reward
        self.episode = self.t = 0

    def obs(self):
        return np.array([self.episode, self.t], np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.episode += 1
        self.t = 0
        return self.obs(), {}

    def step(self, action):
        self.t += 1
        ended = self.t >= self.length
        return self.obs(), self.reward, ended and not self.truncates, ended and self.truncates, {}


class Reusing(Counting):
    """Writes all its observations into one array."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.array = np.zeros(2, np.float32)

    def obs(self):
        self.array[:] = self.episode, self.t
        return self.array


class Stopping(Counting):
    """Raises StopIteration at its third step."""

    def step(self, action):
        if self.t == 2:
            next(iter(()))
        return super().step(action)


class Unpicklable(Exception):
    def __init__(self, one, two):
        super().__init__(one)


class Crashing(Counting):
    """Raises an error that cannot be rebuilt from one argument."""

    def step(self, action):
        raise Unpicklable("bad", "luck")


class Dying(Counting):
    """Its process ends without a word."""

    def step(self, action):
        os._exit(7)


class Sleeping(Counting):
    """A step takes a minute."""

    def step(self, action):
        time.sleep(60)
        return super().step(action)


class FromThree(Counting):
    """Actions 3 and 4; rewards the action itself."""

    action_space = gym.spaces.Discrete(2, start=3)

    def step(self, action):
        assert self.action_space.contains(action), action
        self.reward = int(action)
        return super().step(action)


class WrongLater(Counting):
    """Its third observation has another shape."""

    def obs(self):
        return super().obs() if self.t < 2 else np.zeros(1, np.float32)


class Masking(Counting):
    """Tells a mask of its three actions in info: step t forbids action t % 3."""

    action_space = gym.spaces.Discrete(3)

    def __init__(self, masks=None, **kwargs):
        super().__init__(**kwargs)
        self.masks = masks

    def mask(self):
        return np.array(self.masks[self.t]) if self.masks else (np.arange(3) != self.t % 3).astype(np.int8)

    def reset(self, *, seed=None, options=None):
        obs, _ = super().reset(seed=seed)
        return obs, {"action_mask": self.mask(), "kept": 5}

    def step(self, action):
        obs, reward, terminated, truncated, _ = super().step(action)
        return obs, reward, terminated, truncated, {"action_mask": self.mask()}


class MaskShown(Counting):
    """Has the mask in its Dict observation."""

    observation_space = gym.spaces.Dict({"here": FLAT, "action_mask": gym.spaces.MultiBinary(2)})

    def obs(self):
        return {"here": super().obs(), "action_mask": np.array([self.t < self.length, 0], np.int8)}


class Parts(Counting):
    """Two actions at once, masked part by part."""

    action_space = gym.spaces.MultiDiscrete([2, 3])

    def reset(self, *, seed=None, options=None):
        return super().reset(seed=seed)[0], {"action_mask": (np.array([1, 0], np.int8), np.array([0, 1, 1], np.int8))}


class Texting(Counting):
    observation_space = gym.spaces.Text(5)


class WrongShape(Counting):
    def obs(self):
        return np.zeros(3, np.float32)


def make_counting(length=3):
    return Counting(length=length)


not_an_env = dict
