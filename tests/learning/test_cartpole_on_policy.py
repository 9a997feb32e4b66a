"""The on-policy algorithms solve CartPole with the tuned settings that users get."""

from __future__ import annotations

import pytest

import lit_rl


@pytest.mark.slow
@pytest.mark.parametrize("algo", ["PG", "A2C", "PPO"])
def test_cartpole_is_solved(algo, tmp_path):
    summary = lit_rl.train(
        algo=algo, env="CartPole-v1", seed=0, stop_return=495, output_dir=str(tmp_path), logger="false"
    )
    assert summary["test"]["return_mean"] >= 450
