"""From one algorithm's policy to another's: what is carried over, what starts anew and is named, and what keeps it safe."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import pytorch_lightning as pl
import torch
from tiny_runs import Signs

import lit_rl
from lit_rl.checkpoint import load
from lit_rl.envs.vector import probe
from lit_rl.errors import UsageError
from lit_rl.lit_policy import LitPolicy

SMALL: dict[str, Any] = {
    "env": Signs,
    "env_config": {"start": None},
    "hidden_sizes": [8],
    "num_envs": 2,
    "step_per_epoch": 64,
    "max_epochs": 2,
    "steps_per_iteration": 32,
    "episode_per_test": 4,
    "num_test_envs": 2,
    "test_episodes": 4,
    "accelerator": "cpu",
    "enable_progress_bar": False,
    "logger": "false",
}
ON_POLICY: dict[str, Any] = {"rollout_length": 16}
REPLAY: dict[str, Any] = {"batch_size": 8, "learning_starts": 16, "random_steps": 16, "update_per_step": 0.5}


class Watch(pl.Callback):
    """Notes, by stage, the policy at the start, what moved with each iteration, and what was said to be anew."""

    def __init__(self) -> None:
        self.start: dict[int, dict[str, torch.Tensor]] = {}
        self.moved: dict[int, list[tuple[int, set[str]]]] = {1: [], 2: []}
        self.policies: dict[int, LitPolicy] = {}
        self.random_steps: dict[int, Any] = {}

    def on_train_start(self, trainer: pl.Trainer, pl_module: Any) -> None:
        self.start[pl_module.stage] = self._before = copied(pl_module)
        self.policies[pl_module.stage] = pl_module
        self.random_steps[pl_module.stage] = getattr(pl_module.algorithm.plan, "random_steps", None)

    def on_train_batch_end(self, trainer: pl.Trainer, pl_module: Any, *_: Any) -> None:
        now = copied(pl_module)
        moved = {name.partition(".")[0] for name, x in now.items() if not torch.equal(x, self._before[name])}
        self.moved[pl_module.stage].append((pl_module.updates, moved))
        self._before = now


def copied(policy: LitPolicy) -> dict[str, torch.Tensor]:
    return {name: x.detach().clone() for name, x in policy.policy.state_dict().items()}


def train(folder: Path, algo: str, step2: dict[str, Any], **settings: Any) -> tuple[dict[str, Any], Watch, Path]:
    watch = Watch()
    given = SMALL | {"algo": algo, "two_steps": True, "step2": step2, "callbacks": [watch]} | settings
    summary = lit_rl.train(output_dir=folder, experiment_name="run", **given)
    return summary, watch, folder / "run"


def kept(path: Path) -> dict[str, torch.Tensor]:
    state = load(path)["state_dict"]
    prefix = "average." if any(name.startswith("average.") for name in state) else "algorithm.policy."
    return {name.removeprefix(prefix): x for name, x in state.items() if name.startswith(prefix)}


@pytest.mark.parametrize(
    ("algo", "second", "anew"),
    [
        ("A2C", "PPO", []),
        ("PPO", "A2C", []),
        ("PG", "PPO", []),
        ("ES", "PPO", ["critic"]),
        ("TD3", "DDPG", ["critic"]),  # two critics are not one
    ],
)
def test_another_algorithm_goes_on_with_the_policy(algo, second, anew, tmp_path, capsys):
    own = ON_POLICY if algo in ("A2C", "PPO", "PG") else REPLAY if algo == "TD3" else {"members": 8}
    step2 = {"algo": second} | (REPLAY if second == "DDPG" else ON_POLICY) | {"steps_per_iteration": 32}
    activation = {"activation": "tanh"} if algo in ("ES",) else {}
    summary, watch, folder = train(tmp_path, algo, step2, **own, **activation)
    best, (start,) = kept(Path(summary["stage1"]["best_path"])), (folder / "stage2").glob("start-*.ckpt")
    assert float(start.stem.partition("=")[2]) == round(summary["stage1"]["best_score"], 2)
    carried = {n for n in best if n in watch.start[2] and n.partition(".")[0] not in anew}
    assert any(n.startswith("actor.") for n in carried)
    assert all(torch.equal(best[n], watch.start[2][n]) for n in carried)
    assert watch.policies[2].anew == anew
    said = [line for line in capsys.readouterr().out.splitlines() if line.startswith("stage 2: ") and "anew" in line]
    alone = ", alone for the first 200 updates"
    assert said == [f"stage 2: {part} starts anew{alone}: {algo} learns none to go on with" for part in anew]
    assert summary["stage2"]["updates"] > 0


def test_the_same_actions_come_out_at_the_start_of_stage_2(tmp_path):
    summary, _, folder = train(tmp_path, "A2C", {"algo": "PPO"} | ON_POLICY, **ON_POLICY)
    obs = np.random.default_rng(0).uniform(-1, 1, (50, 2)).astype(np.float32)
    (start,) = (folder / "stage2").glob("start-*.ckpt")
    one, two = (lit_rl.load_policy(path).act(obs) for path in (summary["stage1"]["best_path"], start))
    assert np.array_equal(one, two)


@pytest.mark.parametrize(
    ("algo", "step2", "message"),
    [
        (
            "A2C",
            {"algo": "PPO", "activation": "relu"},
            r"actor has .*Tanh\(\) in the first and .*ReLU\(\) in the second",
        ),
        ("A2C", {"algo": "PPO", "normalize_obs": True}, "norm.*is missing in the first"),
        ("A2C", {"algo": "SAC"}, "actor.*is missing in the (first|second)"),
    ],
)
def test_what_acts_must_match(algo, step2, message, tmp_path):
    with pytest.raises(UsageError, match=message):
        train(tmp_path / "out", algo, step2, **ON_POLICY)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("algo", "flags", "message"),
    [
        ("PPO", {"warmup_steps": 10}, "--warmup_steps 10 fills a replay buffer, and PPO has none: leave it out"),
        ("PPO", {"critic_warmup": -1}, "--critic_warmup -1 is out of range"),
        ("PPO", {"anchor": -1.0}, "--anchor -1.0 is out of range"),
        ("PPO", {"anchor": [[5, 1.0], [2, 0.0]]}, "anchor has its points at the env steps"),
        ("DQN", {"critic_warmup": 5}, "--critic_warmup 5: DQN has no critic beside its policy: leave it out"),
        ("ES", {"anchor": 0.1}, "--anchor 0.1: ES learns from no observations to hold its policy at"),
        (
            "SAC",
            {"warmup_steps": 7, "step2": {"learning_starts": 9}},
            "--warmup_steps 7 and --step2: learning_starts 9",
        ),
        ("PPO", {"anchor": 0.1, "two_steps": False}, "--anchor is a setting of the second stage: add --two_steps"),
    ],
)
def test_what_cannot_be_is_refused_in_one_line(algo, flags, message, tmp_path):
    given = SMALL | {"algo": algo, "two_steps": True, "output_dir": tmp_path / "out"} | flags
    given |= {"env_config": {"start": 0 if algo == "DQN" else None}, "steps_per_iteration": 64}
    with pytest.raises(UsageError, match=message) as error:
        lit_rl.train(**given)
    assert "\n" not in str(error.value) and not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("algo", "own"), [("PPO", ON_POLICY | {"batch_size": 16, "epochs_per_rollout": 2}), ("SAC", REPLAY)]
)
def test_the_policy_is_frozen_while_the_critic_learns(algo, own, tmp_path):
    for updates, moves in ((20, {"critic"}), (24, {"actor", "critic"})):
        step2 = {"max_steps": updates, "max_epochs": -1, "critic_warmup": 20}
        _, watch, _ = train(tmp_path / str(updates), algo, step2, max_epochs=1, **own)
        assert watch.moved[2][-1][0] == updates
        moved = {name for _, parts in watch.moved[2] for name in parts}
        assert moved - {"log_alpha"} == moves and ("log_alpha" in moved) == (algo == "SAC" and updates > 20)


def test_a_critic_learns_from_the_buffer_before_more_is_collected(tmp_path):
    _, watch, _ = train(tmp_path, "SAC", {}, critic_warmup=30, max_epochs=1, **REPLAY)
    iterations = [updates for updates, _ in watch.moved[2]]
    assert iterations == [30 + 16, 30 + 32], "16 updates an iteration of 32 env steps, and 30 at once"


def test_a_second_stage_does_not_act_at_random(tmp_path):
    _, watch, folder = train(tmp_path, "SAC", {"buffer_size": 300}, warmup_steps=40, **REPLAY)
    assert watch.random_steps == {1: 16, 2: 0}
    params = json.loads((folder / "params.json").read_text())
    assert params["stage2"]["algorithm"]["random_steps"] == 0
    assert params["stage2"]["algorithm"]["learning_starts"] == 40, "the emptied buffer is filled by the policy"
    _, watch, _ = train(tmp_path / "typed", "SAC", {"random_steps": 8}, **REPLAY)
    assert watch.random_steps == {1: 16, 2: 8}


def test_the_anchor_is_the_best_policy_of_stage_1_and_goes_through_a_resume(tmp_path):
    settings = ON_POLICY | {"exact_resume": True, "anchor": [[0, 1.0], [200, 0.1]], "critic_warmup": 3}
    settings |= {"average_weights_2": None, "lr": 1e-2}
    _, watch, folder = train(tmp_path / "whole", "PPO", {}, max_epochs_2=3, **settings)
    anchored = load(folder / "stage2" / "last.ckpt")["first"]
    assert all(torch.equal(x, watch.start[2][name]) for name, x in anchored.items())
    assert any(not torch.equal(x, watch.policies[2].policy.state_dict()[name]) for name, x in anchored.items())
    assert "first" not in load(folder / "best.ckpt")
    _, _, cut = train(tmp_path / "cut", "PPO", {}, max_epochs_2=1, **settings)
    lit_rl.train(output_dir=tmp_path / "cut", experiment_name="run", env=Signs, resume=True, max_epochs_2=3)
    one, two = (load(run / "stage2" / "last.ckpt") for run in (folder, cut))
    assert all(torch.equal(x, two["state_dict"][name]) for name, x in one["state_dict"].items())
    rows = [json.loads(line) for line in (cut / "result.json").read_text().splitlines()]
    assert [row["Train/anchor_kl"] > 0 for row in rows if row["stage"] == 2] == [True] * 3
    with pytest.raises(UsageError, match="--anchor 0.5 would change what was learned"):
        lit_rl.train(output_dir=tmp_path / "cut", experiment_name="run", env=Signs, resume=True, anchor=0.5)


def test_plain_lightning_has_the_same(tmp_path):
    spaces = probe(Signs, {"start": 0})
    first = LitPolicy("PG", spaces, hidden_sizes=[8], baseline=False)
    second = LitPolicy("PPO", spaces, stage=2, hidden_sizes=[8], anchor=0.1, critic_warmup_lr=1e-2)
    assert second.warmup == 0
    second.start_from(first)
    assert (second.anew, second.warmup) == (["critic"], 200)
    obs = torch.randn(9, 2)
    assert torch.equal(second.policy.act(obs).action, first.policy.act(obs).action)
    assert isinstance(spaces.action, gym.spaces.Discrete)
