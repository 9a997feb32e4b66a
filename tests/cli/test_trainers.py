"""The Python API that RLlib's users know: an epoch at a time, on the same LitPolicy and data as every run."""

from __future__ import annotations

import json
import math
import shutil
import signal
from pathlib import Path

import numpy as np
import pytest
import torch
from tiny_runs import Signs

import lit_rl
from lit_rl import A2CTrainer, DQNTrainer
from lit_rl.algorithms import MODULES
from lit_rl.checkpoint import load
from lit_rl.cli.trainers import TRAINERS
from lit_rl.data.hooks import Hooks
from lit_rl.errors import UsageError

CONFIG = {
    "hiddens": [8],
    "learning_starts": 0,
    "sample_batch_size": 2,
    "num_envs_per_worker": 2,
    "train_batch_size": 8,
    "buffer_size": 400,
    "timesteps_per_iteration": 40,
    "evaluation_num_episodes": 3,
    "exploration_fraction": 0.004,
    "lr": 3e-3,
    "gamma": 0.5,
    "num_workers": 0,
    "num_gpus": 0,
    "tuned": False,
    "logger": "false",
    "seed": 4,
}


def make(tmp_path, name="a", **config):
    return DQNTrainer(env=Signs, config=CONFIG | config, output_dir=tmp_path, experiment_name=name)


def weights(trainer) -> torch.Tensor:
    return torch.cat([p.detach().reshape(-1).clone() for p in trainer.session.policy.algorithm.parameters()])


def test_ten_times_train_is_one_run_of_ten_epochs(tmp_path):
    trainer = make(tmp_path)
    results = [trainer.train() for _ in range(10)]
    lit_rl.train(
        config=CONFIG,
        env=Signs,
        output_dir=tmp_path,
        experiment_name="whole",
        max_epochs=10,
        enable_progress_bar=False,
        test_episodes=2,
    )
    whole = load(tmp_path / "whole" / "stage1" / "last.ckpt")
    stepped = load(trainer.save())
    for name, value in whole["state_dict"].items():
        assert torch.equal(value, stepped["state_dict"][name]), name
    assert whole["progress"]["updates"] == stepped["progress"]["updates"] == results[-1]["info"]["num_updates"]
    rows = [(tmp_path / run / "result.json").read_text().splitlines() for run in ("a", "whole")]
    assert len(rows[0]) == len(rows[1]) == 10
    assert [r["training_iteration"] for r in results] == list(range(1, 11))
    trainer.stop()


def test_a_result_has_rllibs_keys(tmp_path):
    trainer = make(tmp_path)
    first, second = trainer.train(), trainer.train()
    assert (first["timesteps_total"], second["timesteps_total"], second["timesteps_this_iter"]) == (40, 80, 40)
    assert first["episodes_this_iter"] == 10 and first["episode_len_mean"] == 4.0
    assert 0 <= first["episode_reward_min"] <= first["episode_reward_mean"] <= first["episode_reward_max"] <= 4
    assert math.isfinite(first["info"]["loss"]) and first["info"]["num_updates"] == 10
    assert first["custom_metrics"] == {} and first["time_total_s"] > 0 and "time_this_iter_s" in first
    assert set(first["evaluation"]) >= {"episode_reward_mean", "episode_reward_min", "episode_len_mean"}
    again = trainer.evaluate()
    assert again["episode_reward_mean"] == pytest.approx(second["evaluation"]["episode_reward_mean"])
    assert trainer.iteration == 2
    trainer.stop()


def test_five_epochs_saved_and_restored_and_five_more_are_ten(tmp_path):
    whole, first, second = (make(tmp_path, name, exact_resume=True) for name in "abc")
    for _ in range(10):
        last = whole.train()
    for _ in range(5):
        first.train()
    second.restore(first.save())
    for _ in range(5):
        result = second.train()
    for name in ("training_iteration", "timesteps_total", "episode_reward_mean", "evaluation"):
        assert result[name] == last[name]
    assert torch.equal(weights(second), weights(whole))
    assert second.compute_action(np.ones(2)) == whole.compute_action(np.ones(2))


def test_settings_that_change_what_was_learned_are_refused_when_it_goes_on(tmp_path):
    trainer, other = make(tmp_path), make(tmp_path, "b", lr=1e-4)
    trainer.train()
    before = weights(other)
    with pytest.raises(UsageError, match="--lr 0.0001 would change what was learned so far"):
        other.restore(trainer.logdir)  # its newest full checkpoint
    assert other.iteration == 0 and torch.equal(weights(other), before)
    moved = shutil.copy(trainer.save(), tmp_path / "moved.ckpt")
    with pytest.raises(UsageError, match="--lr 0.0001 would change what was learned so far"):
        make(tmp_path, "c", lr=1e-4, restore=str(moved))
    assert not (tmp_path / "c").exists()
    checkpoint = load(moved)
    checkpoint["hyper_parameters"]["lit_rl"]["stage"] = 2
    torch.save(checkpoint, moved)
    same = make(tmp_path, "d")
    with pytest.raises(UsageError, match="is of a second stage"):
        same.restore(moved)
    assert torch.equal(weights(same), before)  # of the same seed


