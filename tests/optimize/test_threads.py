"""``--num_threads auto``: one thread, and many for pictures."""

from __future__ import annotations

import os
from types import SimpleNamespace

import pytest
import torch

from lit_rl.optimize import threads_for


@pytest.mark.parametrize(
    "weight, cores, processes, threads",
    [
        ((64, 64), 8, 1, 1),
        ((1024, 1024), 8, 1, 1),
        ((2, 256, 256), 8, 1, 1),  # an ensemble
        ((32, 4, 8, 8), 4, 1, 4),  # pictures
        ((32, 4, 8, 8), 1, 1, 1),
        ((32, 4, 8, 8), 4, 8, 1),
        ((32, 4, 8, 8), 64, 2, 8),
    ],
)
def test_small_products_get_one_thread_and_pictures_many(monkeypatch, weight, cores, processes, threads):
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(cores)), raising=False)
    algorithm = SimpleNamespace(parameters=lambda: [torch.zeros(weight), torch.zeros(9)])
    assert threads_for(algorithm, processes) == threads
