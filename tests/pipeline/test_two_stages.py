"""Both stages in one run: what is kept, what is carried over, what is tested, and what lies in the folder."""

from __future__ import annotations

import csv
import json
import os
import re
import resource
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from ladder import TINY, Ladder, MyLitPolicy, Script, copied
from tiny_runs import Signs

import lit_rl
from lit_rl.algorithms import MODULES, find_algorithm
from lit_rl.checkpoint import load
from lit_rl.envs.vector import probe
from lit_rl.errors import UsageError
from lit_rl.lit_policy import LitPolicy

ROOT = Path(__file__).parents[2]
SANITY, BEST_1, BEST_2 = 4, 3, 4  # actions; both bests are early ones
SCRIPT = {1: [1, BEST_1, 2], 2: [2, BEST_2, 1]}
LR_2 = 0.02
FILES = ["best.ckpt", "config.json", "curve.png", "params.json", "progress.csv", "result.json"]


class Run(NamedTuple):
    folder: Path
    summary: dict[str, Any]
    script: Script
    printed: str

    @property
    def rows(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in (self.folder / "result.json").read_text().splitlines()]

    def files(self, pattern: str) -> list[str]:
        return sorted(str(file.relative_to(self.folder)) for file in self.folder.glob(pattern))


def train(folder: Path, script: Script | None = None, **settings: Any) -> Run:
    """A tiny run, in this process."""
    environ = dict(os.environ)
    script = Script() if script is None else script
    place = {"output_dir": folder, "experiment_name": "run", "callbacks": [script]}
    summary = lit_rl.train(**(TINY | place | settings))
    os.environ.clear()
    os.environ.update(environ)
    return Run(folder / "run", summary, script, "")


