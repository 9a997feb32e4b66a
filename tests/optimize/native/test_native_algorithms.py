"""The native updates of every algorithm, and what a build may meet. Each graph takes ten seconds to build and more."""

from __future__ import annotations

import copy
import json
import os
import resource
import subprocess
import sys
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from algorithms.tester import AlgorithmTester
from tiny_runs import DQN

from lit_rl.algorithms import find_algorithm
from lit_rl.algorithms.base import Algorithm, Progress
from lit_rl.data.transitions import Transitions
from lit_rl.envs.spaces import Spaces
from lit_rl.optimize import GradientStep, NativeGradient
from lit_rl.optimize.native import native
from lit_rl.optimize.native.cache import Cache
from lit_rl.optimize.native.process import BuilderProcess

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[3]
RAINBOW = {
    "dueling": True,
    "n_step": 3,
    "prioritized": True,
    "noisy": True,
    "num_atoms": 11,
    "v_min": 0.0,
    "v_max": 2.0,
}
CASES: dict[str, tuple[str, str, dict[str, Any]]] = {
    "DQN": ("DQN", "discrete", {}),
    "Rainbow": ("DQN", "discrete", RAINBOW),
    "PPO": ("PPO", "discrete", {"clip": [[0, 0.3], [1000, 0.1]], "entropy_coeff": [[0, 0.1], [1000, 0.0]]}),
    "PPO, Box": ("PPO", "continuous", {"kl_coeff": 0.2, "vf_clip": 0.5, "normalize_obs": True, "share_torso": True}),
    "A2C": ("A2C", "discrete", {"entropy_coeff": [[0, 0.1], [1000, 0.0]]}),
    "PG": ("PG", "continuous", {"entropy_coeff": [[0, 0.1], [1000, 0.0]]}),
    "SAC": ("SAC", "continuous", {}),
    "SAC, discrete": ("SAC", "discrete", {}),
    "TD3": ("TD3", "continuous", {}),
    "DDPG": ("DDPG", "continuous", {}),
    "ES": ("ES", "discrete", {}),
}


@pytest.fixture(scope="module")
def one_builder(tmp_path_factory: pytest.TempPathFactory):
    """One process builds for all the tests, which saves it from starting each time."""
    before = os.environ["XDG_CACHE_HOME"]
    os.environ["XDG_CACHE_HOME"] = str(tmp_path_factory.mktemp("libraries"))
    process = BuilderProcess(Cache().folder)
    close, process.close = process.close, lambda: None
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(native, "BuilderProcess", lambda folder: process)
        yield
    close()
    os.environ["XDG_CACHE_HOME"] = before


@pytest.mark.parametrize("case", CASES)
def test_native_and_eager_agree_after_100_updates(one_builder, case):
    name, kind, settings = CASES[case]
    tester = AlgorithmTester(name)
    tester.settings |= settings
    policy = tester.run(kind, limits={"compile": False})
    data: Any = policy.trainer.datamodule  # type: ignore[attr-defined]
    batches = []
    while len(batches) < 10:
        batches += data.source.experience(policy.policy).minibatches()
    assert_agree_after_100_updates(policy.algorithm, batches)


@pytest.mark.parametrize("name", ["BC", "MARWIL"])
def test_native_and_eager_agree_after_100_updates_on_recorded_episodes(one_builder, name):
    kind = find_algorithm(name)
    torch.manual_seed(0)
    box = gym.spaces.Box(-1, 1, (2,), np.float32)
    algorithm = kind(Spaces(box, gym.spaces.Discrete(3)), kind.Config(hidden_sizes=[32], lr=5e-3))
    obs, next_obs = torch.randn(2, 10, 32, 2)
    rest = torch.randint(3, (10, 32)), torch.randn(10, 32), torch.full((10, 32), 0.9), next_obs, torch.ones(10, 32)
    assert_agree_after_100_updates(algorithm, [Transitions(*fields) for fields in zip(obs, *rest, strict=True)])


