"""Whether environments have returned numbers."""

from __future__ import annotations

import numpy as np

from lit_rl.data.transitions import Steps
from lit_rl.errors import NumericsError
from lit_rl.functional.tree import tree_leaves


def check_finite(steps: Steps, begin: int, ranks: int) -> None:
    """Refuse NaN and infinity in what environments returned, naming the env and the run's env step that returned it.

    Args:
        steps: a block.
        begin: env steps of the run before it, over all ranks.
        ranks: that collect at the same time.
    """

    if all(map(_is_finite, tree_leaves((steps.reward, steps.obs, steps.final_obs)))):
        return

    def env_step(t: int, n: int) -> int:
        return begin if t < 0 else int(begin + ranks * steps.valid[:t].sum() + steps.valid[t, : n + 1].sum())

    bad = np.argwhere(~np.isfinite(steps.reward))
    if len(bad):
        t, n = bad[0]
        raise NumericsError(f"env {n} returned the reward {steps.reward[t, n]} at env step {env_step(t, n)}")
    for leaf, final in zip(tree_leaves(steps.obs), tree_leaves(steps.final_obs), strict=True):
        if leaf.dtype.kind == "f":
            bad = np.argwhere(~np.isfinite(leaf).all(tuple(range(2, leaf.ndim))))
            late = steps.final_index[~np.isfinite(final).all(tuple(range(1, final.ndim)))]
            if len(bad) or len(late):
                t, n = min([(int(t) - 1, int(n)) for t, n in bad[:1]] + [(int(t), int(n)) for t, n in late[:1]])
                raise NumericsError(
                    f"env {n} returned an observation with NaN or infinity at env step {env_step(t, n)}"
                )


def _is_finite(x: np.ndarray) -> bool:
    return not x.size or x.dtype.kind != "f" or np.count_nonzero(np.isfinite(x)) == x.size  # half of what .all() costs
