"""Every parameter of pl.Trainer: passed on untouched, done by us, or refused by name."""

from __future__ import annotations

import inspect
from datetime import timedelta

import pytest
import pytorch_lightning as pl
from pytorch_lightning.callbacks import Timer
from typed import second, settings

from lit_rl.cli.arguments import from_python
from lit_rl.cli.resolve import resolve
from lit_rl.cli.trainer_flags import NOT_SET, TRAINER_FLAGS, duration, own_defaults, try_out, world_size
from lit_rl.errors import UsageError

pytestmark = pytest.mark.usefixtures("fixed_zoo")

PARAMETERS = inspect.signature(pl.Trainer.__init__).parameters
PASSED = {
    "accelerator": "cpu",
    "strategy": "ddp",
    "devices": 2,
    "num_nodes": 2,
    "precision": "bf16-mixed",
    "fast_dev_run": 2,
    "min_epochs": 2,
    "min_steps": 5,
    "max_time": "00:01:00:00",
    "limit_train_batches": 0.5,
    "limit_val_batches": 0.5,
    "limit_test_batches": 3,
    "val_check_interval": 0.5,
    "check_val_every_n_epoch": 2,
    "num_sanity_val_steps": 2,
    "log_every_n_steps": 7,
    "enable_checkpointing": True,
    "enable_progress_bar": False,
    "enable_model_summary": True,
    "deterministic": "warn",
    "benchmark": True,
    "inference_mode": False,
    "use_distributed_sampler": False,
    "profiler": "simple",
    "detect_anomaly": True,
    "barebones": True,
    "sync_batchnorm": True,
    "reload_dataloaders_every_n_epochs": 2,
    "enable_autolog_hparams": False,
    "model_registry": "mine",
}
REFUSED = {"accumulate_grad_batches": "2", "overfit_batches": "0.1", "limit_predict_batches": "3"}
OURS = {
    "gradient_clip_val",
    "gradient_clip_algorithm",
    "max_epochs",
    "max_steps",
    "default_root_dir",
    "logger",
    "callbacks",
    "plugins",
}


def test_the_table_holds_exactly_the_parameters_of_this_lightning():
    assert list(PARAMETERS)[1:] == list(TRAINER_FLAGS)
    kinds = {kind: {name for name, flag in TRAINER_FLAGS.items() if flag.how == kind} for kind in ("passed", "ours")}
    assert kinds == {"passed": set(PASSED), "ours": OURS}
    assert set(TRAINER_FLAGS) == set(PASSED) | OURS | set(REFUSED)


@pytest.mark.parametrize("name", PASSED)
def test_a_passed_parameter_reaches_each_stage_as_it_was_typed(name):
    value = PASSED[name]
    assert value != PARAMETERS[name].default, "the test says something"
    found = settings("--two_steps" if name != "barebones" else "--double", f"--{name}", str(value))
    for stage in filter(None, (found.stage1, found.stage2)):
        assert stage.trainer[name] == value
        assert type(stage.trainer[name]) is type(value)


def test_parameters_that_nobody_typed_are_lightnings_own_but_for_ours():
    ours = {name: flag.default for name, flag in TRAINER_FLAGS.items() if flag.default is not NOT_SET}
    assert settings().stage1.trainer == ours | {"max_epochs": 20}
    assert ours == {"num_sanity_val_steps": 0, "log_every_n_steps": 1, "enable_model_summary": False}
    assert own_defaults({"barebones": True}) == {}, "barebones refuses them"


@pytest.mark.parametrize("name", REFUSED)
def test_a_refused_parameter_is_refused_by_name_with_what_to_use(name):
    with pytest.raises(UsageError, match=f"--{name} is not supported: .*use --|--{name} is not supported: .*larger --"):
        settings(f"--{name}", REFUSED[name])


def test_a_refused_parameter_at_its_default_passes():
    assert "accumulate_grad_batches" not in settings("--accumulate_grad_batches", "1").stage1.trainer


