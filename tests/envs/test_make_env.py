from __future__ import annotations

import sys

import gymnasium as gym
import numpy as np
import pytest
import tiny_envs

from lit_rl.envs.make import make_env
from lit_rl.envs.vector import probe
from lit_rl.errors import EnvError, UsageError


@pytest.mark.parametrize(
    "env",
    [
        "tiny_envs:Counting",
        "tiny_envs.Counting",
        "tiny_envs.make_counting",
        tiny_envs.Counting,
        lambda length: tiny_envs.Counting(length),
    ],
)
def test_envs_are_made_from_import_paths_classes_and_factories(env):
    made = make_env(env, {"length": 1})
    made.reset(seed=0)
    assert made.step(0)[2] is True


def test_module_colon_id_registers_by_its_import(tmp_path, monkeypatch):
    (tmp_path / "my_tiny_suite.py").write_text(
        "import gymnasium\ngymnasium.register('MyTiny-v0', entry_point='tiny_envs:Counting', max_episode_steps=2)\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    env = make_env("my_tiny_suite:MyTiny-v0", {"length": 9})
    env.reset(seed=0)
    env.step(0)
    assert env.step(0)[3] is True, "truncated by the registered limit"
    gym.registry.pop("MyTiny-v0")
    sys.modules.pop("my_tiny_suite")


def test_keyword_arguments_of_gymnasium_make_pass():
    env = make_env("CartPole-v1", {"max_episode_steps": 1})
    env.reset(seed=0)
    assert env.step(0)[3] is True


@pytest.mark.parametrize(
    ("env", "says"),
    [
        ("CartPol-v1", "CartPole-v1"),
        ("cartpole-v1", "CartPole-v1"),
        ("CartPole-v9", "CartPole-v1"),
        ("LunarLander-v2", "LunarLander-v3"),
        ("qqqqqqqq", "lists the known ids"),
        ("a b", "Malformed"),
        ("no_such_module:Foo-v0", "no module no_such_module"),
        ("tiny_envs:NoSuch", "no env id, class or factory NoSuch"),
        ("tiny_envs.NoSuch", "no env id, class or factory NoSuch"),
        ("tiny_envs:not_an_env", "no gymnasium.Env"),
        ("HalfCheetah-v3", "gymnasium-robotics"),
        ("..x", "lists the known ids"),
    ],
)
@pytest.mark.filterwarnings("ignore:.*out of date")
def test_an_env_that_cannot_be_found_gets_one_line_with_what_could_be_meant(env, says):
    with pytest.raises(UsageError) as caught:
        make_env(env, {})
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)


def test_keyword_arguments_that_an_env_does_not_take_are_named():
    for env in ("CartPole-v1", tiny_envs.Counting):
        with pytest.raises(UsageError, match=r"env_config does not fit .*'gravitas'"):
            make_env(env, {"gravitas": 1})


def test_an_env_whose_constructor_raises_shows_its_own_traceback():
    def broken():
        return 1 / 0

    with pytest.raises(EnvError, match="(?s)broken could not be made: ZeroDivisionError.*return 1 / 0"):
        make_env(broken, {})


def test_a_missing_package_names_the_extra(monkeypatch):
    for module in [name for name in sys.modules if name.startswith("ale_py")]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, "ale_py", None)
    with pytest.raises(UsageError, match=r"ALE/NoSuch-v5 needs .*\[atari\]"):
        make_env("ALE/NoSuch-v5", {})
    monkeypatch.setitem(sys.modules, "Box2D", None)
    for module in [name for name in sys.modules if name.startswith("gymnasium.envs.box2d")]:
        monkeypatch.delitem(sys.modules, module)
    with pytest.raises(UsageError, match=r"LunarLander-v3 needs .*\[box2d\]"):
        make_env("LunarLander-v3", {})


def test_an_env_without_spaces_is_named():
    class Spaceless(gym.Env):
        pass

    with pytest.raises(UsageError, match="Spaceless has no observation_space"):
        make_env(Spaceless, {})


def test_probe_reads_the_spaces():
    spaces = probe(tiny_envs.FromThree, {})
    assert spaces.observation == tiny_envs.FLAT
    assert spaces.action == gym.spaces.Discrete(2, start=3)


def test_probe_refuses_what_contradicts_itself_or_cannot_be_kept():
    with pytest.raises(UsageError, match=r"WrongShape: the observation is ndarray\(3,\), but .*Box\(2,\)"):
        probe(tiny_envs.WrongShape, {})
    with pytest.raises(UsageError, match="Texting: Text spaces are not supported"):
        probe(tiny_envs.Texting, {})


class Outside(tiny_envs.Counting):
    observation_space = gym.spaces.Discrete(3)

    def obs(self):
        return 3


class NoInfo(tiny_envs.Counting):
    def reset(self, *, seed=None, options=None):
        return super().reset(seed=seed)[0], None


class NoMetadata(tiny_envs.Counting):
    metadata = None


class NoAction(tiny_envs.Counting):
    action_space = gym.spaces.Box(-1, 1, (0,), np.float32)


@pytest.mark.parametrize(
    ("env", "env_config", "message"),
    [
        (Outside, {}, r"the value 3 lies outside Discrete\(3\)"),
        (NoInfo, {}, "its info is None; give a dict"),
        (NoMetadata, {}, "its metadata is None; give a dict"),
        (NoAction, {}, r"the action_space Box\(0,\) float32 holds no action"),
        ("CartPole-v1", {"max_episode_steps": "x"}, "max_episode_steps"),
        (":x", {}, "--env :x names no module"),
    ],
)
def test_an_env_that_breaks_the_rules_is_one_line_before_anything_is_made(env, env_config, message):
    with pytest.raises((UsageError, EnvError), match=message) as caught:
        probe(env, env_config)
    assert "\n" not in str(caught.value)
