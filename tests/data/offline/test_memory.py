"""A data set of a million steps trains in bounded memory."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

MILLION = """
import json, resource, sys, time
import gymnasium as gym, numpy as np, pytorch_lightning as pl
from lit_rl import ExperienceDataModule, LitPolicy
from lit_rl.data.offline.writers import open_writer
from lit_rl.data.transitions import Trajectory
from lit_rl.envs.spaces import Spaces

path, steps, length = sys.argv[1], int(sys.argv[2]), 1000
spaces = Spaces(gym.spaces.Box(-10, 10, (64,), np.float32), gym.spaces.Discrete(4))
rng = np.random.default_rng(0)
writer = open_writer(path, spaces)
for i in range(steps // length):
    obs = rng.normal(size=(length + 1, 64)).clip(-10, 10).astype(np.float32)
    action = (obs[:-1, 0] > 0) + 2 * (obs[:-1, 1] > 0)
    writer.write(Trajectory(i, None, obs, action, np.ones(length), True, False, None, None))
writer.close()


def megabytes():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def fit(limit):
    data = ExperienceDataModule(None, input=path, window_mb=16, step_per_epoch=limit, validation_fraction=0.002)
    policy = LitPolicy("BC", data.spaces)
    quiet = {"enable_progress_bar": False, "enable_model_summary": False, "enable_checkpointing": False}
    pl.Trainer(max_epochs=1, logger=False, num_sanity_val_steps=0, **quiet).fit(policy, datamodule=data)
    return data, policy


before = megabytes()  # with everything imported and a batch of episodes written
started = time.perf_counter()
data, policy = fit(2000)
window = data.source.windows[0]
found = {"before": before, "after": megabytes(), "steps": data.data_set(path).steps, "seconds": time.perf_counter() - started}
print(json.dumps(found | {"read": window.read, "f1": policy.reported["Eval/f1"]}))
"""


@pytest.mark.slow
def test_a_million_steps_of_64_numbers_pass_through_16_megabytes(tmp_path):
    argv = [sys.executable, "-W", "ignore", "-c", MILLION, f"minari-path:{tmp_path}/large-v0", "1000000"]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["steps"] == 1_000_000  # 256 MB
    assert found["after"] - found["before"] < 128, found  # torch and Lightning at work included
    assert found["read"] > 500 and found["f1"] > 0.9, found
