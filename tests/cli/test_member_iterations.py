"""The number of ES's members and the size of its iterations."""

from __future__ import annotations

import pytest
from typed import resolved

from lit_rl.errors import UsageError

ES = ("--algo", "ES", "--tuned", "false", "--step_per_epoch", "1000")


def sizes(*argv):
    found = resolved(*ES, *argv)
    config = found.settings.stage1.algorithm
    plan = config.members, config.steps_per_iteration
    return *plan, found.notes


@pytest.mark.parametrize(
    ("argv", "members", "iteration"),
    [
        (["--members", "50", "--steps_per_iteration", "500"], 50, 500),
        (["--members", "1000", "--steps_per_iteration", "1000", "--num_envs", "4"], 1000, 1000),
        (["--steps_per_iteration", "200"], 40, 200),
    ],
)
def test_typed_sizes_that_fit_stay_as_they_are(argv, members, iteration):
    assert sizes(*argv) == (members, iteration, [])


@pytest.mark.parametrize(
    ("argv", "members", "iteration", "note"),
    [
        (["--num_envs", "5"], 40, 1000, "steps_per_iteration is 1000 instead of 10000: pairs in each of 5 envs"),
        (["--steps_per_iteration", "500"], 20, 500, "members is 20 instead of 40: pairs in each of 1 envs"),
        (
            ["--num_envs", "25", "--steps_per_iteration", "200"],
            50,
            200,
            "members is 50 instead of 40: pairs in each of 25",
        ),
    ],
)
def test_sizes_that_nobody_typed_follow_in_one_line(argv, members, iteration, note):
    found = sizes(*argv)
    assert found[:2] == (members, iteration)
    assert len(found[2]) == 1 and found[2][0].startswith(note), found


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["--members", "30"], r"--members 30 must divide step_per_epoch 1000, .* of 2, .*: use 20 or 40"),
        (["--members", "25"], r"--members 25 must divide .* a pair in each of 1 envs: use 20 or 40"),
        (["--members", "10", "--num_envs", "10"], r"--members 10 must .* be a multiple of 20.*: use 20"),
        (["--members", "3000"], r"--members 3000 must divide step_per_epoch 1000, .*: use 1000"),
        (
            ["--steps_per_iteration", "300"],
            r"--steps_per_iteration 300 must divide step_per_epoch 1000, .*: use 250 or 500",
        ),
        (["--members", "40", "--steps_per_iteration", "500"], r"multiple of the 40 members: use 200 or 1000"),
        (["--members", "200", "--steps_per_iteration", "100"], r"multiple of the 200 members: use 200"),
        (["--num_envs", "3"], r"step_per_epoch 1000 cannot be shared out .* use --step_per_epoch 1002"),
        (["--members", "1"], r"--members 1 is out of range"),
    ],
)
def test_typed_sizes_that_do_not_fit_are_refused_with_the_nearest_that_do(argv, message):
    with pytest.raises(UsageError, match=message):
        sizes(*argv)
