"""``--num_threads auto``: as many threads as the products of an algorithm are worth."""

from __future__ import annotations

import os
from types import SimpleNamespace

import pytest
import torch

from lit_rl.optimize import threads_for


@pytest.mark.parametrize(
    "weight, rows, cores, processes, threads",
    [
        ((64, 64), 256, 8, 1, 1),
        ((256, 256), 64, 8, 1, 1),
        ((256, 256), 256, 8, 1, 2),
        ((2, 256, 256), 256, 8, 1, 2),  # an ensemble
        ((256, 256), 256, 1, 1, 1),
        ((256, 256), 256, 8, 8, 1),
        ((32, 4, 8, 8), 32, 4, 1, 4),  # pictures
        ((32, 4, 8, 8), 32, 64, 2, 8),
    ],
)
def test_small_products_get_one_thread_and_pictures_many(monkeypatch, weight, rows, cores, processes, threads):
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(cores)), raising=False)
    config = SimpleNamespace(batch_size=rows)
    algorithm = SimpleNamespace(config=config, parameters=lambda: [torch.zeros(weight), torch.zeros(9)])
    assert threads_for(algorithm, processes) == threads
