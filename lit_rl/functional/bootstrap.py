"""How far a mean of few numbers may be off."""

from __future__ import annotations

import numpy as np


def bootstrap_interval(values: np.ndarray, share: float = 0.95, resamples: int = 10_000) -> tuple[float, float]:
    """The percentile bootstrap interval of the mean of ``values`` (N,), the same at every call (Efron 1979).

    Args:
        values: at least one number.
        share: of the means of resamples that lie inside, in (0, 1).
        resamples: drawn with replacement.
    """
    drawn = np.random.default_rng(0).integers(len(values), size=(resamples, len(values)))
    low, high = np.quantile(values[drawn].mean(axis=1), [(1 - share) / 2, (1 + share) / 2])
    return float(low), float(high)
