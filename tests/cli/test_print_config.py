"""What --print_config prints, --config reads back to the same run."""

from __future__ import annotations

import pytest
from typed import resolved

from lit_rl.cli import main
from lit_rl.cli.arguments import dump_yaml, load_yaml

pytestmark = pytest.mark.usefixtures("fixed_zoo")


@pytest.mark.parametrize(
    "argv",
    [
        [],
        ["--two_steps"],
        ["--two_steps", "--tuned", "false"],
        ["--two_steps", "--env", "Acrobot-v1", "--max_time", "10:00:00:00", "--lr", "[[0, 1e-3], [1e4, 1e-5]]"],
        ["--two_steps", "--lr_2", "1e-5", "--max_epochs_2", "3", "--patience_2", "4", "--average_weights_2", "null"],
        ["--two_steps", "--step2", "{lr: [[0, 1.0], [5, 0.2]], epsilon: 0.3, patience: null, step_per_epoch: 3333}"],
        [
            "--two_steps",
            "--step2",
            "{precision: bf16-true, average_weights: null, max_epochs: 4, monitor: Eval/length}",
        ],
        ["--two_steps", "--step2", "{algo: 'typed:TwoRates', critic_lr: 3.0}", "--gamma", "0.5", "--patience", "3"],
        ["--two_steps", "--algo", "typed:TwoRates", "--entropy", "[[0, 1.0], [9, 0.5]]"],
        ["--two_steps", "--algo", "typed:TwoRates", "--step2", "{algo: DQN, double: false}", "--max_steps", "7"],
        ["--env_config", "{a: '1e-3', b: [1, 2.5, null]}", "--monitor", "null", "--seed", "3", "--num_envs", "4"],
        ["--default_root_dir", "somewhere", "--logger", "false", "--enable_progress_bar", "false"],
        ["--barebones"],
    ],
)
def test_the_printed_settings_make_the_same_run(argv, tmp_path):
    before = resolved(*argv)
    (tmp_path / "printed.yaml").write_text(dump_yaml(before.flat))
    after = resolved("--config", str(tmp_path / "printed.yaml"))
    assert after.settings == before.settings
    assert after.flat == before.flat


def test_class_paths_are_printed_as_they_can_be_read(tmp_path):
    callbacks = '{"class_path": "pytorch_lightning.callbacks.Timer", "init_args": {"duration": "00:00:10:00"}}'
    flat = resolved("--callbacks", callbacks).flat
    assert load_yaml(dump_yaml(flat))["callbacks"] == load_yaml(callbacks)


def test_print_config_prints_every_setting_and_nothing_else(capsys):
    assert main(["train", "--print_config", "--two_steps", "--gamma", "0.5"]) == 0
    printed = load_yaml(capsys.readouterr().out)
    assert printed["gamma"] == 0.5
    assert (printed["lr_2"], printed["max_epochs_2"], printed["patience_2"]) == (1e-4, 8, 6)
    assert {"env", "num_envs", "step_per_epoch", "monitor", "total_timesteps", "devices", "max_epochs"} <= set(printed)


def test_settings_of_stage_2_are_printed_with_two_steps_only(capsys):
    main(["train", "--print_config"])
    assert "lr_2" not in load_yaml(capsys.readouterr().out)
