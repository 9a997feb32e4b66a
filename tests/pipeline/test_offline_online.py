"""Stage 1 learns from recorded episodes what stage 2 improves in the environment."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from recorded_episodes import balance, record
from tiny_runs import Signs, make_trainer

import lit_rl
from lit_rl.algorithms.borrowed import borrowed_policy
from lit_rl.checkpoint import load
from lit_rl.datamodule import ExperienceDataModule
from lit_rl.errors import UsageError
from lit_rl.lit_policy import LitPolicy

ROOT = Path(__file__).parents[2]
QUICK: dict[str, Any] = {"lr": 5e-3, "gamma": 0.5, "batch_size": 32}
SMALL: dict[str, Any] = QUICK | {
    "env": Signs,
    "num_envs": 2,
    "step_per_epoch": 60,
    "steps_per_iteration": 60,
    "max_epochs": 2,
    "episode_per_test": 5,
    "num_test_envs": 5,
    "test_episodes": 5,
    "accelerator": "cpu",
    "enable_progress_bar": False,
    "logger": "false",
}
REPLAY: dict[str, Any] = {"learning_starts": 16, "hidden_sizes": [16], "update_per_step": 0.5}
ROLLOUT: dict[str, Any] = {"rollout_length": 16, "hidden_sizes": [16]}
# stage 1, stage 2 with its settings, whether actions are continuous, and what stage 2's policy starts anew
PAIRS: list[tuple[str, dict[str, Any], bool, list[str]]] = [
    ("BC", {"algo": "PPO"} | ROLLOUT, False, ["critic"]),
    ("MARWIL", {"algo": "PPO"} | ROLLOUT, False, []),
    ("BC", {"algo": "SAC"} | REPLAY, True, ["critic"]),
    ("IQL", {"algo": "SAC"} | REPLAY, True, []),
    ("IQL", {"algo": "TD3"} | REPLAY, True, []),
    ("CQL", {"algo": "DQN"} | REPLAY, False, []),
    ("DQN", REPLAY, False, []),
    ("IQL", REPLAY, False, []),
]


def train(folder: Path, data: str, **settings: Any) -> dict[str, Any]:
    found: dict[str, Any] = lit_rl.train(
        **(SMALL | {"input": data, "output_dir": folder, "experiment_name": "run"} | settings)
    )
    return found


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """Recorded answers, by whether they are continuous."""
    folder = tmp_path_factory.mktemp("data")
    return {
        continuous: record(folder / f"{continuous}.jsonl", 40, start=None if continuous else 0)
        for continuous in (False, True)
    }


@pytest.mark.parametrize(
    ("algo", "step2", "continuous", "anew"), PAIRS, ids=lambda x: x.get("algo") if isinstance(x, dict) else str(x)
)
def test_stage_2_acts_at_first_as_the_best_of_stage_1(algo, step2, continuous, anew, data, tmp_path, capsys):
    step2 = {"step_per_epoch": 64, "steps_per_iteration": 32, "max_epochs": 2} | step2
    env_config = {"start": None if continuous else 0}
    hidden = {"hidden_sizes": [16]} if "algo" not in step2 else {}
    summary = train(tmp_path, data[continuous], algo=algo, env_config=env_config, two_steps=True, step2=step2, **hidden)
    one, two, run = summary["stage1"], summary["stage2"], tmp_path / "run"
    assert one["env_steps"] == 0 and one["updates"] == 120 and two["env_steps"] == 128 and two["updates"] > 0
    (start,) = (run / "stage2").glob("start-return=*.ckpt")
    assert float(start.stem.partition("=")[2]) == round(one["best_score"], 2)
    obs = np.random.default_rng(0).uniform(-1, 1, (60, 2)).astype(np.float32)
    first, second = (lit_rl.load_policy(path) for path in (one["best_path"], start))
    np.testing.assert_array_equal(first.act(obs), second.act(obs))
    assert type(first.policy) is type(second.policy), "stage 1 learns the policy of stage 2"
    said = [line.split(" starts anew")[0] for line in capsys.readouterr().out.splitlines() if " starts anew" in line]
    assert said == [f"stage 2: {part}" for part in anew]
    assert two["best_score"] >= one["best_score"]
    refine = json.loads((run / "params.json").read_text())["stage2"]
    on_policy = step2.get("algo") == "PPO"
    assert refine["refine"]["offline_fraction"] == (0.0 if on_policy else 0.5)
    assert refine["refine"]["anchor"][0] == [0, 0.2] and refine["refine"]["anchor"][-1] == [64, 0.0]
    assert refine["algorithm"]["gamma"] == 0.5 and refine["mixed_in"] == (None if on_policy else data[continuous])


@pytest.mark.parametrize(
    ("algo", "continuous"),
    [("IQL", True), ("CQL", False), ("CQL", True), ("DQN", False), ("SAC", True)],
)
def test_a_replay_algorithm_learns_from_data_alone(algo, continuous, data, tmp_path):
    settings = {"hidden_sizes": [16], "step_per_epoch": 200, "steps_per_iteration": 100}
    settings |= {"cql_actions": 2} if algo == "CQL" else {}
    settings |= {"target_update_every": 10} if algo == "DQN" else {}
    summary = train(
        tmp_path,
        data[continuous],
        algo=algo,
        env_config={"start": None if continuous else 0},
        max_epochs=4,
        stop_return=3.6,
        **settings,
    )
    assert summary["stage1"]["best_score"] >= 3.6, "chance gets 2, the data 3.8"
    assert summary["stage1"]["env_steps"] == 0 and summary["stage1"]["updates"] % 200 == 0


def test_a_policy_that_was_borrowed_is_rebuilt_from_its_checkpoint(data, tmp_path):
    train(tmp_path, data[True], algo="BC", policy_of={"algo": "TD3", "hidden_sizes": [5]}, env_config={"start": None})
    path = tmp_path / "run" / "best.ckpt"
    saved = load(path)["hyper_parameters"]["lit_rl"]
    assert saved["algo"] == "BC" and saved["config"]["policy_of"] == {"algo": "TD3", "hidden_sizes": [5]}
    loaded = lit_rl.load_policy(path)
    wanted = borrowed_policy(loaded.spaces, saved["config"]["policy_of"]).state_dict()
    assert {n: x.shape for n, x in loaded.policy.state_dict().items()} == {n: x.shape for n, x in wanted.items()}


def test_plain_lightning_goes_from_data_into_the_environment(data):
    settings = QUICK | {"hidden_sizes": [16], "steps_per_iteration": 32}
    module = ExperienceDataModule(Signs, num_envs=2, step_per_epoch=64, episode_per_test=5, input=data[False])
    first = LitPolicy("IQL", module.spaces, **settings)
    make_trainer(2).fit(first, datamodule=module)
    assert (first.updates, module.env_steps) == (128, 0)
    module.input, module.mixed_in = None, data[False]
    more = {"learning_starts": 16, "random_steps": 0, "update_per_step": 0.5}
    second = LitPolicy("IQL", module.spaces, stage=2, offline_fraction=0.5, anchor=0.2, **settings, **more)
    second.start_from(first)
    for name, x in first.algorithm.value.state_dict().items():
        assert torch.equal(x, second.algorithm.value.state_dict()[name]), "what it has learned beside the policy"
    make_trainer(1).fit(second, datamodule=module)
    assert module.env_steps == 64 and second.updates > 0 and second.reported["Train/anchor_kl"] > 0
    own = second.algorithm.config.batch_size // 2
    (batch,) = module.source.sample(1)
    assert torch.isinf(batch.return_[:own]).all() and torch.isfinite(batch.return_[own:]).all()
    assert len(batch.reward) == 2 * own and batch.obs.shape == (2 * own, 2)


def test_half_of_each_minibatch_is_recorded_and_a_resume_goes_on_to_the_same_bits(data, tmp_path):
    settings = {"algo": "SAC", "two_steps": True, "exact_resume": True, "hidden_sizes": [16], "max_epochs": 1}
    settings |= {"env_config": {"start": None}, "average_weights_2": None, "anchor": 0.2}
    step2 = {"step_per_epoch": 64, "steps_per_iteration": 32, "learning_starts": 16}
    train(tmp_path / "whole", data[True], **settings, step2=step2, max_epochs_2=3)
    train(tmp_path / "cut", data[True], **settings, step2=step2, max_epochs_2=1)
    place = {"output_dir": tmp_path / "cut", "experiment_name": "run"}
    lit_rl.train(**place, resume=True, env=Signs, max_epochs_2=3)
    ends = [load(tmp_path / name / "run" / "stage2" / "last.ckpt") for name in ("whole", "cut")]
    for name, x in ends[0]["state_dict"].items():
        assert torch.equal(x, ends[1]["state_dict"][name]), name
    assert ends[0]["experience"]["recorded"] is not None
    assert ends[0]["progress"]["env_steps"] == 192


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"algo": "PPO"}, "--input: this algorithm learns from its own policy's experience alone"),
        (
            {"algo": "MARWIL", "two_steps": True, "step2": {"algo": "PPO"}, "offline_fraction": 0.5},
            "--offline_fraction 0.5: stage 2 has no replay buffer",
        ),
        ({"algo": "DQN", "two_steps": True, "offline_fraction": 1.0}, "--offline_fraction 1.0 is out of range"),
        (
            {"algo": "DQN", "two_steps": True, "input": None, "offline_fraction": 0.5},
            "--offline_fraction 0.5 mixes the data of stage 1 .* it needs an --input",
        ),
        (
            {"algo": "DQN", "two_steps": True, "step2": {"gamma": 0.9}},
            "values that stage 1 learns from data with gamma 0.5 are no use in stage 2 with gamma 0.9",
        ),
        ({"algo": "IQL", "two_steps": True, "step2": {"algo": "PPO"}}, "IQL learns action values"),
    ],
)
def test_what_cannot_be_is_refused_in_one_line(settings, message, data, tmp_path):
    with pytest.raises(UsageError, match=message) as error:
        train(tmp_path / "out", settings.pop("input", data[False]), **settings)
    assert "\n" not in str(error.value) and not (tmp_path / "out").exists()


def test_the_command_of_the_readme_learns_from_data_and_goes_on_in_the_environment(tmp_path):
    data = record(tmp_path / "cartpole.jsonl", 20, "CartPole-v1", act=balance, limit=100)
    command = ["--algo", "MARWIL", "--input", data, "--env", "CartPole-v1", "--two_steps", "--step2"]
    command += [
        '{"algo": "PPO", "max_epochs": 1, "step_per_epoch": 512}',
        "--max_epochs",
        "1",
        "--step_per_epoch",
        "100",
    ]
    command += [
        "--episode_per_test",
        "3",
        "--test_episodes",
        "3",
        "--output_dir",
        str(tmp_path),
        "--experiment_name",
        "run",
    ]
    environ = os.environ | {"PYTHONPATH": str(ROOT)}
    found = subprocess.run(
        [sys.executable, str(ROOT / "train.py"), *command], env=environ, capture_output=True, text=True, timeout=280
    )
    assert found.returncode == 0, found.stderr
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert (summary["stage1"]["env_steps"], summary["stage2"]["env_steps"]) == (0, 512)
    assert "best policy: " in found.stdout
