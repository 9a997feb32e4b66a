from __future__ import annotations

import dataclasses
import datetime

import numpy as np
import pytest
from typed import Clashing, TwoRates, resolved, settings

from lit_rl.algorithms.dqn import DQN
from lit_rl.cli.parser import FlagParser, parser_of
from lit_rl.errors import UsageError

pytestmark = pytest.mark.usefixtures("fixed_zoo")


@pytest.fixture(scope="module")
def parser() -> FlagParser:
    return parser_of(DQN)


def test_names_that_users_know_are_flags(parser):
    names = """env seed num_threads step_per_epoch collect_per_step update_per_step episode_per_test batch_size
    buffer_size learning_starts n_step gamma lr lr_2 two_steps max_epochs max_steps max_time total_timesteps"""
    assert [name for name in names.split() if name not in parser.hints] == []


def test_every_flag_stands_in_the_help_once_with_its_text_and_default(parser):
    text = parser.format_help()
    for name in parser.hints:
        assert text.count(f"\n  --{name} ") == 1, name
    words = " ".join(text.split())
    assert "Discount factor per env step, in [0, 1]. (a number; default 0.99)" in words
    assert "--two_steps [true|false]" in words
    assert "Not supported: an update is one minibatch; use a larger --batch_size." in words


def test_help_has_the_groups_in_order(parser):
    text = parser.format_help()
    titles = ["run", "stage 2", "environment", "data", "evaluation", "keeping the best", "algorithm DQN", "limits"]
    titles += ["Lightning's Trainer"]
    places = [text.index(f"\n{title}") for title in titles]
    assert places == sorted(places)


def test_defaults_are_those_of_the_dataclasses(parser):
    assert {name: parser.defaults[name] for name in parser.groups["algorithm"]} == dataclasses.asdict(DQN.Config())


@pytest.mark.parametrize(
    ("name", "typed", "value"),
    [
        ("lr", "1e-3", 0.001),
        ("lr", "[[0, 1e-3], [100, 0]]", [[0, 1e-3], [100, 0]]),
        ("double", True, True),
        ("double", "false", False),
        ("patience", "null", None),
        ("env", "123", "123"),
        ("env_config", "{a: 1e-3, b: x}", {"a": 0.001, "b": "x"}),
        ("hidden_sizes", (64, 32), [64, 32]),
        ("hidden_sizes", np.array([64, 32]), [64, 32]),
        ("n_step", np.int64(3), 3),
        ("gamma", np.float32(0.5), 0.5),
        ("max_time", "10:00:00:00", "10:00:00:00"),
        ("max_time", datetime.timedelta(hours=1), datetime.timedelta(hours=1)),
        ("val_check_interval", "0.5", 0.5),
        ("val_check_interval", "10:00:00:00", "10:00:00:00"),
        ("fast_dev_run", True, True),
        ("deterministic", "warn", "warn"),
        ("logger", "false", "false"),
        ("logger", False, "false"),
        ("precision", "bf16-mixed", "bf16-mixed"),
    ],
)
def test_values_are_read_as_their_types(parser, name, typed, value):
    assert parser.check({name: typed}) == {name: value}


