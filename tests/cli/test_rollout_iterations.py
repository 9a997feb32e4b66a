"""The sizes of rollouts and iterations of the on-policy algorithms."""

from __future__ import annotations

import pytest
from typed import resolved

from lit_rl.algorithms import find_algorithm
from lit_rl.cli.resolve import FlagParser
from lit_rl.errors import UsageError
from lit_rl.zoo import entries

A2C = ("--algo", "A2C", "--tuned", "false", "--step_per_epoch", "1000")


def sizes(*argv):
    found = resolved(*A2C, *argv)
    config = found.settings.stage1.algorithm
    return config.rollout_length, config.steps_per_iteration, found.notes


@pytest.mark.parametrize(
    ("argv", "rollout", "iteration"),
    [
        ([], 5, 200),
        (["--num_envs", "8"], 5, 200),
        (["--rollout_length", "20"], 20, 200),
        (["--rollout_length", "1000"], 1000, 1000),
        (["--rollout_length", "25", "--num_envs", "4", "--steps_per_iteration", "500"], 25, 500),
    ],
)
def test_an_iteration_holds_whole_rollouts_without_a_word(argv, rollout, iteration):
    assert sizes(*argv) == (rollout, iteration, [])


def test_a_rollout_that_nobody_typed_shrinks_into_the_epoch_and_says_so():
    found = resolved("--algo", "PPO", "--tuned", "false", "--step_per_epoch", "10000", "--num_envs", "4")
    config = found.settings.stage1.algorithm
    assert (config.rollout_length, config.steps_per_iteration) == (1250, 5000)
    assert found.notes == ["rollout_length is 1250 instead of 2048: each env makes 2500 steps an epoch"]


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["--rollout_length", "30"], r"--rollout_length 30 must divide the 1000 env steps .*: use 25 or 40"),
        (["--rollout_length", "9", "--num_envs", "4"], r"must divide the 250 env steps .*: use 5 or 10"),
        (["--steps_per_iteration", "300"], r"--steps_per_iteration 300 must divide .* of a rollout: use 250 or 500"),
        (["--steps_per_iteration", "4"], r"be a multiple of the 5 env steps of a rollout: use 5"),
        (["--num_envs", "3"], r"step_per_epoch 1000 is not a multiple of the 3 env steps"),
        (["--rollout_length", "0"], r"--rollout_length 0 is out of range"),
    ],
)
def test_typed_sizes_that_do_not_fit_are_refused_with_the_nearest_that_do(argv, message):
    with pytest.raises(UsageError, match=message):
        sizes(*argv)


@pytest.mark.parametrize("algo", ["PG", "A2C", "PPO"])
def test_every_tuned_entry_is_valid_and_fits_its_epoch(algo):
    parser = FlagParser(find_algorithm(algo))
    assert entries(algo)
    for env, entry in entries(algo).items():
        assert {"reference", "source"} <= entry.keys()
        parser.check({k: v for k, v in entry.items() if k not in ("reference", "source")})
        found = resolved("--algo", algo, "--env", env, "--two_steps")
        assert found.notes == [f"using the tuned settings of {algo} on {env} (--tuned false turns them off)"]
        stages = found.settings.stage1, found.settings.stage2
        for stage in stages:
            assert stage.algorithm.rollout_length == entry.get(
                "rollout_length", find_algorithm(algo).Config().rollout_length
            )
            assert stage.trainer["max_epochs"] > 0
        assert stages[1].algorithm.lr > 0, "stage 2 goes on"
        assert getattr(stages[1].algorithm, "clip", 1) > 0
