"""Reset seeds of environments: training, evaluation and test draw from ranges that cannot meet."""

from __future__ import annotations

from typing import Literal

import numpy as np

Domain = Literal["train", "eval", "test"]
_DOMAINS: dict[str, int] = {"train": 0, "eval": 1, "test": 2}
_HASH_BITS = 29


def env_seed(seed: int, domain: Domain, *index: int) -> int:
    """A reset seed in [0, 2**31) for the env or episode that ``index`` names, the same in every process.

    Bits 29 and 30 are the domain, so that a seed of one domain is never one of another; the rest is hashed.

    Args:
        seed: the run's seed, at least 0.
        domain: what the episode is for.
        index: whole numbers of at least 0, such as (epoch, env) or (episode,).

    Raises:
        ValueError: an unknown domain, a negative seed or index.
    """
    if domain not in _DOMAINS:
        raise ValueError(f"domain is {domain!r}; choose train, eval or test")
    if seed < 0 or any(i < 0 for i in index):
        raise ValueError(f"seed and index must be at least 0, got {seed} and {index}")
    code = _DOMAINS[domain]
    # The length is part of the key because SeedSequence pads with zeros: (1,) and (1, 0) would be one otherwise.
    sequence = np.random.SeedSequence(seed, spawn_key=(code, len(index), *index))
    return (code << _HASH_BITS) | int(sequence.generate_state(1)[0] >> (32 - _HASH_BITS))
