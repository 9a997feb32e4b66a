from __future__ import annotations

import dataclasses

import pytest

from lit_rl.data.plans import ReplayPlan, RolloutPlan, fit_iteration
from lit_rl.errors import UsageError

PLAN = ReplayPlan(
    steps_per_iteration=256,
    collect_per_step=4,
    update_per_step=0.25,
    batch_size=8,
    buffer_size=100,
    learning_starts=0,
    gamma=0.9,
)


@pytest.mark.parametrize(
    "wanted, epoch, vector, expected",
    [(256, 2560, 1, 256), (256, 1000, 1, 250), (256, 1000, 8, 200), (256, 96, 8, 96), (4, 100, 10, 10), (7, 7, 7, 7)],
)
def test_an_iteration_is_the_largest_that_fits(wanted, epoch, vector, expected):
    assert fit_iteration(wanted, epoch, vector) == expected


def test_an_epoch_of_broken_vector_steps_is_refused_with_one_that_works():
    with pytest.raises(UsageError, match="--step_per_epoch 96 or"):
        fit_iteration(10, 100, 8)


def test_collect_per_step_follows_the_iteration():
    fitted = PLAN.fit(step_per_epoch=90, vector_step=1)
    assert (fitted.steps_per_iteration, fitted.collect_per_step) == (90, 3)
    assert dataclasses.replace(fitted, steps_per_iteration=256, collect_per_step=4) == PLAN


def test_a_plan_is_frozen():
    with pytest.raises(dataclasses.FrozenInstanceError):
        PLAN.gamma = 1.0


ROLLOUT = RolloutPlan(steps_per_iteration=256, rollout_length=32, epochs=4, batch_size=64, gamma=0.9, gae_lambda=0.95)


@pytest.mark.parametrize(
    "length, iteration, epoch, vector, expected",
    [
        (32, 256, 2560, 8, (32, 256)),
        (5, 1000, 10_000, 8, (5, 1000)),
        (2048, 256, 10_000, 1, (2000, 2000)),  # one rollout at least, and epochs of whole ones
        (2048, 10_000, 10_000, 1, (2000, 10_000)),
        (100, 300, 1000, 1, (100, 200)),
        (64, 64, 96, 8, (12, 96)),
        (1, 1, 7, 1, (1, 1)),
    ],
)
def test_an_iteration_holds_whole_rollouts_and_an_epoch_whole_iterations(length, iteration, epoch, vector, expected):
    plan = dataclasses.replace(ROLLOUT, rollout_length=length, steps_per_iteration=iteration)
    fitted = plan.fit(epoch, vector)
    assert (fitted.rollout_length, fitted.steps_per_iteration) == expected
    assert fitted.fit(epoch, vector) == fitted
    with pytest.raises(UsageError, match="--step_per_epoch 96 or"):
        ROLLOUT.fit(100, 8)
