"""What counts in each stage, weakest first."""

from __future__ import annotations

import pytest
from typed import resolved, second, settings

from lit_rl.errors import UsageError
from lit_rl.pipeline.settings import Stage2Config

pytestmark = pytest.mark.usefixtures("fixed_zoo")

PLAIN = ("--tuned", "false")  # the defaults of the dataclasses


def test_without_two_steps_there_is_no_second_stage():
    assert settings().stage2 is None


@pytest.mark.parametrize(
    "argv",
    [
        ["--lr_2", "1e-4"],
        ["--max_epochs_2", "3"],
        ["--patience_2", "6"],
        ["--average_weights_2", "null"],
        ["--step2", "{lr: 1}"],
        ["--config", "{lr_2: 1e-4, two_steps: false}"],
    ],
)
def test_settings_of_stage_2_without_two_steps_are_refused(argv):
    with pytest.raises(UsageError, match=r"is a setting of the second stage: add --two_steps"):
        settings(*argv)


def test_schedules_stand_at_their_final_values_in_stage_2():
    assert second("--epsilon", "[[0, 1.0], [10, 0.25]]").algorithm.epsilon == 0.25


def test_the_learning_rate_of_stage_2_is_three_tenths_of_the_last_one():
    assert second(*PLAIN).algorithm.lr == pytest.approx(0.3 * 5e-4)
    assert second("--lr", "[[0, 1.0], [10, 0.5]]").algorithm.lr == pytest.approx(0.15), "a tuned lr_2 does not count"


@pytest.mark.parametrize(
    ("argv", "lr"),
    [
        ([], 1e-4),  # tuned
        (["--lr_2", "5e-5"], 5e-5),
        (["--lr_2", "5e-5", "--lr", "1"], 5e-5),
        (["--step2", "{lr: 7e-5}"], 7e-5),
        (["--step2", "{lr: [[0, 2.0], [9, 1.0]]}"], [[0, 2.0], [9, 1.0]]),
        (["--lr_2", "null"], 0.3e-3),
    ],
)
def test_lr_2_and_step2_set_the_learning_rate_of_stage_2(argv, lr):
    assert second(*argv).algorithm.lr == (pytest.approx(lr) if isinstance(lr, float) else lr)


def test_every_learning_rate_is_lowered():
    config = second("--algo", "typed:TwoRates", "--actor_lr", "1e-2").algorithm
    assert config.actor_lr == pytest.approx(0.3e-2)
    assert config.critic_lr == pytest.approx(0.15)
    assert config.lr == pytest.approx(0.3 * 5e-4)
    assert config.entropy == 0.1
    config = second("--algo", "typed:TwoRates", "--lr_2", "1e-5", "--step2", "{critic_lr: 2.0}").algorithm
    assert (config.lr, config.actor_lr, config.critic_lr) == (1e-5, 1e-5, 2.0)


@pytest.mark.parametrize(
    ("argv", "first", "second"),
    [
        ([], 20, 8),  # tuned
        (PLAIN, 100, 100),
        (["--max_epochs", "3"], 3, 3),
        (["--max_epochs", "3", "--max_epochs_2", "5"], 3, 5),
        (["--max_epochs_2", "5"], 20, 5),
        (["--max_epochs_2", "5", "--step2", "{max_epochs: 6}"], 20, 6),
        (["--max_steps", "9"], -1, -1),
        (["--max_steps", "9", "--max_epochs_2", "5"], -1, 5),
        (["--step2", "{max_steps: 9}"], 20, -1),
    ],
)
def test_epochs_of_both_stages(argv, first, second):
    found = settings("--two_steps", *argv)
    assert found.stage2 is not None
    assert (found.stage1.trainer["max_epochs"], found.stage2.trainer["max_epochs"]) == (first, second)


def test_limits_and_trainer_flags_hold_in_each_stage():
    stage = second("--max_steps", "9", "--total_timesteps", "512", "--precision", "bf16-true")
    assert stage.trainer["max_steps"] == 9
    assert stage.limits.total_timesteps == 512
    assert stage.trainer["precision"] == "bf16-true"


def test_what_was_typed_for_stage_1_holds_in_stage_2():
    stage = second("--gamma", "0.5", "--monitor", "Eval/length", "--stop_return", "475", "--step_per_epoch", "5120")
    assert (stage.algorithm.gamma, stage.data.step_per_epoch) == (0.5, 5120)
    assert (stage.keep.monitor, stage.keep.stop_return) == ("Eval/length", 475)


