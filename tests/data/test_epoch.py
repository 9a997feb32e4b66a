"""What an epoch of training shows, against values worked out by hand."""

from __future__ import annotations

import pytest
import torch

from lit_rl.data.epoch import EpochMetrics
from lit_rl.data.transitions import Episode
from lit_rl.errors import NumericsError


def episode(return_, length=10, **custom):
    return Episode(0, return_, length, None, custom or None)


def logged(value):
    return {"loss": torch.tensor(value)}


def test_an_epoch_is_the_mean_of_its_updates_and_the_episodes_that_ended_in_it():
    epoch = EpochMetrics()
    for iteration in ([1.0, 2.0], [6.0]):
        for value in iteration:
            epoch.update(logged(value))
        epoch.end_iteration([episode(iteration[0], 4), episode(8.0, 6)])
    assert epoch.newest == {"loss": 6.0} and len(epoch.finished) == 4
    assert epoch.compute(1, False) == {
        "Train/loss": 3.0,
        "Train/return": 23 / 4,
        "Train/length": 5.0,
        "Train/episodes": 4,
        "Train/return_min": 1.0,
        "Train/return_max": 8.0,
    }
    assert epoch.compute(1, False) == {} and epoch.newest == {}


def test_returns_are_of_a_window_where_fewer_episodes_ended():
    epoch = EpochMetrics()
    epoch.end_iteration([episode(float(n)) for n in range(5)])
    assert epoch.compute(3, False)["Train/return"] == 2.0, "all that ended count"
    epoch.end_iteration([episode(10.0)])
    found = epoch.compute(3, False)
    assert (found["Train/return"], found["Train/return_min"], found["Train/episodes"]) == ((3 + 4 + 10) / 3, 3.0, 1)


def test_what_hooks_measured_is_summed_up_where_there_are_hooks():
    epoch = EpochMetrics()
    epoch.end_iteration([episode(1.0, a=1.0), episode(1.0, a=3.0), episode(1.0)])
    found = epoch.compute(1, hooked=True)
    assert (found["Train/a_mean"], found["Train/a_min"], found["Train/a_max"]) == (2.0, 1.0, 3.0)
    epoch.end_iteration([episode(1.0, a=1.0)])
    assert "Train/a_mean" not in epoch.compute(1, hooked=False)


def test_a_mean_that_is_no_number_is_an_error():
    epoch = EpochMetrics()
    epoch.update(logged(float("nan")))
    epoch.end_iteration([])
    with pytest.raises(NumericsError, match="Train/loss is nan"):
        epoch.compute(1, False)


def test_a_saved_epoch_goes_on_and_another_rank_takes_no_episodes_of_it():
    one, two, other = (EpochMetrics() for _ in range(3))
    one.end_iteration([episode(5.0), episode(6.0)])
    one.compute(2, False)
    one.update(logged(1.0))
    one.end_iteration([episode(9.0)])
    two.load_state_dict(one.state_dict())
    other.load_state_dict(one.state_dict(), episodes=False)
    assert (other.finished, other.window) == ([], []) and other.newest == {"loss": 1.0}
    assert two.compute(2, False) == one.compute(2, False)
