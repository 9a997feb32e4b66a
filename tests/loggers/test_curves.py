"""`lit-rl plot`: many runs in one picture."""

from __future__ import annotations

import json

import numpy as np
import pytest

from lit_rl.cli import main
from lit_rl.loggers.curves import band, find_runs, group_runs


def make_run(folder, seed, lr, returns, second=(), metric="return"):
    """A run's folder with an evaluation every 100 env steps, five updates each."""
    folder.mkdir(parents=True)
    settings = {"algo": "DQN", "env": "CartPole-v1", "lr": lr, "seed": seed, "experiment_name": folder.name}
    (folder / "config.json").write_text(json.dumps(settings))
    stages = [(1, f"Eval/{metric}", y) for y in returns] + [(2, "Step2Eval/return", y) for y in second]
    with open(folder / "result.json", "w") as file:
        for i, (stage, name, y) in enumerate(stages):
            row = {"stage": stage, "epoch": i, "env_steps": 100 * (i + 1), "updates": 5 * (i + 1), name: y}
            file.write(json.dumps(row | {"time_total_s": i, "time_this_epoch_s": 1}) + "\n")
    return folder


def test_runs_that_differ_by_their_seed_alone_are_one_line(tmp_path):
    for seed in (0, 1):
        make_run(tmp_path / f"a{seed}", seed, 1e-3, [1.0, 2.0])
    make_run(tmp_path / "b", 0, 1e-4, [3.0])
    first, second = group_runs(find_runs([str(tmp_path)]))
    assert (first.name, len(first.runs)) == ("DQN on CartPole-v1", 2)
    assert (second.name, len(second.runs)) == ("DQN on CartPole-v1, lr 0.0001", 1)


def test_settings_too_long_for_a_legend_give_way_to_the_folder(tmp_path):
    for name, lr in (("offline", 1e-3), ("refined", [[step, 1e-3] for step in range(20)])):
        make_run(tmp_path / name, 0, lr, [1.0])
    names = [group.name for group in group_runs(find_runs([str(tmp_path)]))]
    assert names == ["DQN on CartPole-v1 (offline)", "DQN on CartPole-v1 (refined)"]


def test_a_band_reaches_from_the_worst_seed_to_the_best():
    x, low, mean, high = band([([0, 10, 20], [0.0, 10.0, 20.0]), ([0, 20], [4.0, 4.0])])
    np.testing.assert_allclose(x, [0, 10, 20])
    np.testing.assert_allclose(low, [0, 4, 4])
    np.testing.assert_allclose(mean, [2, 7, 12])
    np.testing.assert_allclose(high, [4, 10, 20])


def test_plot_writes_a_picture_of_both_stages(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    runs = [str(make_run(tmp_path / f"r{seed}", seed, 1e-3, [1.0, 2.0], second=[3.0])) for seed in (0, 1)]
    assert main(["plot", *runs, "--out", "pic.svg"]) == 0
    text = (tmp_path / "pic.svg").read_text()
    assert "DQN on CartPole-v1, 2 seeds, stage 2" in text and "hand-over to stage 2" in text
    assert main(["plot", *runs]) == 0
    assert (tmp_path / "curves.png").read_bytes().startswith(b"\x89PNG")


def test_a_run_without_returns_is_named_and_the_others_are_drawn(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    make_run(tmp_path / "offline", 0, 1e-3, [0.9], metric="f1")
    make_run(tmp_path / "refined", 0, 1e-3, [1.0])
    assert main(["plot", "offline", "refined"]) == 0
    said = capsys.readouterr()
    assert said.out == "curves.png\n" and said.err.startswith("offline is not in it: ")


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["nowhere"], "there is no run nowhere"),
        (["."], ". holds no run: there is no result.json in it"),
        ([], "lit-rl plot takes RUN [RUN ...], and was given nothing"),
        (["run", "--out", "x.bmp"], "the file's ending must be one of png, pdf, svg"),
        (["empty"], "no epoch was finished yet"),
        (["x" * 5000], "there is no run xxx"),
        (["run", "--out", "\0.png"], "that names no file"),
        (["run", "--out", "/dev/null/x.png"], "cannot write /dev/null/x.png"),
        (["run", "--out", "x" * 300 + ".png"], "File name too long"),
        (["damaged"], "damaged: no evaluation has played episodes"),
        (["offline"], "offline: no evaluation has played episodes, so there is no return to draw: train with --env ID"),
    ],
)
def test_what_cannot_be_drawn_is_one_line(argv, message, tmp_path, monkeypatch, capsys):
    work = tmp_path / "work"
    work.mkdir()
    monkeypatch.chdir(work)
    if argv[:1] == ["run"]:
        make_run(work / "run", 0, 1e-3, [1.0])
    elif argv == ["empty"]:
        make_run(work / "empty", 0, 1e-3, [])
    elif argv == ["damaged"]:
        make_run(work / "damaged", 0, 1e-3, ["x", float("nan")])
    elif argv == ["offline"]:
        make_run(work / "offline", 0, 1e-3, [0.9], metric="f1")
    assert main(["plot", *argv]) == 2
    assert message in capsys.readouterr().err
    assert not list(work.glob("*.png"))