def test_patience_and_average_of_stage_2_are_its_own():
    stage = second("--patience", "3", "--average_weights", "0.5")
    assert (stage.keep.patience, stage.keep.average_weights) == (6, Stage2Config.average_weights_2)
    stage = second("--patience_2", "4", "--average_weights_2", "null")
    assert (stage.keep.patience, stage.keep.average_weights) == (4, None)
    assert second("--patience_2", "4", "--step2", "{patience: null}").keep.patience is None


def test_step2_sets_any_field_and_the_algorithm():
    stage = second("--step2", '{"algo": "typed:TwoRates", "entropy": 0.7, "step_per_epoch": 512, "gamma": 0.3}')
    assert stage.algo == "typed:TwoRates"
    assert (stage.algorithm.entropy, stage.algorithm.gamma, stage.data.step_per_epoch) == (0.7, 0.3, 512)


def test_another_algorithm_starts_from_its_own_defaults_and_what_was_typed():
    found = resolved("--two_steps", "--gamma", "0.5", "--n_step", "3", "--step2", "{run: typed:TwoRates}")
    stage = found.settings.stage2
    assert stage is not None
    assert (stage.algorithm.gamma, stage.algorithm.steps_per_iteration) == (0.5, 200), "the tuned 256 are DQN's"
    assert "stage 2: typed:TwoRates has no n_step: what was given holds in stage 1 only" in found.notes
    assert stage.algorithm.lr == pytest.approx(0.3 * 5e-4), "a third of its own: stage 1's is that of another algorithm"


def test_settings_of_the_whole_run_are_those_of_stage_1_also_beside_another_algorithm():
    run = ("--episode_per_test", "7", "--test_episodes", "9")
    stage = second(*run, "--step2", "{algo: typed:TwoRates}")
    evaluation = stage.evaluation
    assert (evaluation.episode_per_test, evaluation.test_episodes) == (7, 9)
    assert evaluation.num_test_envs == 30, "tuned for stage 1: one datamodule serves both stages"


def test_a_module_of_ones_own_must_be_a_litpolicy():
    assert second("--step2", "{module: lit_rl.lit_policy:LitPolicy}").module == "lit_rl.lit_policy:LitPolicy"
    with pytest.raises(UsageError, match="is no subclass of lit_rl.LitPolicy"):
        second("--step2", "{module: typed:TwoRates}")
    with pytest.raises(UsageError, match="^--step2: module nowhere:Mine cannot be imported: ModuleNotFoundError"):
        second("--step2", "{module: nowhere:Mine}")


@pytest.mark.parametrize(
    ("step2", "message"),
    [
        ("{lrr: 1}", "--step2: unknown setting lrr; nearest: lr"),
        ("{seed: 1}", "--step2: seed holds for the whole run; give it as --seed"),
        ("{env: CartPole-v1}", "--step2: env holds for the whole run"),
        ("{output_dir: x}", "--step2: output_dir holds for the whole run"),
        ("{test_episodes: 3}", "--step2: test_episodes holds for the whole run"),
        ("{lr_2: 1}", "--step2: lr_2 does not belong here; use lr"),
        ("{two_steps: true}", "--step2: two_steps does not belong here"),
        ("{algo: DQM}", "did you mean DQN"),
        ("{algo: 3}", "--step2: algo needs the name of an algorithm"),
        ("{lr: abc}", "--step2: lr 'abc' is not allowed: give a number"),
        ("{lr: null}", "--step2: lr null is not allowed"),
        ("{gamma: 2}", "--step2: gamma 2.0 is out of range"),
        ("3", "--step2 '3' is not allowed: give {name: value, ...}"),
    ],
)
def test_bad_step2_is_refused(step2, message):
    with pytest.raises(UsageError) as refused:
        second("--step2", step2)
    assert message in str(refused.value)


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["--lr_2", "-3"], "--lr_2 -3.0 is out of range"),
        (["--average_weights_2", "1.5"], "--average_weights_2 1.5 is out of range"),
        (["--patience_2", "0"], "--patience_2 0 is out of range"),
    ],
)
def test_values_of_stage_2_out_of_range_are_named_as_they_were_typed(argv, message):
    with pytest.raises(UsageError, match=message):
        second(*argv)


# ---- the sizes of an iteration ----


