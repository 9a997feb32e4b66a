"""How many threads the operations of an algorithm are worth."""

from __future__ import annotations

import os

from lit_rl.algorithms.base import Algorithm

MOST = 8  # threads


def threads_for(algorithm: Algorithm, processes: int = 1) -> int:
    """Threads for this algorithm's networks where so many processes share the machine.

    As many as there are (up to 8) for pictures, 1 otherwise. Threads that wait for each other spin: beside another run on
    the same cores, say another seed, two threads are tens of times slower than one, and alone they save little.
    """
    cores = (len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1) // processes
    pictures = any(p.ndim == 4 for p in algorithm.parameters())
    return max(1, min(MOST, cores)) if pictures else 1