@pytest.mark.parametrize(
    ("name", "typed", "message"),
    [
        ("lr", "abc", "--lr 'abc' is not allowed: give a number or [[a number, ...], ...]"),
        ("lr", "nan", "--lr 'nan' is not allowed"),
        ("lr", None, "--lr null is not allowed"),
        ("lr", "null", "--lr 'null' is not allowed"),
        ("lr", True, "--lr needs a value: a number or"),
        ("n_step", "2.5", "--n_step '2.5' is not allowed: give a whole number"),
        ("n_step", None, "--n_step null is not allowed"),
        ("seed", "true", "--seed 'true' is not allowed"),
        ("double", "maybe", "--double 'maybe' is not allowed: give true or false"),
        ("vector_env", "foo", "--vector_env 'foo' is not allowed: give sync or async or native or envpool"),
        ("env_config", "3", "--env_config '3' is not allowed: give {name: value, ...}"),
        ("hidden_sizes", "64", "--hidden_sizes '64' is not allowed: give [a whole number, ...]"),
        ("callbacks", "nope", "--callbacks 'nope' is not allowed: give [Callback, ...] or Callback or null"),
        ("callbacks", {"class_path": "Timer", "init_args": {"foo": 1}}, "Option 'foo' is not accepted"),
        ("lr", object(), "--lr <object object"),
        ("callbacks", [object()], "--callbacks [<object object"),
    ],
)
def test_wrong_types_are_refused_with_what_is_allowed(parser, name, typed, message):
    with pytest.raises(UsageError) as refused:
        parser.check({name: typed})
    assert message in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_message_says_in_which_config_the_value_stands():
    with pytest.raises(UsageError, match=r"--n_step null \(in the inline config\)"):
        settings("--config", "{n_step: null}")


@pytest.mark.parametrize(
    ("argv", "near"),
    [
        (["--max_epoch", "3"], "nearest: max_epochs,"),
        (["--two_step"], "nearest: two_steps"),
        (["--learning_start", "3"], "nearest: learning_starts"),
        (["--qqq"], "lit-rl train --help lists the known ones"),
        (["--config", "{learning_start: 3}"], "nearest: learning_starts"),
    ],
)
def test_unknown_and_abbreviated_names_are_refused_with_the_nearest(argv, near):
    with pytest.raises(UsageError, match="unknown setting") as refused:
        settings(*argv)
    assert near in str(refused.value)


def test_an_algorithm_of_ones_own_brings_its_flags():
    stage = settings("--algo", "typed:TwoRates", "--critic_lr", "3").stage1
    assert (stage.algo, stage.algorithm.critic_lr) == ("typed:TwoRates", 3.0)
    assert "Weight of the entropy bonus." in FlagParser(TwoRates).format_help()


def test_an_algorithm_whose_setting_is_a_flag_already_is_refused():
    with pytest.raises(UsageError, match="has a setting named seed, which is a flag of every run"):
        FlagParser(Clashing)


def test_algo_is_found_in_any_case_and_by_its_alias():
    assert settings("--run", "dqn").run.algo == "DQN"


def test_an_env_may_be_a_function_from_python():
    from lit_rl.cli.arguments import from_python
    from lit_rl.cli.resolve import resolve

    def make():
        raise AssertionError

    found = resolve(from_python({"env": make, "algo": DQN}))
    assert found.settings.env.env is make
    assert found.settings.run.algo == "DQN"
    assert not any("tuned" in note for note in found.notes), "nothing is tuned for a function"


def test_tuned_settings_are_used_and_said_and_can_be_turned_off():
    tuned, plain = resolved(), resolved("--tuned", "false")
    assert tuned.notes == ["using the tuned settings of DQN on CartPole-v1 (--tuned false turns them off)"]
    assert tuned.settings.stage1.algorithm.tau == 0.005
    assert plain.settings.stage1.algorithm.tau == DQN.Config().tau
    assert plain.settings.stage1.trainer["max_epochs"] == 100
    assert not any("tuned" in note for note in plain.notes)


def test_typed_settings_and_configs_win_over_tuned_ones():
    stage = settings("--tau", "0.5", "--config", "{learning_starts: 7}").stage1
    assert (stage.algorithm.tau, stage.algorithm.learning_starts, stage.algorithm.lr) == (0.5, 7, 1e-3)


def test_an_unknown_key_of_a_zoo_entry_is_refused_with_file_and_entry(parser):
    with pytest.raises(UsageError, match=r"learning_start in the entry X of lit_rl/zoo/dqn.yaml; nearest: learning_st"):
        parser.check({"learning_start": 3}, " in the entry X of lit_rl/zoo/dqn.yaml", prefix="")