def assert_agree_after_100_updates(one: Algorithm, batches: list[Any]) -> None:
    other = copy.deepcopy(one)
    natively, eagerly = stepping(one, True), stepping(other, False)
    for update in range(100):  # over which every schedule changes
        progress = Progress(update, 10 * update)
        for algorithm, optimize in ((one, natively), (other, eagerly)):
            for group, lr in algorithm.learning_rates(progress.env_steps).items():
                optimize.set_lr(group, lr)
            algorithm.update(batches[update % 10], optimize, progress)
    history = natively.gradient.history()
    assert history.keys() == one.groups().keys()
    assert all(entry["path"] == "native" for entries in history.values() for entry in entries), history
    expected = dict(other.named_parameters())
    for weight, x in one.named_parameters():
        torch.testing.assert_close(x, expected[weight], rtol=0, atol=1e-5, msg=lambda m, n=weight: f"{n}: {m}")


def stepping(algorithm: Algorithm, compile: bool) -> GradientStep:
    config = algorithm.config
    optimize = GradientStep(
        algorithm.groups(), *algorithm.optimizer(), config.gradient_clip_val, config.gradient_clip_algorithm
    )
    optimize.gradient = NativeGradient(compile)
    return optimize


def command(folder: Path, *arguments: str) -> list[str]:
    small = [f"--{name}={json.dumps(value)}" for name, value in DQN.items()]
    numbers = ["--step_per_epoch", "40", "--episode_per_test", "2", "--test_episodes", "2", "--max_epochs", "2"]
    quiet = ["--accelerator", "cpu", "--logger", "false", "--enable_progress_bar", "false", "--output_dir", str(folder)]
    env = ["--env", "tiny_runs:Signs", "--compile", "true"]
    return [sys.executable, str(ROOT / "train.py"), *env, *small, *numbers, *quiet, *arguments]


def environment(folder: Path, **more: str) -> dict[str, str]:
    paths = {"PYTHONPATH": f"{ROOT}:{ROOT / 'tests'}", "XDG_CACHE_HOME": str(folder / "cache")}
    return os.environ | paths | {"OMP_NUM_THREADS": "1"} | more


def updates_of(folder: Path, name: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads((folder / name / "params.json").read_text())["updates"]["stage1"]["q"]
    return found


def test_two_runs_that_build_the_same_at_once_build_it_once(tmp_path):
    runs = [
        subprocess.Popen(command(tmp_path, "--experiment_name", name), env=environment(tmp_path), cwd=tmp_path)
        for name in ("one", "two")
    ]
    assert [run.wait(500) for run in runs] == [0, 0]
    assert len(list((tmp_path / "cache" / "lit_rl" / "native").iterdir())) == 1
    for name in ("one", "two"):
        assert updates_of(tmp_path, name) == [{"from_update": 0, "path": "native"}]


def test_without_a_compiler_the_run_goes_on_eager_and_says_so_in_one_line(tmp_path):
    run = subprocess.run(
        command(tmp_path, "--experiment_name", "x"),
        env=environment(tmp_path, CXX="/nowhere/g++", PATH="/nowhere"),
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=500,
    )
    assert run.returncode == 0, run.stderr
    (said,) = [line for line in run.stderr.splitlines() if "eager" in line]
    assert "there is no C++ compiler" in said
    assert updates_of(tmp_path, "x")[0]["path"] == "eager"


def test_on_a_full_disk_the_run_goes_on_eager_and_says_so_in_one_line(tmp_path, monkeypatch):
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    start = subprocess.Popen

    def limited(*arguments: Any, **settings: Any) -> Any:
        resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, limits[1]))  # no file may be larger than a library is
        try:
            return start(*arguments, **settings)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(subprocess, "Popen", limited)
    policy = AlgorithmTester("ES").run("discrete", limits={"compile": False})
    with pytest.warns(match="updates of actor stay eager: ") as said:
        AlgorithmTester("ES").run("discrete", limits={"compile": True})
    assert len([w for w in said if "eager" in str(w.message)]) == 1
    assert policy.updates and not list(Cache().folder.glob("*.pt2"))