@pytest.mark.parametrize("precision", ["16-mixed", "16-true", "16", "transformer-engine-float16"])
def test_precisions_that_need_loss_scaling_are_refused(precision):
    with pytest.raises(UsageError, match=f"--precision {precision} is not supported.*bf16-mixed"):
        settings("--precision", precision)


@pytest.mark.parametrize(
    "strategy",
    [
        "ddp_spawn",
        "ddp_fork",
        "ddp_notebook",
        "deepspeed_spawn",
        '{"class_path": "DDPStrategy", "init_args": {"start_method": "fork"}}',
    ],
)
def test_strategies_whose_workers_keep_what_they_learn_are_refused(strategy):
    with pytest.raises(UsageError, match="--strategy .* is not supported.*use ddp"):
        settings("--strategy", strategy)


def test_a_strategy_object_that_forks_is_refused():
    from pytorch_lightning.strategies import DDPStrategy

    with pytest.raises(UsageError, match="DDPStrategy with start_method fork"):
        resolve(from_python({"strategy": DDPStrategy(start_method="fork")}))


def test_gradient_clipping_is_the_algorithms():
    stage = settings("--gradient_clip_val", "3", "--gradient_clip_algorithm", "value").stage1
    assert (stage.algorithm.gradient_clip_val, stage.algorithm.gradient_clip_algorithm) == (3.0, "value")
    assert "gradient_clip_val" not in stage.trainer


def test_default_root_dir_is_output_dir():
    found = settings("--default_root_dir", "a")
    assert found.run.output_dir == "a"
    assert "default_root_dir" not in found.stage1.trainer
    with pytest.raises(UsageError, match="contradict each other"):
        settings("--default_root_dir", "a", "--output_dir", "b")


def test_max_steps_is_handed_on():
    assert settings("--max_steps", "50").stage1.trainer["max_steps"] == 50
    for bad in ("0", "-2"):
        with pytest.raises(UsageError, match=f"--max_steps {bad} is out of range"):
            settings("--max_steps", bad)


@pytest.mark.parametrize(
    ("argv", "max_epochs"),
    [
        ([], 20),
        (["--tuned", "false"], 100),
        (["--max_epochs", "3"], 3),
        (["--max_epochs", "-1"], -1),
        (["--max_steps", "5"], -1),
        (["--max_time", "00:00:01:00"], -1),
        (["--total_timesteps", "500"], -1),
        (["--max_steps", "5", "--max_epochs", "3"], 3),
        (["--max_steps", "-1"], 20),
    ],
)
def test_max_epochs_has_a_default_only_without_another_limit(argv, max_epochs):
    assert settings(*argv).stage1.trainer["max_epochs"] == max_epochs


def test_callbacks_from_class_paths_are_new_in_each_stage():
    found = settings(
        "--two_steps", "--callbacks", '[{"class_path": "Timer", "init_args": {"duration": "00:00:10:00"}}]'
    )
    assert found.stage2 is not None
    (one,), (other,) = found.stage1.trainer["callbacks"], found.stage2.trainer["callbacks"]
    assert isinstance(one, Timer) and isinstance(other, Timer) and one is not other
    assert one.time_remaining() == 600


def test_a_callback_from_python_is_the_same_in_each_stage():
    timer = Timer()
    found = resolve(from_python({"two_steps": True, "callbacks": timer})).settings
    assert found.stage2 is not None
    assert found.stage1.trainer["callbacks"][0] is found.stage2.trainer["callbacks"][0] is timer


