"""Learning runs of minutes, with a fixed seed and a generous margin."""

from __future__ import annotations

import pytest

from lit_rl import train


@pytest.mark.slow
def test_sac_learns_pendulum(tmp_path):
    summary = train(
        algo="SAC",
        env="Pendulum-v1",
        max_epochs=10,
        seed=0,
        hidden_sizes=[64, 64],
        output_dir=tmp_path,
        enable_progress_bar=False,
    )
    assert summary["test"]["return_mean"] > -250  # the zoo's reference is -157; a random policy gets about -1,200