@pytest.fixture(scope="module")
def refined(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    """A whole run, whose evaluations find 1 3 2 and then 2 4 1; before each stage a sanity check finds 4."""
    import contextlib
    import io

    with contextlib.redirect_stdout(io.StringIO()) as printed:
        run = train(
            tmp_path_factory.mktemp("refined"),
            Script(SCRIPT, in_sanity_check=SANITY),
            two_steps=True,
            lr_2=LR_2,
            num_sanity_val_steps=-1,
            logger="tensorboard",
        )
    yield run._replace(printed=printed.getvalue())


def bonus(run: Run) -> float:
    """What the five episodes of an evaluation get whatever the policy does."""
    return float(run.rows[0]["Eval/return"] - 2 * SCRIPT[1][0])


def weights(path: Path) -> dict[str, torch.Tensor]:
    found: dict[str, torch.Tensor] = load(path)["state_dict"]
    return found


def kept_policy(path: Path) -> dict[str, torch.Tensor]:
    """The weights of a file that count: the average where there is one."""
    found = weights(path)
    prefix = "average." if any(name.startswith("average.") for name in found) else "algorithm.policy."
    return {name.removeprefix(prefix): x for name, x in found.items() if name.startswith(prefix)}


def assert_same(one: dict[str, torch.Tensor], two: dict[str, torch.Tensor]) -> None:
    assert one.keys() == two.keys()
    for name, x in one.items():
        assert torch.equal(x, two[name]), name


# ---- each of these was broken in the script that two stages come from ----


def test_no_file_name_makes_a_folder(refined):
    assert sorted(p.name for p in refined.folder.iterdir() if p.is_dir()) == ["stage1", "stage2"]
    assert not [p for stage in ("stage1", "stage2") for p in (refined.folder / stage).iterdir() if p.is_dir()]


def test_the_files_of_stage_2_carry_the_score_that_was_logged(refined):
    logged = {row["epoch"]: row["Step2Eval/return"] for row in refined.rows if row["stage"] == 2}
    (file,) = refined.files("stage2/epoch=*.ckpt")
    epoch, score = re.fullmatch(r"stage2/epoch=(\d+)-return=([\d.]+)\.ckpt", file).groups()
    assert (int(epoch), score) == (1, f"{logged[1]:.2f}") and float(score) > 2 * BEST_2
    (start,) = refined.files("stage2/start-*.ckpt")
    assert start == f"stage2/start-return={2 * BEST_1 + bonus(refined):.2f}.ckpt"
    assert all("Step2Eval/return" not in row for row in refined.rows if row["stage"] == 1)
    assert all("Eval/return" not in row for row in refined.rows if row["stage"] == 2)


def test_the_second_policy_is_built_and_learns_with_lr_2(refined):
    first, second = refined.script.stages[1], refined.script.stages[2]
    assert second.policy is not first.policy and second.trainer is not first.trainer
    assert (first.policy.stage, second.policy.stage) == (1, 2)
    assert second.lrs == {LR_2} != first.lrs
    learns = {f"algorithm.{name}" for name, p in second.policy.algorithm.named_parameters() if p.requires_grad}
    assert learns and learns <= second.moved
    assert refined.summary["stage2"]["updates"] == 60 == second.trainer.global_step


def test_stage_2_starts_from_the_best_weights_of_stage_1(refined):
    begun = refined.script.stages[2].start
    (best,) = refined.files("stage1/epoch=1-*.ckpt")
    (start,) = refined.files("stage2/start-*.ckpt")
    best, start = refined.folder / best, refined.folder / start
    raw = {name.removeprefix("algorithm.policy."): x for name, x in begun.items() if "algorithm.policy." in name}
    assert_same(kept_policy(best), kept_policy(start))
    assert_same(weights(start), begun)
    assert_same(kept_policy(best), raw)
    target = {name: x for name, x in begun.items() if name.startswith("algorithm.target.")}
    assert target and all(torch.equal(x, begun[n.replace("target", "policy.actor")]) for n, x in target.items())
    last = kept_policy(refined.folder / "stage1" / "last.ckpt")
    assert not all(torch.equal(x, last[name]) for name, x in raw.items()), "the last ones are others"


def test_the_first_score_of_stage_2_is_the_best_one_of_stage_1(refined):
    (start,) = refined.files("stage2/start-*.ckpt")
    assert refined.summary["stage1"]["best_score"] == pytest.approx(2 * BEST_1 + bonus(refined))
    assert float(re.search(r"return=([\d.]+)\.ckpt", start)[1]) == round(refined.summary["stage1"]["best_score"], 2)


@pytest.mark.parametrize("name", MODULES)
def test_every_parameter_that_learns_is_in_the_optimizer_once(name):
    for config in ({"start": 2}, {"start": None}):
        try:
            policy = LitPolicy(name, probe(Signs, config))
        except UsageError:  # not for such actions
            continue
        flat = [p for group in policy.configure_optimizers().param_groups for p in group["params"]]
        places = sorted((p.data_ptr(), p.numel()) for p in policy.algorithm.parameters() if p.requires_grad)
        covered = sorted((p.data_ptr(), p.numel()) for p in flat)
        assert len({p.data_ptr() for p in flat}) == len(flat)
        assert sum(size for _, size in places) == sum(size for _, size in covered)
        for at, size in places:
            (home,) = [begin for begin, room in covered if begin <= at < begin + 4 * room]
            assert at + 4 * size <= home + 4 * dict(covered)[home]
        assert len({at for at, _ in places}) == len(places)


def test_the_best_score_counts_no_sanity_check_and_nothing_of_the_stage_before(refined):
    one, two = refined.summary["stage1"], refined.summary["stage2"]
    assert one["best_score"] == pytest.approx(2 * BEST_1 + bonus(refined)), "the sanity check found 4"
    assert two["best_score"] == pytest.approx(2 * BEST_2 + bonus(refined)), "as good as the sanity check of stage 1"
    assert len(refined.script.stages[1].evaluations) == len(refined.script.stages[2].evaluations) == 3


def test_patience_begins_anew_in_stage_2(tmp_path):
    run = train(
        tmp_path, Script({1: [3, 2, 1], 2: [2, 1, 0, 4]}), two_steps=True, max_epochs=9, patience=2, patience_2=3
    )
    assert run.summary["stage1"]["stop_reason"] == run.summary["stage2"]["stop_reason"] == "early_stopping"
    assert (run.summary["stage1"]["epochs"], run.summary["stage2"]["epochs"]) == (3, 3)


def test_the_two_stages_write_into_folders_of_their_own(refined):
    score_1, score_2 = (refined.summary[f"stage{number}"]["best_score"] for number in (1, 2))
    assert refined.files("**/*.ckpt") == sorted(
        [
            "best.ckpt",
            f"stage1/epoch=1-return={score_1:.2f}.ckpt",
            "stage1/last.ckpt",
            "stage1/previous.ckpt",
            f"stage2/epoch=1-return={score_2:.2f}.ckpt",
            "stage2/last.ckpt",
            "stage2/previous.ckpt",
            f"stage2/start-return={score_1:.2f}.ckpt",
        ]
    )
    for number in (1, 2):
        assert refined.summary[f"stage{number}"]["best_path"] == str(
            next((refined.folder / f"stage{number}").glob("epoch=*.ckpt"))
        )
        assert refined.files(f"stage{number}/events.out.tfevents.*")


@pytest.mark.parametrize("which", ["", "stage1/last.ckpt", "stage2/start-*.ckpt"])
def test_ckpt_path_takes_the_weights_and_no_counter(which, refined, tmp_path):
    path = next(refined.folder.glob(which)) if which else refined.folder
    run = train(tmp_path, ckpt_path=path, max_epochs=1, step_per_epoch=20, seed=1)
    begun = run.script.stages[1]
    file = path if which else refined.folder / "best.ckpt"
    raw = {n.removeprefix("algorithm.policy."): x for n, x in begun.start.items() if n.startswith("algorithm.policy.")}
    assert_same(raw, kept_policy(file))
    assert begun.counters == (0, 0, 0) and begun.rows == 0
    assert run.summary["stage1"]["env_steps"] == 20 and run.summary["stage1"]["updates"] == 10
    assert [row["epoch"] for row in run.rows] == [0]


def test_the_best_weights_are_tested_not_the_last(refined):
    (tested,) = refined.script.tested
    assert_same(tested, weights(next((refined.folder / "stage2").glob("epoch=1-*.ckpt"))))
    mean = refined.summary["test"]["return_mean"]
    assert 2 * BEST_2 <= mean < 2 * BEST_2 + 1, "the last one gets 2"
    assert mean != refined.summary["stage2"]["best_score"], "on other seeds"
    assert refined.summary["test"]["episodes"] == 7


# ---- the run's folder ----


def test_the_folder_holds_these_files(refined):
    assert refined.files("*") == [*FILES, "stage1", "stage2", "summary.json"]


def test_params_json_has_every_setting_of_both_stages(refined):
    params = json.loads((refined.folder / "params.json").read_text())
    assert {"run", "env", "stage1", "stage2", "seed", "versions", "platform", "git_commit"} <= params.keys()
    assert {"torch", "pytorch-lightning", "gymnasium", "numpy", "python", "lit_rl"} == params["versions"].keys()
    assert params["stage1"]["algorithm"]["lr"] == TINY["lr"] and params["stage2"]["algorithm"]["lr"] == LR_2
    assert params["stage1"]["algorithm"].keys() == set(find_algorithm("DQN").Config.__dataclass_fields__)
    assert params["env"]["env"] == "ladder.Ladder" and params["seed"] == params["run"]["seed"] == 0


def test_result_json_has_a_row_for_each_epoch_and_nothing_else(refined):
    rows = refined.rows
    assert [(row["stage"], row["epoch"]) for row in rows] == [(s, e) for s in (1, 2) for e in range(3)]
    assert [row["env_steps"] for row in rows] == [40, 80, 120, 160, 200, 240], "over both stages"
    assert [row["updates"] for row in rows] == [20, 40, 60] * 2, "of the stage"
    found = [row.get("Eval/return", row.get("Step2Eval/return")) for row in rows]
    assert found == pytest.approx([2 * level + bonus(refined) for level in SCRIPT[1] + SCRIPT[2]])


def test_progress_csv_is_the_same_as_a_table(refined):
    with open(refined.folder / "progress.csv", newline="") as file:
        table = list(csv.DictReader(file))
    for cells, row in zip(table, refined.rows, strict=True):
        assert {name: float(cell) for name, cell in cells.items() if cell} == pytest.approx(row)


def test_tensorboard_has_both_stages_over_env_steps(refined):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    for number, name, steps in ((1, "Eval/return", [40, 80, 120]), (2, "Step2Eval/return", [120, 160, 200, 240])):
        events = EventAccumulator(str(refined.folder / f"stage{number}"))
        events.Reload()
        assert [scalar.step for scalar in events.Scalars(name)] == steps, "stage 2 begins with its start"


def test_the_curve_is_a_picture(refined):
    assert (refined.folder / "curve.png").read_bytes().startswith(b"\x89PNG\r\n\x1a\n")


def test_the_summary_says_what_was_done(refined):
    summary = json.loads((refined.folder / "summary.json").read_text())
    assert summary == refined.summary
    for number in (1, 2):
        stage = summary[f"stage{number}"]
        assert {"best_score", "best_path", "env_steps", "updates"} <= stage.keys()
        assert (stage["env_steps"], stage["updates"], stage["stop_reason"]) == (120, 60, "limit")
    assert {"return_mean", "return_std", "episodes"} <= summary["test"].keys()
    assert 0 < summary["stage1"]["seconds"] + summary["stage2"]["seconds"] < summary["seconds"]


def test_best_ckpt_is_the_winner(refined):
    winner = Path(refined.summary["stage2"]["best_path"])
    assert (refined.folder / "best.ckpt").read_bytes() == winner.read_bytes()
    assert refined.summary["best_path"] == str(refined.folder / "best.ckpt")


def test_the_table_is_printed_once_with_the_path_of_the_winner(refined):
    lines = refined.printed.splitlines()
    assert [line.split()[:2] for line in lines if line.startswith(("stage", "test"))] == [
        ["stage", "1"],
        ["stage", "2"],
        ["test", "Test/return"],
    ]
    assert lines[-1] == f"best policy: {refined.folder / 'best.ckpt'}"


def test_a_policy_loads_from_every_file(refined):
    files = refined.files("**/*.ckpt")
    acts = {file: int(lit_rl.load_policy(refined.folder / file).act(np.array([1, -1], np.float32))) for file in files}
    expected = {"best": BEST_2, "stage2/epoch": BEST_2, "stage2/previous": BEST_2, "stage1/last": 2, "stage2/last": 1}
    for file, action in acts.items():
        assert action == expected.get(re.split("[.=]", file)[0], BEST_1), file
    assert int(lit_rl.load_policy(refined.folder).act(np.array([1, -1], np.float32))) == BEST_2


# ---- what is carried over ----


def test_the_replay_buffer_goes_on_in_stage_2(refined):
    first, second = refined.script.stages[1], refined.script.stages[2]
    assert second.buffer is first.buffer and (first.rows, second.rows) == (0, 120)
    assert second.counters == (0, 0, 120), "env steps count on, updates do not"


def test_schedules_stand_at_their_final_values_in_stage_2(refined):
    first, second = (refined.script.stages[number].policy.algorithm for number in (1, 2))
    assert first.config.epsilon == TINY["epsilon"]
    assert second.config.epsilon == second.policy.epsilon == TINY["epsilon"][-1][1]
    saved = load(refined.folder / "best.ckpt")["hyper_parameters"]["lit_rl"]["config"]
    assert saved["epsilon"] == TINY["epsilon"][-1][1]


def test_what_cannot_be_carried_over_is_named(tmp_path, recwarn):
    step2 = {"buffer_size": 200, "module": MyLitPolicy}
    run = train(tmp_path, Script({1: [3]}), two_steps=True, max_epochs=1, step2=step2)
    seen = run.script.stages[2]
    assert isinstance(seen.policy, MyLitPolicy)
    assert (run.script.stages[1].rows, seen.rows) == (0, 0) and seen.buffer is not run.script.stages[1].buffer
    assert [w for w in recwarn.list if "40" in str(w.message) and "buffer" in str(w.message)]


# ---- how a stage ends ----


def test_the_start_is_kept_when_stage_2_is_worse(tmp_path):
    run = train(tmp_path, Script({1: [0, 4], 2: [3, 2]}), two_steps=True, max_epochs=2, lr_2=1e3)
    (start,) = (run.folder / "stage2").glob("start-*.ckpt")
    assert run.summary["stage2"]["best_path"] == str(start)
    assert run.summary["stage2"]["best_score"] == pytest.approx(run.summary["stage1"]["best_score"])
    assert run.summary["stage2"]["updates"] == 40
    assert (run.folder / "best.ckpt").read_bytes() == start.read_bytes()
    assert 8 <= run.summary["test"]["return_mean"] < 9
    assert run.script.stages[2].lrs == {1e3}
    # no Lightning logger, and the files are there all the same
    assert not list(run.folder.glob("**/events*"))
    assert run.files("*.*") == [*FILES, "summary.json"]


@pytest.mark.parametrize("script, value, epochs", [({1: [1, 4]}, 8, 2), ({1: [0], 2: [0]}, 0, 1)])
def test_a_start_that_meets_stop_return_makes_no_update(script, value, epochs, tmp_path):
    run = train(tmp_path, Script(script), two_steps=True, max_epochs=9, stop_return=value)
    one, two = run.summary["stage1"], run.summary["stage2"]
    assert (one["epochs"], one["stop_reason"]) == (epochs, "stop_return")
    assert (two["updates"], two["env_steps"], two["epochs"], two["stop_reason"]) == (0, 0, 0, "stop_return")
    assert two["best_score"] == pytest.approx(one["best_score"])
    assert {row["stage"] for row in run.rows} == {1}
    assert (run.folder / "best.ckpt").read_bytes() == Path(two["best_path"]).read_bytes()


def test_policies_that_do_not_match_are_refused_before_anything_is_created(tmp_path):
    with pytest.raises(UsageError, match="policies of the two stages do not match"):
        train(tmp_path / "out", two_steps=True, step2={"hidden_sizes": [9]})
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("two_steps", [False, True])
def test_a_monitor_that_is_never_logged_is_refused_before_the_first_update(two_steps, tmp_path):
    script = Script()
    with pytest.raises(UsageError, match=r"--monitor Eval/success.*Eval/return"):
        train(tmp_path, script, two_steps=two_steps, monitor="Eval/success")
    assert script.stages.get(1) is None or not script.stages[1].moved


# ---- averages ----


def test_evaluation_files_test_and_load_policy_see_the_average(tmp_path):
    run = train(tmp_path, Script({1: [1, 3, 2]}, of_raw_weights=0), average_weights=0.5)
    assert run.summary["stage2"] is None and len(run.files("stage*")) == 1
    assert run.script.stages[1].evaluations == pytest.approx([2 * level + bonus(run) for level in (1, 3, 2)])
    assert 6 <= run.summary["test"]["return_mean"] < 7
    for file in (run.folder / "best.ckpt", Path(run.summary["stage1"]["best_path"])):
        assert int(lit_rl.load_policy(file).act(np.array([1, -1], np.float32))) == 3
        assert float(weights(file)["algorithm.policy.actor.head.linear.bias"][0]) == 1, "the raw weights are there too"


def test_the_average_of_a_file_is_the_one_made_by_hand(tmp_path):
    class Average(Script):
        """A running average of its own, in float64, one step a batch."""

        def on_train_batch_end(self, trainer, pl_module, *_):
            now = {name: x.double() for name, x in copied(pl_module).items() if name.startswith("algorithm.policy.")}
            before = getattr(self, "average", self.stages[1].start)
            self.average = {name: 0.9 * before[name].double() + 0.1 * x for name, x in now.items()}

    one_update_each = {"steps_per_iteration": 4, "collect_per_step": 4, "update_per_step": 0.25}
    run = train(tmp_path, Average(), average_weights=0.9, max_epochs=1, **one_update_each)
    assert run.summary["stage1"]["updates"] == 10
    obs = Ladder.observation_space.sample()
    network = run.script.stages[1].policy.policy
    network.load_state_dict({n.removeprefix("algorithm.policy."): x for n, x in run.script.average.items()})
    by_hand = network.q_values(torch.from_numpy(obs)[None])[0].detach().numpy()
    files = [file for file in run.files("**/*.ckpt") if "previous" not in file]  # which is of the start
    assert len(files) == 3
    for file in files:
        np.testing.assert_allclose(lit_rl.load_policy(run.folder / file).q_values(obs), by_hand, atol=1e-6)
    raw = {n: x for n, x in weights(run.folder / "best.ckpt").items() if n.startswith("algorithm.policy.")}
    assert any(not torch.allclose(x.double(), run.script.average[n], atol=1e-5) for n, x in raw.items())


# ---- the main command, as a user types it ----


@pytest.mark.slow
def test_the_main_command_learns_refines_and_tests(tmp_path):
    environ = os.environ | {"PYTHONPATH": str(ROOT)}
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    command = [sys.executable, str(ROOT / "train.py"), "--two_steps", "--output_dir", str(tmp_path)]
    found = subprocess.run(command, env=environ, capture_output=True, text=True, timeout=600, cwd=tmp_path)
    assert found.returncode == 0, found.stderr
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert used.ru_utime - before.ru_utime < 180, "of its own: what else runs on the machine does not count"
    (folder,) = tmp_path.iterdir()
    assert re.fullmatch(r"DQN_CartPole-v1_\d{4}-\d\d-\d\d_\d\d-\d\d-\d\d", folder.name)
    summary = json.loads((folder / "summary.json").read_text())
    assert summary["test"]["return_mean"] >= 475 and summary["test"]["episodes"] == 100
    assert summary["stage1"]["updates"] > 0 and summary["stage2"]["updates"] > 0
    assert found.stdout.count("mean ± std") == found.stdout.count("best policy: ") == 1
    assert found.stdout.count("using the tuned settings of DQN on CartPole-v1") == 1