def test_a_strategy_from_python_is_copied_for_the_second_trainer():
    from pytorch_lightning.strategies import DDPStrategy

    found = resolve(from_python({"two_steps": True, "strategy": DDPStrategy()})).settings
    assert found.stage2 is not None
    assert found.stage1.trainer["strategy"] is not found.stage2.trainer["strategy"]


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["--barebones"], "--barebones true"),
        (["--enable_checkpointing", "false"], "--enable_checkpointing false"),
        (["--limit_val_batches", "0"], "--limit_val_batches 0"),
        (["--limit_val_batches", "0.01"], "--limit_val_batches 0.01"),
        (["--limit_train_batches", "0"], "--limit_train_batches 0"),
        (["--limit_train_batches", "0.01"], "--limit_train_batches 0.01"),
        (["--max_epochs", "0"], "--max_epochs 0"),
        (["--max_epochs_2", "0"], "--max_epochs_2 0"),
        (["--max_time", "00:00:00:00"], "--max_time 00:00:00:00"),
        (["--check_val_every_n_epoch", "21"], "--check_val_every_n_epoch 21 .* ends after 20 epochs"),
        (["--check_val_every_n_epoch", "9"], "--check_val_every_n_epoch 9 .* ends after 8 epochs"),
        (["--check_val_every_n_epoch", "3", "--total_timesteps", "5120"], "ends after 2 epochs"),
        (["--val_check_interval", "11"], "--val_check_interval 11 .* an epoch has 10 iterations"),
        (["--val_check_interval", "0"], "--val_check_interval 0"),
        (["--val_check_interval", "81", "--check_val_every_n_epoch", "null"], "a stage has 80 iterations"),
        (["--val_check_interval", "00:01:00:00", "--max_time", "00:00:30:00"], "longer than --max_time"),
        (["--step2", '{"limit_val_batches": 0}'], "--step2: limit_val_batches 0"),
    ],
)
def test_two_steps_refuses_what_leaves_no_evaluation_to_choose_by(argv, message):
    with pytest.raises(UsageError, match=message):
        settings("--two_steps", *argv)


@pytest.mark.parametrize(
    "argv",
    [
        ["--enable_checkpointing", "true"],
        ["--limit_val_batches", "1"],
        ["--check_val_every_n_epoch", "8"],
        ["--check_val_every_n_epoch", "2", "--total_timesteps", "5120"],
        ["--val_check_interval", "10"],
        ["--val_check_interval", "80", "--check_val_every_n_epoch", "null"],
        ["--val_check_interval", "0.1"],
        ["--val_check_interval", "00:00:10:00", "--max_time", "00:00:30:00"],
        ["--fast_dev_run"],
    ],
)
def test_two_steps_takes_what_leaves_one(argv):
    settings("--two_steps", *argv)


@pytest.mark.parametrize(
    "argv", [["--barebones"], ["--enable_checkpointing", "false"], ["--limit_val_batches", "0"], ["--max_epochs", "0"]]
)
def test_one_stage_may_go_without_evaluation(argv):
    settings(*argv)


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["--max_epochs", "-5"], "max_epochs"),
        (["--strategy", "foo"], "strategy"),
        (["--max_time", "5"], "duration"),
        (["--limit_val_batches", "1.5"], "limit_val_batches"),
        (["--profiler", "foo"], "profiler"),
        (["--plugins", "TorchCheckpointIO"], "CheckpointIO"),
    ],
)
def test_what_lightning_refuses_is_refused_before_the_run(argv, message):
    with pytest.raises(UsageError, match=message):
        try_out(settings(*argv).stage1.trainer)


def test_trying_a_trainer_out_creates_nothing(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    try_out(settings("--profiler", "simple", "--accelerator", "cpu").stage1.trainer)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("trainer", "ranks"),
    [
        ({"accelerator": "cpu"}, 1),
        ({"accelerator": "cpu", "devices": 2}, 2),
        ({"devices": "2", "num_nodes": 3}, 6),
        ({"devices": [0, 2]}, 2),
        ({"devices": "0,2,"}, 2),
        ({"devices": -1, "accelerator": "cpu"}, 1),
    ],
)
def test_the_number_of_ranks_is_known_beforehand(trainer, ranks):
    assert world_size(trainer) == ranks


def test_durations_are_read_as_lightning_reads_them():
    assert duration("01:01:01:01") == 90061
    assert duration({"minutes": 2}) == duration(timedelta(minutes=2)) == 120
    assert duration(3) is duration(None) is duration("3") is None


def test_stage_2_may_have_a_trainer_flag_of_its_own():
    assert second("--step2", '{"precision": "bf16-true"}').trainer["precision"] == "bf16-true"