def test_a_restored_trainer_has_the_settings_of_the_run(tmp_path):
    trainer = make(tmp_path)
    trainer.train()
    other = DQNTrainer(env=Signs, restore=trainer.save(), output_dir=tmp_path, experiment_name="b")
    assert other.train()["training_iteration"] == 2
    assert other.session.policy.algorithm.config.lr == CONFIG["lr"]


def test_save_and_restore_go_on_to_the_same_weights(tmp_path):
    trainer = make(tmp_path, exact_resume=True)
    trainer.train()
    path = trainer.save()
    trainer.train()
    for other in (trainer, make(tmp_path, "b", exact_resume=True)):
        other.restore(path)
        assert other.iteration == 1
        if other is not trainer:  # what was restored and not gone on with is saved whole
            other.restore(other.save(tmp_path / "again.ckpt"))
        result = other.train()
        assert result["training_iteration"] == 2 and result["timesteps_total"] == 80
        assert result["timesteps_this_iter"] == 40
    assert torch.equal(weights(trainer), weights(other))


def test_what_was_saved_before_training_is_the_weights(tmp_path):
    first, second = make(tmp_path, seed=1), make(tmp_path, "b", seed=2)
    assert not torch.equal(weights(first), weights(second))
    second.restore(first.save())
    assert torch.equal(weights(first), weights(second))
    assert second.train()["training_iteration"] == 1


def test_compute_action_is_what_the_environment_takes(tmp_path):
    trainer = make(tmp_path)
    action = trainer.compute_action(np.array([1.0, 0.0], np.float32))
    assert isinstance(action, int) and action in (0, 1)
    batch = trainer.compute_action(np.zeros((5, 2), np.float32), explore=True)
    assert batch.shape == (5,)


def test_a_trainer_of_another_algorithm_is_refused_by_name(tmp_path):
    path = make(tmp_path).save()
    other = A2CTrainer(
        Signs, {"tuned": False, "logger": "false"}, output_dir=tmp_path, experiment_name="b", accelerator="cpu"
    )
    with pytest.raises(UsageError, match="holds a policy of DQN, not of A2C"):
        other.restore(path)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"config": {"num_workers": 4}}, "num_workers 4 .*: it needs workers"),
        ({"config": {"hidens": [4]}}, "nearest: hiddens"),
        ({"config": 3}, "config 3 is not allowed: give {setting: value, ...}, or the name of a file"),
        ({"config": {"run": "PPO"}}, "run is not allowed: DQNTrainer learns by DQN"),
        ({"two_steps": True}, "a second stage needs the whole run"),
        ({"num_samples": 2}, "a Trainer is one run"),
        ({"env": {"lr": 1}}, "config is given by its name"),
        ({"resume": True, "experiment_name": "x"}, "there is no run"),
        ({"restore": "nowhere.ckpt"}, "there is no checkpoint nowhere.ckpt"),
        ({"accelerator": "cpu", "devices": 2}, "one process learns here, not 2: give devices 1"),
        ({"accelerator": "quantum"}, "accelerator"),
    ],
)
def test_what_a_trainer_cannot_do_is_refused_before_anything_is_created(arguments, message, tmp_path):
    with pytest.raises(UsageError, match=message):
        DQNTrainer(**{"env": "CartPole-v1", "output_dir": tmp_path / "out"} | arguments)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("path", [None, 5, "", "nowhere", "/dev/null", "a\0b"])
def test_what_is_no_checkpoint_is_refused(path, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    trainer = make(tmp_path)
    with pytest.raises(UsageError):
        trainer.restore(path)
    assert trainer.iteration == 0


class Interrupted(Hooks):
    def on_episode_end(self, episode):
        signal.raise_signal(signal.SIGINT)


def test_ctrl_c_is_pythons_own(tmp_path):
    trainer = DQNTrainer(env=Signs, config=CONFIG, output_dir=tmp_path, experiment_name="a", hooks=Interrupted())
    with pytest.raises(KeyboardInterrupt):
        trainer.train()
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_every_algorithm_has_a_trainer():
    assert set(TRAINERS) == set(MODULES)
    for name, trainer in TRAINERS.items():
        assert getattr(lit_rl, f"{name}Trainer") is trainer


def test_an_absolute_path_to_ones_own_checkpoint_takes_back_the_rows_after_it(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    trainer = make(Path("runs"))
    trainer.train()
    path = Path(trainer.save()).resolve()
    trainer.train()
    trainer.restore(path)
    trainer.train()
    rows = (Path(trainer.logdir) / "result.json").read_text().splitlines()
    assert [json.loads(row)["epoch"] for row in rows] == [0, 1]
    trainer.stop()


def test_targets_begin_at_the_weights_of_ckpt_path(tmp_path):
    first = make(tmp_path)
    first.train()
    path = first.save()
    second = make(tmp_path, "b", ckpt_path=path)
    q, target = second.session.policy.policy.actor, second.session.policy.algorithm.target
    for name, weight in q.state_dict().items():
        assert torch.equal(weight, target.state_dict()[name])
