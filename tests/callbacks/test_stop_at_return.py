"""A stage ends at the evaluation that reaches the return, and stays ended."""

from __future__ import annotations

from pathlib import Path

import pytest
from counting_module import CountingModule, fit

from lit_rl.callbacks.last import LastCheckpoint
from lit_rl.callbacks.stop import StopAtReturn
from lit_rl.checkpoint import load
from lit_rl.errors import UsageError


def test_fit_ends_at_the_first_evaluation_that_reaches_the_value() -> None:
    module, stop = CountingModule(), StopAtReturn("Eval/return", 40.0)
    fit(module, 10, [stop])
    assert module.trained_epochs == [0, 1]
    assert stop.reached and stop.score == 40.0


def test_fit_goes_on_while_the_value_is_not_reached() -> None:
    module, stop = CountingModule(), StopAtReturn("Eval/return", 1000.0)
    fit(module, 3, [stop])
    assert module.trained_epochs == [0, 1, 2]
    assert not stop.reached


def test_a_return_that_is_no_number_meets_nothing() -> None:
    stop = StopAtReturn("Eval/return", 20.0)
    assert stop.met(20.0) and not stop.met(19.9) and not stop.met(float("nan"))


def test_sanity_check_cannot_end_a_fit() -> None:
    module, stop = CountingModule(), StopAtReturn("Eval/return", 0.0)
    fit(module, 2, [stop], num_sanity_val_steps=1)
    assert module.trained_epochs == [0] and stop.score == 20.0, "the 0 of the sanity check reaches the value too"


def test_reached_is_kept_in_the_checkpoint_and_asked_anew_with_a_new_value(tmp_path: Path) -> None:
    fit(CountingModule(), 10, [StopAtReturn("Eval/return", 40.0), LastCheckpoint(tmp_path)])
    [state] = [s for key, s in load(tmp_path / "last.ckpt")["callbacks"].items() if "StopAtReturn" in key]
    again, harder = StopAtReturn("Eval/return", 40.0), StopAtReturn("Eval/return", 50.0)
    again.load_state_dict(state)
    harder.load_state_dict(state)
    assert again.reached
    assert not harder.reached


def test_metric_that_is_not_logged_is_named() -> None:
    with pytest.raises(UsageError, match="Eval/reward is not logged; there are Eval/return"):
        fit(CountingModule(), 2, [StopAtReturn("Eval/reward", 1.0)])
