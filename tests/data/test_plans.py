from __future__ import annotations

import dataclasses

import pytest

from lit_rl.data.plans import ReplayPlan, fit_iteration
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
