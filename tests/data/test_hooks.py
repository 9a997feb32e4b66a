"""Hooks: told of every episode, step and batch of training, and free to change batches and results."""

from __future__ import annotations

import json

import numpy as np
import pytest
from tiny_runs import fit, make_data, make_policy

from lit_rl.cli import main
from lit_rl.data.hooks import Hooks, info_of, summarise
from lit_rl.errors import AlgorithmError
from lit_rl.lit_policy import LitPolicy
from lit_rl.loggers.records import Records, read_rows


class Diary(Hooks):
    """Writes down what it is told."""

    def __init__(self, note: str = "") -> None:
        self.told: list[str] = []
        self.note = note
        self.lengths: list[int] = []

    def before_collect(self, env_steps):
        self.told.append(f"collect {env_steps}")

    def on_episode_start(self, episode):
        assert episode.length == 0 and episode.obs.shape == (2,)
        episode.user_data["actions"] = 0

    def on_episode_step(self, episode):
        episode.user_data["actions"] += int(episode.action)
        assert episode.env.unwrapped.length == 4

    def on_episode_end(self, episode):
        assert episode.truncated and not episode.terminated
        self.lengths.append(episode.length)
        episode.custom_metrics["actions"] = episode.user_data["actions"]

    def on_sample_end(self, steps):
        steps.reward[:] = 0.5

    def on_train_result(self, result):
        result["note"] = self.note


class Breaks(Hooks):
    def on_episode_step(self, episode):
        raise KeyError("the hook's own mistake")


def test_hooks_follow_every_episode_and_their_metrics_are_logged(tmp_path):
    hooks = Diary("mine")
    data = make_data(hooks=hooks)
    policy = make_policy(data)
    fit(policy, data, 1, [Records(tmp_path)])
    (row,) = read_rows(tmp_path)
    assert hooks.told == [f"collect {n}" for n in range(0, 40, 4)]
    assert hooks.lengths == [4] * 10  # 40 env steps
    assert 0 <= row["Train/actions_min"] <= row["Train/actions_mean"] <= row["Train/actions_max"] <= 4
    assert row["note"] == "mine"
    buffer = data.source.buffer
    assert (buffer.reward[buffer.is_transition] == 0.5).all()  # changed before it was stored


class Halves(Hooks):
    """Rewrites what a rollout learns from."""

    def on_postprocess_traj(self, steps, batch):
        self.seen = len(batch.advantage), steps.reward.shape
        batch.advantage.zero_()
        return batch


def test_a_rollout_is_shown_with_its_advantages_before_it_is_learned_from():
    hooks = Halves()
    data = make_data(hooks=hooks)
    policy = LitPolicy("A2C", data.spaces, steps_per_iteration=20, rollout_length=10, entropy_coeff=0.0)
    fit(policy, data, 1)
    assert hooks.seen == (20, (10, 2))
    assert policy.reported["Train/policy_loss"] == 0.0


def test_what_a_hook_raises_names_it(tmp_path, capsys):
    data = make_data(hooks=Breaks())
    with pytest.raises(AlgorithmError, match=r"--hooks: Breaks.on_episode_step raised KeyError") as error:
        fit(make_policy(data), data, 1)
    assert "the hook's own mistake" in str(error.value)


def test_train_return_is_over_a_window_of_episodes():
    data = make_data(return_window=15)
    policy = make_policy(data)
    fit(policy, data, 2)
    assert policy.reported["Train/episodes"] == 10
    assert len(policy.epoch_metrics.window) == 15


def test_custom_metrics_are_summed_up_by_name():
    assert summarise([{"a": 1.0}, {"a": 3.0, "b": 2.0}]) == {
        "a_mean": 2.0,
        "a_min": 1.0,
        "a_max": 3.0,
        "b_mean": 2.0,
        "b_min": 2.0,
        "b_max": 2.0,
    }


def test_the_info_of_one_env_of_many():
    info = {"x": np.array([1, 2]), "_x": np.array([True, False]), "deep": {"y": np.array([3, 4])}, "final_obs": None}
    assert info_of(info, 0) == {"x": 1, "deep": {"y": 3}}
    assert info_of(info, 1) == {"deep": {"y": 4}}


@pytest.mark.parametrize(
    ("hooks", "message"),
    [
        ("nowhere:Hooks", "--hooks nowhere:Hooks cannot be imported"),
        ("tiny_runs:Signs", "--hooks tiny_runs:Signs is no lit_rl.Hooks: inherit from it"),
        ({"lit_rl:Hooks": {"size": 3}}, "--hooks lit_rl:Hooks cannot be made: TypeError"),
    ],
)
def test_hooks_that_are_none_are_refused_before_anything_is_created(hooks, message, tmp_path, capsys):
    argv = ["train", "--output_dir", str(tmp_path / "out"), "--config", json.dumps({"hooks": hooks, "max_epochs": 1})]
    assert main(argv) == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / "out").exists()
