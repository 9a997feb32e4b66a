import math

import numpy as np
import pytest

from lit_rl.functional.schedules import check_schedule, final_value, standing_value, value_at, values_along

LINE = [[100, 1.0], [300, 0.5], [400, 0.0]]


@pytest.mark.parametrize(
    ("env_steps", "value"),
    [
        (0, 1.0),  # flat before the first point
        (100, 1.0),
        (150, 0.875),  # 1 - 0.5 * 50 / 200
        (300, 0.5),
        (375, 0.125),  # 0.5 - 0.5 * 75 / 100
        (400, 0.0),
        (10**12, 0.0),  # flat after the last
    ],
)
def test_a_schedule_is_a_line_through_its_points(env_steps, value):
    assert value_at(LINE, env_steps) == pytest.approx(value)
    assert values_along(LINE, env_steps, 1, 1) == pytest.approx(np.array([value]))


def test_values_along_a_schedule_are_those_at_each_step():
    for first in (0, 250, 390):
        expected = [value_at(LINE, first + 30 * i) for i in range(6)]
        assert values_along(LINE, first, 30, 6).tolist() == pytest.approx(expected)


def test_a_number_is_constant():
    assert value_at(3, 7) == 3.0
    assert values_along(0.25, 3, 2, 4).tolist() == [0.25]
    assert final_value(0.25) == 0.25


def test_a_schedule_stands_still_from_its_last_point_on():
    assert standing_value(LINE, 399) is None and standing_value(LINE, 400) == standing_value(LINE, 500) == 0.0
    assert standing_value(0.25, 0) == 0.25


def test_the_final_value_is_that_of_the_last_point():
    assert final_value(LINE) == value_at(LINE, 10**9) == 0.0


@pytest.mark.parametrize("schedule", [0, 0.5, LINE, [[0, 1]], [[0, 1.0], [8000, 0.04]]])
def test_good_schedules_pass(schedule):
    check_schedule("epsilon", schedule)


@pytest.mark.parametrize(
    "schedule",
    [
        math.nan,
        math.inf,
        True,
        None,
        "0.5",
        [],
        [[]],
        [0, 1],
        [[0, 1, 2]],
        [[0, math.nan]],
        [[0, "1"]],
        [[-1, 1.0]],
        [[10, 1.0], [10, 0.5]],
        [[10, 1.0], [5, 0.5]],
    ],
)
def test_bad_schedules_are_refused_by_name(schedule):
    with pytest.raises(ValueError, match=r"epsilon .*\[\[env_steps, value\], \.\.\.\]"):
        check_schedule("epsilon", schedule)
