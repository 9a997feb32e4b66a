"""docs/environments.md, line by line: each command trains, in short, with what the extras install."""

from __future__ import annotations

import re
import shlex
import sys
from pathlib import Path

import gymnasium as gym
import pytest
import pytorch_lightning as pl
from tiny_envs import Counting

import lit_rl
from lit_rl.cli import main
from lit_rl.envs import make
from lit_rl.envs.vector import make_vector_env, probe
from lit_rl.errors import UsageError

PAGE = (Path(__file__).parents[1] / "docs" / "environments.md").read_text()
BLOCKS = re.findall(r"```(\w+)\n(.*?)```", PAGE, re.S)
LINES = [line.split("  #")[0].strip() for kind, block in BLOCKS if kind == "bash" for line in block.splitlines()]
MODULE, IN_PYTHON, WITH_A_POLICY = (block for kind, block in BLOCKS if kind == "python")
SHORT = {
    "tuned": False,
    "step_per_epoch": 32,
    "max_epochs": 1,
    "episode_per_test": 1,
    "test_episodes": 1,
    "num_test_envs": 1,
    "hidden_sizes": [8],
    "enable_progress_bar": False,
    "logger": "false",
}
REPLAY = {"learning_starts": 8, "batch_size": 4, "steps_per_iteration": 32, "buffer_size": 200}


def short(argv):
    """What makes a run one of a second; a game of Atari ends after 50 steps."""
    rollout = {"rollout_length": 4, "epochs_per_rollout": 1, "batch_size": 8}
    settings = SHORT | (rollout if "PPO" in argv else REPLAY)
    if "--atari" in argv:
        settings["env_config"] = "{max_episode_steps: 50}"
        if "native" in argv:
            settings["env_config"] = "{max_num_frames_per_episode: 200}"
    return [word for name, value in settings.items() for word in (f"--{name}", str(value))]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A working directory with the page's my_envs.py in it."""
    (tmp_path / "my_envs.py").write_text(MODULE)
    monkeypatch.chdir(tmp_path)
    before = set(sys.modules)
    path = list(sys.path)
    yield tmp_path
    sys.path[:] = path
    for name in set(sys.modules) - before:
        if name == "my_envs":
            del sys.modules[name]
    gym.registry.pop("Corridor-v0", None)
    gym.registry.pop("corridor", None)


@pytest.mark.parametrize("line", LINES)
def test_every_command_of_the_page_trains(line, folder):
    program, script, *argv = shlex.split(line)
    assert (program, script) == ("python", "train.py")
    assert main(["train", *argv, *short(argv)]) == 0
    assert list(folder.glob("output/*/best.ckpt"))


def test_the_python_of_the_page_runs(folder, monkeypatch):
    monkeypatch.syspath_prepend(str(folder))
    train = lit_rl.train
    runs = []

    def brief(**settings):
        runs.append(settings)
        return train(**({**settings, "max_epochs_2": 1} if "two_steps" in settings else settings), **SHORT, **REPLAY)

    monkeypatch.setattr(lit_rl, "train", brief, raising=False)
    exec(IN_PYTHON, {})
    assert [run["env"] if isinstance(run["env"], str) else run["env"].__name__ for run in runs] == [
        "corridor",
        "Corridor",
    ]


def test_the_policy_of_the_page_acts(folder):
    shown = lit_rl.make_env("PongNoFrameskip-v4", atari=True)
    policy = lit_rl.LitPolicy("DQN", lit_rl.Spaces(shown.observation_space, shown.action_space, 4))
    trainer = pl.Trainer(logger=False, enable_progress_bar=False)
    trainer.strategy.connect(policy)
    trainer.save_checkpoint("output/my_pong/best.ckpt", weights_only=True)
    exec(WITH_A_POLICY, {})


def test_a_registered_name_takes_its_config_as_one_dict_and_the_last_one_counts():
    lit_rl.register_env("mine", lambda config: Counting(**config))
    lit_rl.register_env("mine", lambda config: Counting(length=config["a"]))
    env = make.make_env("mine", {"a": 1})
    env.reset(seed=0)
    assert env.step(0)[2]
    gym.registry.pop("mine")
    with pytest.raises(UsageError, match="CartPole-v1 is an environment of another package"):
        lit_rl.register_env("CartPole-v1", lambda config: Counting())
    with pytest.raises(UsageError, match="register_env: "):
        lit_rl.register_env("no good name!", lambda config: Counting())
    with pytest.raises(UsageError, match="is no function"):
        lit_rl.register_env("mine", {})


@pytest.mark.parametrize(
    ("env", "packages", "extra"),
    [
        ("LunarLander-v3", ["Box2D"], "box2d"),
        ("HalfCheetah-v5", ["mujoco"], "mujoco"),
        ("MiniGrid-Empty-5x5-v0", ["minigrid"], "minigrid"),
        ("ALE/Pong-v5", ["ale_py"], "atari"),
        ("PongNoFrameskip-v4", ["ale_py"], "atari"),
    ],
)
def test_a_missing_package_is_said_with_the_extra_that_installs_it(env, packages, extra, monkeypatch):
    for name in [name for name in sys.modules if name.split(".")[0] in packages]:
        monkeypatch.delitem(sys.modules, name)
    for name in packages:
        monkeypatch.setitem(sys.modules, name, None)
    for module in ("gymnasium.envs.box2d", "gymnasium.envs.mujoco"):
        for name in [name for name in sys.modules if name.startswith(module)]:
            monkeypatch.delitem(sys.modules, name)
    if extra in ("atari", "minigrid"):
        known = {name: spec for name, spec in gym.registry.items() if name != env}
        monkeypatch.setattr(gym.envs.registration, "registry", known)
        monkeypatch.setattr(gym, "registry", known)
    with pytest.raises(UsageError, match=rf"needs a package that is not installed .*pip install -e '\.\[{extra}\]'"):
        probe(env, {})


def test_without_envpool_the_error_names_its_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "envpool", None)
    with pytest.raises(UsageError, match=r"vector_env envpool of CartPole-v1 needs .*pip install -e '\.\[envpool\]'"):
        make_vector_env("CartPole-v1", {}, 2, "envpool", autoreset="same_step")


def test_envpool_takes_a_seed_for_each_env():
    envs = make_vector_env("CartPole-v1", {}, 2, "envpool", autoreset="same_step")
    first = envs.reset(seed=[3, 4])[0].copy()
    assert (first == envs.reset(seed=[3, 4])[0]).all() and (first[::-1] == envs.reset(seed=[4, 3])[0]).all()
    envs.close()


@pytest.mark.parametrize(
    ("env", "settings", "says"),
    [
        ("MiniGrid-Empty-5x5-v0", {}, "vector_env envpool of MiniGrid-Empty-5x5-v0 has"),
        ("PongNoFrameskip-v4", {}, "plays PongNoFrameskip-v4 preprocessed: add --atari"),
        ("tiny", {}, "EnvPool has no tiny"),
        ("CartPole-v1", {"env_config": {"gravitas": 1}}, "--env_config does not fit CartPole-v1"),
    ],
)
def test_what_envpool_cannot_do_is_refused(env, settings, says):
    lit_rl.register_env("tiny", lambda config: Counting())
    with pytest.raises(UsageError, match=says):
        lit_rl.ExperienceDataModule(env, num_envs=2, vector_env="envpool", **settings)
