"""How many threads the operations of an algorithm are worth."""

from __future__ import annotations

import os

from lit_rl.algorithms.base import Algorithm

LARGE = 256**3  # multiplications of one product, from which a second thread makes up for waking it
MOST = 8


def threads_for(algorithm: Algorithm, processes: int = 1) -> int:
    """Threads for this algorithm's networks and batches where so many processes share the machine.

    2 for products of at least 256 x 256 x 256, as many as there are (up to 8) for pictures, and 1 below: a thread that
    waits for small products spins, and slows down what collects.
    """
    cores = (len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1) // processes
    rows = getattr(algorithm.config, "batch_size", 1)
    weights = [p for p in algorithm.parameters() if p.ndim > 1]
    if any(p.ndim == 4 for p in weights):
        wanted = MOST
    else:
        large = any(rows * p.shape[-1] * p.shape[-2] >= LARGE for p in weights)
        wanted = 2 if large else 1
    return max(1, min(wanted, cores))
