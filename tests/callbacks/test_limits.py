"""How long a run goes on."""

from __future__ import annotations

import math
import time

from lit_rl.callbacks.limits import Pace


def test_the_first_limit_that_is_reached_says_how_long_a_run_goes_on(monkeypatch):
    now = [100.0]
    monkeypatch.setattr(time, "perf_counter", lambda: now[0])
    pace = Pace()
    assert pace.seconds_left([(10, 30), (1, None)]) == 0.0  # nothing is known yet
    now[0] += 5.0
    assert pace.seconds_left([(20, 30), (1, None)]) == 5.0
    assert pace.seconds_left([(20, None), (2, None)]) == math.inf
    assert pace.seconds_left([(20, 40), (2, 3)]) == 5.0
