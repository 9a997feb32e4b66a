from __future__ import annotations

import pytest

from lit_rl.cli.arguments import dump_yaml, from_argv, from_python, load_yaml, take_apart
from lit_rl.errors import UsageError


def test_flags_are_read_with_a_space_an_equals_sign_or_bare():
    request = from_argv(["--lr", "1e-3", "--gamma=0.9", "--two_steps", "--stop_return", "-1e3", "--monitor=--x"])
    assert request.values == {
        "lr": "1e-3",
        "gamma": "0.9",
        "two_steps": True,
        "stop_return": "-1e3",
        "monitor": "--x",
    }


def test_typed_flags_win_over_configs_wherever_they_stand_and_later_configs_over_earlier(tmp_path):
    (tmp_path / "a.yaml").write_text("lr: 1\ngamma: 1\nseed: 1\n")
    request = from_argv(["--lr", "3", "--config", str(tmp_path / "a.yaml"), "--config", '{"lr": 2, "gamma": 2}'])
    assert request.values == {"lr": "3", "gamma": 2, "seed": 1}
    assert request.origin == {
        "lr": "",
        "gamma": " (in the inline config)",
        "seed": f" (in {tmp_path / 'a.yaml'}, line 3)",
    }


def test_run_is_algo_in_flags_configs_and_keywords():
    assert from_argv(["--run", "DQN"]).values == {"algo": "DQN"}
    assert from_argv(["--config", "{run: DQN}"]).values == {"algo": "DQN"}
    assert from_python({"run": "DQN"}).values == {"algo": "DQN"}


def test_python_takes_configs_as_dicts_and_files_and_paths_as_values(tmp_path):
    (tmp_path / "a.yaml").write_text("gamma: 0.5")
    request = from_python({"config": [tmp_path / "a.yaml", {"seed": 2}], "seed": 3, "output_dir": tmp_path})
    assert request.values == {"gamma": 0.5, "seed": 3, "output_dir": str(tmp_path)}


def test_numbers_and_times_of_a_config_are_what_they_look_like():
    text = "lr: 1e-3\nmax_time: 10:00:00:00\nn: 010\nday: 2026-01-02\nepsilon: [[0, 1.0], [5e3, 0.1]]"
    assert load_yaml(text) == {
        "lr": 0.001,
        "max_time": "10:00:00:00",
        "n": "010",
        "day": "2026-01-02",
        "epsilon": [[0, 1.0], [5000.0, 0.1]],
    }


@pytest.mark.parametrize("value", ["1e-3", "10:00:00:00", "true", "null", "", 1e-8, float("inf"), 3, None, True])
def test_what_is_dumped_loads_as_it_was(value):
    values = {"a": value, "b": [[0, value]], "c": {"d": value, "e": {}}, "f": []}
    assert load_yaml(dump_yaml(values)) == values


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["foo"], "unexpected argument foo"),
        (["-x"], "unexpected argument -x"),
        (["--"], "unexpected argument --"),
        (["--config"], "--config needs a file"),
        (["--config", "nowhere.yaml"], "--config nowhere.yaml cannot be read: No such file"),
        (["--config", "{a"], "neither YAML nor JSON"),
        (["--config", "[1, 2]"], "must hold settings by flag name"),
        (["--config", "{1: 2}"], "1 (in the inline config) is no setting"),
        (["--config", "{run: DQN, algo: DQN}"], "say the same"),
        (["--print_config=3"], "--print_config takes no value"),
    ],
)
def test_what_cannot_be_read_is_refused(argv, message):
    with pytest.raises(UsageError) as refused:
        from_argv(argv)
    assert message in str(refused.value)


def test_a_config_that_is_a_folder_or_no_text_is_refused(tmp_path):
    (tmp_path / "binary.yaml").write_bytes(b"\xff\xfe\x00")
    for path in (tmp_path, tmp_path / "binary.yaml"):
        with pytest.raises(UsageError, match=path.name):
            from_argv(["--config", str(path)])


def test_an_empty_config_sets_nothing(tmp_path):
    (tmp_path / "empty.yaml").write_text("# nothing\n")
    assert from_argv(["--config", str(tmp_path / "empty.yaml")]).values == {}


def test_words_stand_between_flags_and_switches_take_none_of_them():
    line = take_apart(
        ["--fast", "a", "--no-loud", "--out=b", "-f", "c", "--fast", "false", "d", "-h"], ("help",), ("fast", "loud")
    )
    assert line.words == ["a", "d"]
    assert line.flags == [("fast", True), ("loud", "false"), ("out", "b"), ("file", "c"), ("fast", "false")]
    assert line.actions == {"help"}


def test_dashes_and_underscores_are_the_same():
    request = from_argv(["--max-epochs", "3", "--two-steps", "--lr_2=1e-4", "--env-config", '{"a-b": 1}'])
    assert request.values == {"max_epochs": "3", "two_steps": True, "lr_2": "1e-4", "env_config": '{"a-b": 1}'}
