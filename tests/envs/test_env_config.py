from __future__ import annotations

import pytest

from lit_rl.envs.config import EnvConfig
from lit_rl.errors import UsageError


def test_the_default_is_one_cartpole():
    assert EnvConfig() == EnvConfig("CartPole-v1", {}, 1, "sync")


@pytest.mark.parametrize(
    "wrong",
    [
        {"env": ""},
        {"env": 3},
        {"env_config": None},
        {"env_config": {1: 2}},
        {"num_envs": 0},
        {"num_envs": True},
        {"num_envs": 2.0},
        {"num_envs": None},
        {"vector_env": "thread"},
        {"vector_env": None},
        {"frame_stack": 0},
        {"frame_stack": 256},
        {"frame_stack": True},
    ],
)
def test_values_that_cannot_be_meant_are_named(wrong):
    with pytest.raises(UsageError, match=next(iter(wrong))):
        EnvConfig(**wrong)
