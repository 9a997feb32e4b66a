"""scripts/two_stage.py: what counts as solved and as a collapse, and settings that fit each other."""

from __future__ import annotations

from pathlib import Path

import pytest
from two_stage import SETS, SHARED, collapses, kinds, settings_of, solved_at

from lit_rl.cli.arguments import from_python
from lit_rl.cli.resolve import resolve


def test_solved_is_the_first_of_two_evaluations_in_a_row():
    points = [[100, 480], [200, 300], [300, 475], [400, 500]]
    assert solved_at(points, 475) == 300
    assert solved_at(points[:2], 475) is None and solved_at([], 475) is None


def test_a_collapse_is_two_evaluations_in_a_row_a_tenth_of_the_range_below():
    # the range is 450, so that 400 may fall to 355
    assert not collapses([[1, 350], [2, 360], [3, 350]], 400, 475, 25)
    assert collapses([[1, 360], [2, 354], [3, 350]], 400, 475, 25)


@pytest.mark.parametrize("name", SETS)
def test_every_run_of_a_set_can_start(name):
    for kind in kinds(SETS[name]):
        resolved = resolve(from_python(SHARED | settings_of(SETS[name], kind, Path("x")) | {"seed": 0}))
        second = resolved.settings.stage2
        assert (second is None) == (kind not in ("two-stage", "control"))
        if kind == "control":
            assert (second.refine.anchor, second.refine.critic_warmup, second.refine.offline_fraction) == (0.0, 0, 0.0)
