"""`lit-rl rollout`: a checkpoint is all it needs, and what it cannot do it says in one line."""

from __future__ import annotations

import itertools
import json
import os
import re
import subprocess
import sys

import numpy as np
import pytest
from gymnasium.envs.classic_control.cartpole import CartPoleEnv
from short_env import Short
from test_main import refusal

from lit_rl.cli import main
from lit_rl.data.evaluation import play_episodes
from lit_rl.data.record import Recorder
from lit_rl.datamodule import ExperienceDataModule
from lit_rl.envs.vector import make_vector_env
from lit_rl.functional.bootstrap import bootstrap_interval
from lit_rl.serving import load_policy

TINY = {
    "env": "CartPole-v1",
    "tuned": False,
    "max_epochs": 1,
    "step_per_epoch": 40,
    "learning_starts": 8,
    "batch_size": 4,
    "hidden_sizes": [8],
    "episode_per_test": 2,
    "num_test_envs": 2,
    "test_episodes": 4,
    "accelerator": "cpu",
    "enable_progress_bar": False,
    "logger": "false",
    "seed": 3,
}


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """The folder of a run on CartPole-v1."""
    out = tmp_path_factory.mktemp("runs")
    assert main(["train", "--output_dir", str(out), "--experiment_name", "run", "--config", json.dumps(TINY)]) == 0
    return out / "run"


@pytest.mark.parametrize("envs", [1, 3])
def test_the_episodes_are_those_of_the_final_test_whatever_the_number_of_envs(run, envs, capsys):
    tested = json.loads((run / "summary.json").read_text())["test"]
    assert main(["rollout", str(run), "--episodes", "4", "--seed", "3", "--num-envs", str(envs)]) == 0
    out = capsys.readouterr().out
    assert f"{tested['return_mean']:.2f} ± {tested['return_std']:.2f}" in out
    assert f"length     {tested['length']:.1f}" in out
    assert re.search(r"\(95%: [\d.]+ to [\d.]+; 4 episodes\)", out)
    assert f"env steps  {round(4 * tested['length'])} in" in out


def test_a_checkpoint_without_its_folder_is_enough(run, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "alone.ckpt").write_bytes((run / "best.ckpt").read_bytes())
    assert main(["rollout", "alone.ckpt", "--steps", "5"]) == 0
    assert "return     - (no episode has ended)\nenv steps  5 in" in capsys.readouterr().out


