"""The part of docs/results.md on two stages: what counts as solved and as a collapse, and settings that fit each other."""

from __future__ import annotations

import json
import shlex

import pytest
from two_stage import data_file, digest, keep_about, run_file, write_json
from two_stage_page import collapses, run_at, section, solved_at
from two_stage_sets import SETS, Set

from lit_rl.cli.arguments import from_argv
from lit_rl.cli.resolve import resolve


def test_solved_is_the_first_of_two_evaluations_in_a_row():
    points = [[100, 480], [200, 300], [300, 475], [400, 500]]
    assert solved_at(points, 475) == 300
    assert solved_at(points[:2], 475) is None and solved_at([], 475) is None


def test_a_collapse_is_two_evaluations_in_a_row_a_tenth_of_the_range_below():
    # the range is 450, so that 400 may fall to 355
    assert not collapses([[1, 350], [2, 360], [3, 350]], 400, 475, 25)
    assert collapses([[1, 360], [2, 354], [3, 350]], 400, 475, 25)


def test_runs_of_another_commit_than_most_are_named():
    runs = [{"kind": "scratch", "seed": seed, "commit": "aaaaaaa11"} for seed in (0, 1)]
    assert run_at(runs) == "commit aaaaaaa"
    other = {"kind": "BC-medium", "seed": 3, "commit": "bbbbbbb22"}
    assert run_at([*runs, other]) == "commit aaaaaaa; BC-medium seed 3 at bbbbbbb"


@pytest.mark.parametrize("chosen", SETS, ids=lambda chosen: chosen.name)
def test_every_command_of_a_set_is_one_that_runs(chosen: Set) -> None:
    for kind in chosen.kinds:
        resolved = resolve(from_argv(shlex.split(chosen.command(kind, 0))[2:]))
        second = resolved.settings.stage2
        assert (second is None) == (kind not in ("two-stage", "control"))
        if kind == "control":
            assert (second.refine.anchor, second.refine.critic_warmup, second.refine.offline_fraction) == (0.0, 0, 0.0)


def test_the_page_says_what_finished_runs_have_found(tmp_path):
    chosen, results = SETS[0], tmp_path / "results"
    assert section(results) == ""
    about = {"expert": 500.0, "medium": [100.0, 200.0, 300.0, 400.0], "episodes": 200, "commit": "0123456789"}
    write_json(data_file(chosen, results), about)
    for seed, (low, steps) in enumerate([(480.0, 1024), (300.0, 2048)]):
        kept = {
            "commit": "fedcba9876",
            "test": 490.0 + seed,
            "seed": seed,
            "stage1": [[0, 400.0]],
            "stage1_again": 400.0,
        }
        points = [[1024, low], [2048, low if seed else 480.0], [3072, 490.0], [4096, 490.0]]
        write_json(run_file(chosen, results, "two-stage", seed), kept | {"stage2": points})
        write_json(run_file(chosen, results, "scratch", seed), kept | {"stage2": [], "stage1": [[steps, 500.0]] * 2})
    said = section(results)
    assert (
        "250, 48% of the expert's return above random (22), by checkpoints of 100, 200, 300, 400; commit 0123456."
        in said
    )
    assert "| two-stage | 2 | 490.5 ± 0.7 | 1,024, 3,072 | 2,048 | 1 of 2 |" in said
    assert "| scratch | 2 | 490.5 ± 0.7 | 1,024, 2,048 | 1,536 |  |" in said
    assert "--seed $SEED" in said and "Run at commit fedcba9." in said
    assert json.loads(data_file(chosen, results).read_text()) == about
    assert (tmp_path / "images" / "two_stage-cartpole.png").read_bytes().startswith(b"\x89PNG")


def test_runs_go_on_with_data_made_again_and_with_no_others(tmp_path):
    chosen, results = SETS[0], tmp_path / "results"
    keep_about(chosen, results, {"sha256": "a", "commit": "1"})
    write_json(run_file(chosen, results, "scratch", 0), {})
    keep_about(chosen, results, {"sha256": "a", "commit": "2"})
    assert json.loads(data_file(chosen, results).read_text()) == {"sha256": "a", "commit": "1"}
    with pytest.raises(RuntimeError, match="other data"):
        keep_about(chosen, results, {"sha256": "b", "commit": "2"})


def test_data_are_known_by_their_episodes_whatever_checkpoint_played_them(tmp_path):
    for name, header, episode in (("a", "here", "1"), ("b", "there", "1"), ("c", "here", "2")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "medium-0.jsonl").write_text(f"{header}\n{episode}\n")
    a, b, c = (digest(tmp_path / name) for name in "abc")
    assert a == b != c
