"""params.json says what computed the updates of each stage, over all processes that a run went on in."""

from __future__ import annotations

import json
from types import SimpleNamespace

from tiny_runs import fit, make_data, make_policy

from lit_rl.loggers.params import note_updates, write_params
from lit_rl.loggers.paths import Paths


def updates(folder):
    return json.loads((folder / "params.json").read_text())["updates"]


def test_it_says_why_nothing_was_native(tmp_path):
    write_params(tmp_path, {"lr": 0.1})
    data = make_data()
    fit(make_policy(data, compile=False), data, 1, [Paths(tmp_path, "stage1")])
    fit(make_policy(data), data, 1, [Paths(tmp_path, "stage2")])
    entry = {"from_update": 0, "path": "eager"}
    assert updates(tmp_path)["stage1"] == {"all": [entry | {"why": "--compile false"}]}
    assert updates(tmp_path)["stage2"]["all"][0]["why"] == "TORCH_COMPILE_DISABLE is set"


def test_a_run_that_goes_on_keeps_what_was_noted_up_to_its_checkpoint(tmp_path):
    write_params(tmp_path, {"lr": 0.1})
    first = {"from_update": 0, "path": "eager"}
    then = [{"from_update": 20, "path": "native"}, {"from_update": 90, "path": "eager", "why": "x"}]
    note_updates(tmp_path, "stage1", {"q": [first, *then]})
    write_params(tmp_path, {"lr": 0.2})  # as the process does that goes on
    now = {"from_update": 60, "path": "native"}
    policy = SimpleNamespace(updates=60, native=SimpleNamespace(history=lambda: {"q": [now]}))
    trainer = SimpleNamespace(is_global_zero=True)
    paths = Paths(tmp_path, "stage1")
    paths.on_train_start(trainer, policy)
    paths.on_train_batch_end(trainer, policy)
    assert updates(tmp_path) == {"stage1": {"q": [first, then[0], now]}}
    assert json.loads((tmp_path / "params.json").read_text())["lr"] == 0.2
