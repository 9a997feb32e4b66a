"""What an epoch of training shows: means of what its updates logged, returns of the episodes that ended, over all ranks."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from lit_rl import collectives
from lit_rl.data.hooks import summarise
from lit_rl.data.transitions import Episode
from lit_rl.errors import NumericsError


class EpochMetrics:
    """Gathers them on this rank, update by update and iteration by iteration.

    Attributes:
        finished: the episodes that ended in this epoch so far.
    """

    def __init__(self) -> None:
        self.finished: list[Episode] = []
        self.window: list[Episode] = []  # the newest ones of earlier epochs
        self._newest: list[dict[str, Tensor]] = []  # of each update of this iteration
        self._logged: dict[str, list[Tensor]] = {}  # of the iterations of this epoch, (updates,) each

    def update(self, metrics: dict[str, Tensor]) -> None:
        """Count what an update logged."""
        self._newest.append(metrics)

    def end_iteration(self, episodes: list[Episode]) -> None:
        """Count the episodes that ended, and put together what updates logged: thousands of small tensors would keep the
        heap from closing around them."""
        self.finished += episodes
        for name in dict.fromkeys(name for metrics in self._newest for name in metrics):
            values = torch.stack([metrics[name] for metrics in self._newest if name in metrics])
            self._logged.setdefault(name, []).append(values)
        self._newest = []

    @property
    def newest(self) -> dict[str, float]:
        """What the newest update of this epoch has logged."""
        return {name: float(values[-1][-1]) for name, values in self._logged.items()}

    def compute(self, return_window: int, hooked: bool, device: torch.device | str = "cpu") -> dict[str, float]:
        """The epoch's metrics as ``Train/<name>``, the same on all ranks; the next epoch begins.

        Args:
            return_window: episodes that return and length are of, where fewer have ended.
            hooked: whether hooks may have measured something of the episodes.
            device: what carries numbers between ranks.

        Raises:
            NumericsError: what updates logged is NaN or infinite.
        """
        ranks = collectives.ranks()  # each made the same number of updates
        means = {name: float(torch.cat(values).double().mean()) for name, values in self._logged.items()}
        finished = self.finished
        window = -(-return_window // ranks)
        counted = [*self.window, *finished][-max(window, len(finished)) :]
        self.window = counted[-window:] if window > 1 else []
        self._logged, self.finished = {}, []
        custom = summarise(collectives.joined([e.custom for e in finished if e.custom])) if hooked else {}
        returns = [e.return_ for e in counted]
        sums = [*means.values(), len(counted), sum(returns), sum(e.length for e in counted), len(finished)]
        *totals, count, return_, length, ended = collectives.reduced(sums, "sum", device)
        (low,) = collectives.reduced([min(returns, default=math.inf)], "min", device)
        (high,) = collectives.reduced([max(returns, default=-math.inf)], "max", device)
        metrics = {name: total / ranks for name, total in zip(means, totals, strict=True)}
        for name, value in metrics.items():
            if not math.isfinite(value):
                raise NumericsError(f"Train/{name} is {value}")
        if count:
            metrics |= {"return": return_ / count, "length": length / count, "episodes": ended}
            metrics |= {"return_min": low, "return_max": high}
        return {f"Train/{name}": value for name, value in (metrics | custom).items()}

    def state_dict(self) -> dict[str, Any]:
        """What the next epochs depend on."""
        return {
            "metrics": {name: torch.cat(values) for name, values in self._logged.items()},  # empty at an epoch's end
            "finished": [tuple(episode) for episode in self.finished],
            "window": [tuple(episode) for episode in self.window],
        }

    def load_state_dict(self, state: dict[str, Any], episodes: bool = True) -> None:
        """Go on from a saved state; without its ``episodes`` where they are another rank's."""
        self._logged = {name: [values] for name, values in state["metrics"].items()}
        self.finished, self.window = (
            [Episode(*episode) for episode in state[name] if episodes] for name in ("finished", "window")
        )