@pytest.mark.parametrize(
    ("argv", "iteration", "collect"),
    [
        ([], 200, 4),  # the defaults, in an epoch of 10,000
        (["--step_per_epoch", "150"], 150, 3),
        (["--step_per_epoch", "100"], 100, 4),
        (["--num_envs", "16", "--step_per_epoch", "10400"], 160, 4),
        (["--num_envs", "4", "--devices", "2"], 200, 4),
        (["--steps_per_iteration", "500"], 500, 4),
        (["--steps_per_iteration", "500", "--collect_per_step", "250"], 500, 250),
        (["--collect_per_step", "16", "--step_per_epoch", "10400"], 160, 16),
        (["--collect_per_step", "1000"], 1000, 1000),
    ],
)
def test_sizes_that_nobody_typed_become_the_largest_that_fit(argv, iteration, collect):
    config = settings(*PLAIN, *argv).stage1.algorithm
    assert (config.steps_per_iteration, config.collect_per_step) == (iteration, collect)


def test_what_was_adapted_is_said_once():
    note = "steps_per_iteration is 150 instead of 200 and collect_per_step is 3 instead of 4: an epoch is 150 env steps"
    assert resolved(*PLAIN, "--two_steps", "--step_per_epoch", "150").notes == [note]
    assert resolved(*PLAIN).notes == []


def test_tuned_sizes_are_adapted_too():
    config = settings("--step_per_epoch", "1000").stage1.algorithm
    assert (config.steps_per_iteration, config.collect_per_step) == (250, 250)


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (
            ["--steps_per_iteration", "300"],
            "--steps_per_iteration 300 must divide step_per_epoch 10000: use 250 or 400",
        ),
        (["--steps_per_iteration", "10", "--num_envs", "4"], "a multiple of the 4 env steps .*: use 8 or 16"),
        (["--steps_per_iteration", "2", "--num_envs", "4"], "a multiple of the 4 env steps .*: use 4$"),
        (["--num_envs", "3"], "step_per_epoch 10000 is not a multiple of the 3 env steps"),
        (["--collect_per_step", "7"], "--collect_per_step 7 must divide step_per_epoch 10000: use 5 or 8"),
        (
            ["--collect_per_step", "7", "--steps_per_iteration", "250"],
            "--collect_per_step 7 must divide steps_per_iteration 250: use 5 or 10",
        ),
        (
            ["--two_steps", "--step2", "{steps_per_iteration: 300}"],
            "--step2: steps_per_iteration 300 must divide step_per_epoch 10000",
        ),
        (["--steps_per_iteration", "0"], "--steps_per_iteration 0 is out of range"),
        (["--collect_per_step", "0"], "--collect_per_step 0 is out of range"),
        (["--step_per_epoch", "0"], "--step_per_epoch 0 is out of range"),
    ],
)
def test_typed_sizes_that_do_not_fit_are_refused_with_the_nearest_that_do(argv, message):
    with pytest.raises(UsageError, match=message):
        settings(*PLAIN, *argv)


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["--lr_2", "5e-5", "--step2", "{lr: 7e-5}"], "--lr_2 5e-05 and --step2 with lr 7e-05 contradict each other"),
        (["--step2", "{algo: DQN, run: DQN}"], "--step2: run and algo say the same"),
        (["--max_epochs_2", "-3"], "--max_epochs_2 -3 is out of range"),
        (["--max_epochs", "-5"], "--max_epochs -5 is out of range"),
        (["--config", "{seed: true}"], r"--seed true \(in the inline config\) is not allowed: give a whole number"),
    ],
)
def test_a_line_says_what_is_wrong(argv, message):
    with pytest.raises(UsageError, match=message):
        second(*argv)


def test_what_keeps_the_policy_may_be_given_by_flag_or_in_step2():
    given = ("--algo", "PPO", "--env", "CartPole-v1")
    by_flag = second(*given, "--anchor", "[[0, 0.5], [900, 0.0]]", "--critic_warmup", "7").refine
    in_step2 = second(*given, "--critic_warmup", "7", "--step2", "{anchor: [[0, 0.5], [900, 0.0]]}").refine
    assert by_flag == in_step2 and (by_flag.anchor, by_flag.critic_warmup) == ([[0, 0.5], [900, 0.0]], 7)
    plain = second(*given).refine
    assert (plain.anchor, plain.critic_warmup, plain.critic_warmup_lr) == (0.0, None, 3e-4), "PPO's own rate"
    assert second(*given, "--anchor", "0.5", "--step2", "{anchor: 0.1}").refine.anchor == 0.1


def test_an_entropy_that_another_algorithm_did_not_tune_begins_small():
    assert second("--algo", "TD3", "--env", "Pendulum-v1", "--step2", "{algo: SAC}").algorithm.alpha == 0.05
    typed = ("--algo", "TD3", "--env", "Pendulum-v1", "--step2", "{algo: SAC, alpha: 0.3}")
    assert second(*typed).algorithm.alpha == 0.3
    assert second("--algo", "SAC", "--env", "Pendulum-v1").algorithm.alpha == 1.0, "learned on from where it stands"
