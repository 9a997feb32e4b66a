"""Scheduled numbers reach losses as tensors."""

import torch

from lit_rl.algorithms.scheduled import Scheduled

LINE = [[100, 1.0], [300, 0.5], [400, 0.0]]


def test_a_tensor_is_the_same_as_long_as_its_schedule_stands_still():
    scheduled, like = Scheduled(LINE), torch.zeros(2)
    first = scheduled.at(0, like)
    assert first.shape == () and float(first) == 1.0 and scheduled.at(100, like) is first
    assert float(scheduled.at(150, like)) == 0.875
    assert scheduled.at(150, like.double()).dtype == torch.float64