def test_a_run_that_has_not_ended_has_a_best_checkpoint_too(run, tmp_path, capsys):
    (tmp_path / "stage1").mkdir()
    for file in (run / "stage1").glob("*.ckpt"):
        (tmp_path / "stage1" / file.name).write_bytes(file.read_bytes())
    assert main(["rollout", str(tmp_path), "--episodes", "1"]) == 0
    assert main(["rollout", str(tmp_path / "stage1"), "--episodes", "1"]) == 0


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["--steps", "0"], "--steps 0 is out of range: it must be at least 1"),
        (["--steps", "9", "--episodes", "2"], "--episodes and --steps contradict each other"),
        (["--run", "PPO"], "holds a policy of DQN, not of PPO"),
        (
            ["--env", "Acrobot-v1"],
            "holds a policy for the observation space Box(4,) float32, and Acrobot-v1 has Box(6,)",
        ),
        (["--env", "CartPol-v1"], "Nearest known ids: CartPole-v1"),
        (["--render"], "--render needs a display, and there is none here"),
        (["--stepz", "3"], "unknown setting --stepz; nearest: steps"),
        (["--env", "short_env:Short", "--video_dir", "films"], "holds a policy for the observation space"),
        (["--env_config", "[1]"], "--env_config '[1]' is not allowed: give {name: value, ...}"),
        (["--seed", ""], "--seed '' is not allowed: give a whole number"),
        (["--explore=7"], "--explore '7' is not allowed: give true or false"),
        (["--help=3"], "--help takes no value"),
        (["--video_dir", "/dev/null"], "films cannot be written into /dev/null: File exists"),
        (["--out", "/dev/null/x.jsonl"], "/dev/null/x.jsonl"),
        (["--out", "."], "is no place for episodes"),
        (["more"], "lit-rl rollout takes CHECKPOINT, and was given"),
    ],
)
def test_what_cannot_be_played_is_one_line(run, argv, message, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    for name in ("DISPLAY", "WAYLAND_DISPLAY", "SDL_VIDEODRIVER"):
        monkeypatch.delenv(name, raising=False)
    assert message in refusal(capsys, ["rollout", str(run), *argv])
    assert list(tmp_path.iterdir()) == []


def test_ctrl_c_leaves_nothing_half_written(run, tmp_path, monkeypatch, capsys):
    steps = itertools.count()
    step = CartPoleEnv.step

    def interrupted(env, action):
        if next(steps) == 30:
            raise KeyboardInterrupt
        return step(env, action)

    monkeypatch.setattr(CartPoleEnv, "step", interrupted)
    assert main(["rollout", str(run), "--out", str(tmp_path / "played.jsonl")]) == 130
    assert capsys.readouterr() == ("", "") and list(tmp_path.iterdir()) == []


def test_code_of_ones_own_runs_only_when_it_is_named(tmp_path, capsys):
    tiny = TINY | {"env": "short_env:Short", "env_config": {"breaks_at": 10_000}}
    assert main(["train", "--output_dir", str(tmp_path), "--experiment_name", "own", "--config", json.dumps(tiny)]) == 0
    own = str(tmp_path / "own")
    assert "give --env short_env:Short" in refusal(capsys, ["rollout", own])
    assert main(["rollout", own, "--env", "short_env:Short", "--episodes", "3"]) == 0
    assert "return     3.00 ± 0.00" in capsys.readouterr().out
    message = refusal(capsys, ["rollout", own, "--env", "short_env:Short", "--video_dir", str(tmp_path / "films")])
    assert "short_env:Short has no render mode rgb_array; it cannot render at all" in message
    assert not (tmp_path / "films").exists()


def test_every_episode_becomes_a_film(run, tmp_path, capsys):
    films = tmp_path / "films"
    assert main(["rollout", str(run), "--episodes", "2", "--no-render", "--video-dir", str(films)]) == 0
    assert sorted(file.name for file in films.iterdir()) == ["rollout-episode-0.mp4", "rollout-episode-1.mp4"]
    assert all(file.stat().st_size > 1000 for file in films.iterdir())


def test_without_the_package_for_films_nothing_is_made(run, tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "moviepy", None)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert "pip install -e '.[video]'" in refusal(capsys, ["rollout", str(run), "--video_dir", str(tmp_path / "films")])
    assert not (tmp_path / "films").exists()


@pytest.mark.slow
@pytest.mark.parametrize("encoder", ["/nonexistent", "/bin/false"])
@pytest.mark.parametrize("command", ["rollout", "train"])
def test_without_an_encoder_nothing_is_played_or_made(run, command, encoder, tmp_path):
    code = "import sys; from lit_rl.cli import main; sys.exit(main(sys.argv[1:]))"
    given = ["rollout", str(run), "--video_dir", "films"] if command == "rollout" else ["train", "--videos", "1"]
    environ = os.environ | {"IMAGEIO_FFMPEG_EXE": encoder, "FFMPEG_BINARY": encoder}
    done = subprocess.run(
        [sys.executable, "-c", code, *given], cwd=tmp_path, env=environ, capture_output=True, text=True
    )
    assert done.returncode == 2
    assert "films cannot be encoded here: " in done.stderr.splitlines()[-1]
    assert list(tmp_path.iterdir()) == []


def test_a_recorder_is_handed_every_episode_whole_and_the_last_one_cut():
    data = ExperienceDataModule(Short)
    policy = load_like(data)
    kept = []
    recorder = Recorder(kept.append)
    envs = make_vector_env(Short, {}, 2, "sync", autoreset="disabled")
    found = list(play_episodes(policy, envs, data.spaces, ((i, 100 + i) for i in range(9)), None, recorder, steps=10))
    recorder.cut()
    envs.close()
    assert recorder.steps == 10
    assert [(e.number, e.length) for e in found] == [(0, 3), (1, 3)]
    assert [(t.number, t.seed, len(t.reward), t.terminated, t.truncated) for t in kept] == [
        (0, 100, 3, True, False),
        (1, 101, 3, True, False),
        (2, 102, 2, False, True),
        (3, 103, 2, False, True),
    ]
    np.testing.assert_allclose(kept[0].obs[:, 0], [0.0, 0.1, 0.2, 0.3], rtol=1e-6)
    assert kept[0].action.shape == (3,) and kept[2].obs.shape == (3, 2)


def load_like(data):
    from lit_rl.lit_policy import LitPolicy

    return LitPolicy("DQN", data.spaces, hidden_sizes=[8]).policy


def test_a_policy_knows_the_environment_that_it_learned_in(run):
    loaded = load_policy(run)
    assert loaded.env is not None
    assert (loaded.env["env"], loaded.env["env_config"]) == ("CartPole-v1", {})


def test_exploring_draws_from_the_seed(run, capsys):
    def played(*argv: str) -> str:
        assert main(["rollout", str(run), "--episodes", "3", "--explore", *argv]) == 0
        return capsys.readouterr().out.split("env steps")[0]

    assert played("--seed", "1") == played("--seed", "1")
    assert played("--seed", "1") != played("--seed", "2")


def test_the_bootstrap_interval_of_a_mean():
    assert bootstrap_interval(np.array([5.0, 5.0])) == (5.0, 5.0)
    low, high = bootstrap_interval(np.arange(100.0))
    half = 1.96 * np.arange(100.0).std() / 10  # of the normal approximation
    assert abs(low - (49.5 - half)) < 0.5 and abs(high - (49.5 + half)) < 0.5


def test_help_of_the_small_commands_imports_nothing_heavy():
    code = (
        "import sys; from lit_rl.cli import main; main(['--help']); main(['list', '--help']); main(['rollout', '--help'])\n"
        "sys.exit(any(name in sys.modules for name in ('torch', 'pytorch_lightning', 'gymnasium')))"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert found.returncode == 0
    assert "--video_dir" in found.stdout and "rollout" in found.stdout


def test_list_shows_algorithms_with_their_actions_and_the_zoo(capsys):
    assert main(["list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert any(re.match(r"DQN +Q-learning.* Discrete$", line) for line in lines)
    assert any(re.match(r"TD3 .* Box$", line) for line in lines)
    assert any(re.match(r"DQN +CartPole-v1 +500 +stable-baselines3 zoo", line) for line in lines)


def test_videos_films_episodes_of_every_evaluation_into_the_runs_folder(tmp_path, capsys):
    argv = ["train", "--output_dir", str(tmp_path), "--experiment_name", "filmed", "--config", json.dumps(TINY)]
    assert main([*argv, "--videos", "1", "--max_epochs", "2"]) == 0
    films = sorted(file.name for file in (tmp_path / "filmed" / "videos").iterdir())
    assert films == ["epoch=0-episode-0.mp4", "epoch=1-episode-0.mp4"]
    assert "cannot render at all" in refusal(
        capsys, [*argv[:2], str(tmp_path / "none"), "--env", "short_env:Short", "--videos", "1", "--max_epochs", "1"]
    )
    assert not (tmp_path / "none").exists()


def test_the_limit_that_was_learned_with_holds_where_the_same_env_is_named_too(tmp_path, capsys):
    short = TINY | {"max_episode_steps": 5}
    out = ["--output_dir", str(tmp_path), "--experiment_name", "short"]
    assert main(["train", *out, "--config", json.dumps(short)]) == 0
    for more in ([], ["--env", "CartPole-v1"]):
        assert main(["rollout", str(tmp_path / "short"), "--episodes", "2", *more]) == 0
        assert "length     5.0" in capsys.readouterr().out
