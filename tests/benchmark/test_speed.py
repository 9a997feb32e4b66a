"""No slower than it was, as ratios to what the machine can do at the same moment in the same process.

`pytest -m benchmark` runs these, on a quiet machine. A limit is about 1.5 times what is reached (docs/benchmark.md).
"""

from __future__ import annotations

import time

import pytest
import torch
from bench.collecting import STEPS, collector, measure
from bench.floor import bare_acting, bare_env, bare_update
from bench.workloads import WORKLOADS

from lit_rl import ExperienceDataModule, LitPolicy
from lit_rl.algorithms.base import Progress
from lit_rl.data.collector import Collector
from lit_rl.envs.vector import make_vector_env
from lit_rl.optimize import GradientStep

pytestmark = pytest.mark.benchmark


def fastest(runs, seconds=4.0):
    """µs of the fastest call of each, called in turn."""
    best = dict.fromkeys(runs, float("inf"))
    for run in runs.values():
        run()
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        for name, run in runs.items():
            began = time.perf_counter()
            run()
            best[name] = min(best[name], 1e6 * (time.perf_counter() - began))
    return best


@pytest.mark.parametrize(("name", "limit"), [("W1", 4.0), ("W2", 7.0), ("W3", 6.0), ("W5", 9.0)])
def test_an_eager_update_stays_near_its_matrix_products(name, limit):
    torch.set_num_threads(1)
    workload = WORKLOADS[name]
    settings = {
        key: value for key, value in workload.ours.items() if key not in ("algo", "step_per_epoch", "matmul_precision")
    }
    data = ExperienceDataModule(workload.env, num_envs=workload.num_envs)
    algorithm = LitPolicy(workload.ours["algo"], data.spaces, **settings).algorithm
    envs = make_vector_env(workload.env, {}, workload.num_envs, "sync", autoreset="same_step")
    seeds = list(range(workload.num_envs))
    made = Collector(envs, data.spaces, lambda _: seeds, torch.Generator(), workload.num_envs)
    source = algorithm.plan.fit(workload.ours["step_per_epoch"], workload.num_envs).make_source(made, 0, 1)
    optimize = GradientStep(algorithm.groups(), *algorithm.optimizer(), algorithm.config.gradient_clip_val)
    batch = None
    while batch is None:
        batch = next(iter(source.experience(algorithm.policy).minibatches()), None)
    assert len(batch.action) == workload.batch
    progress = Progress(0, 20_000)
    best = fastest({"update": lambda: algorithm.update(batch, optimize, progress), "floor": bare_update(workload)})
    assert best["update"] < limit * best["floor"], best


@pytest.mark.parametrize(("envs", "limit"), [(1, 2.5), (8, 2.0)])
def test_collecting_stays_near_the_bare_envs(envs, limit):
    torch.set_num_threads(1)
    collect, env, act = collector(envs, "sync"), bare_env("CartPole-v1", envs), bare_acting([4, 64, 64, 2], envs)
    runs = {"collect": lambda: collect(STEPS * envs), "env": lambda: [env() for _ in range(STEPS)]}
    best = fastest(runs | {"act": lambda: [act() for _ in range(STEPS)]})
    assert best["collect"] < limit * (best["env"] + best["act"]), best


@pytest.mark.parametrize("envs", [8, 64, 512])
def test_collecting_from_native_envs_costs_little_more_than_they_do(envs):
    torch.set_num_threads(1)
    best = measure(envs)
    assert best["collect"] < 1.3 * (best["env"] + best["act"]), best
