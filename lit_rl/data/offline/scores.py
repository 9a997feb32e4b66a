"""How well a policy says what recorded episodes hold, and what it would earn in them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np
import torch
from gymnasium import spaces as gs
from torch import Tensor, nn
from torchmetrics import Metric
from torchmetrics.classification import MulticlassAccuracy, MulticlassF1Score

from lit_rl.data.evaluation import AFTER_TRAINING
from lit_rl.data.offline.data_set import DataSet
from lit_rl.data.offline.window import Rows
from lit_rl.data.plans import OfflinePlan
from lit_rl.data.transitions import Transitions
from lit_rl.envs.frames import Stacking
from lit_rl.errors import NumericsError
from lit_rl.functional.off_policy import importance_sampling
from lit_rl.functional.tree import tree_map
from lit_rl.policies.base import Policy

ESTIMATES = ("is_return", "wis_return", "ess")
LossOf = Callable[[Policy, Transitions], Tensor | None]  # what an algorithm makes small, (B,)


class HeldOut(NamedTuple):
    """A recorded episode to score by: all its transitions, in order."""

    number: int
    batch: Transitions
    reward: Tensor  # (n,) float64, of each step
    log_prob: Tensor | None  # (n,) float64, of the actions under the policy that took them


def held_out_episodes(data: DataSet, plan: OfflinePlan, rank: int, ranks: int, stacking: Stacking) -> Iterator[HeldOut]:
    """This rank's share of the held-out episodes, read as they are asked for."""
    for number, episode in data.held_out(rank, ranks):
        rows = Rows(len(episode.reward) + 2 + stacking.depth, data.spaces.action, plan.gamma, stacking)
        batch = rows.gather(rows.add(episode), plan.n_step)
        log_prob = None if episode.log_prob is None else torch.from_numpy(episode.log_prob)
        yield HeldOut(number, batch, torch.from_numpy(episode.reward), log_prob)


class HeldOutScores(Metric):
    """F1 (macro) and accuracy (micro) of discrete actions, the mean squared error of continuous ones, the mean loss, and
    importance sampling estimates of the policy's return. Where an action has several parts, F1 is the mean of each part's.

    Sums are taken over episodes in order, so that ranks change no digit.
    """

    full_state_update = False
    sums: list[Tensor]
    ratios: list[Tensor]

    def __init__(self, action: gym.Space[Any], gamma: float) -> None:
        super().__init__()
        self.gamma = gamma
        sizes = [] if isinstance(action, gs.Box) else _sizes(action)
        f1 = [MulticlassF1Score(max(2, n), average="macro") for n in sizes]
        accuracy = [MulticlassAccuracy(max(2, n), average="micro") for n in sizes]
        self.f1, self.accuracy = nn.ModuleList(f1), nn.ModuleList(accuracy)  # which moves them along
        self._of_parts: list[tuple[Metric, Metric]] = list(zip(f1, accuracy, strict=True))
        self.add_state("sums", [], dist_reduce_fx="cat")  # number, steps, squared error, loss of each episode
        self.add_state("ratios", [], dist_reduce_fx="cat")  # number, place, log ratio, reward of each step

    def score(self, episode: HeldOut, policy: Policy, loss_of: LossOf) -> None:
        """Count what a policy says of an episode that it does not learn from.

        Raises:
            NumericsError: its output is NaN or infinite.
        """
        policy.eval()
        batch = Transitions._make(tree_map(lambda x: x.to(self.device), tuple(episode.batch)))
        values = getattr(policy, "q_values", None)
        if values is not None and not torch.isfinite(values(batch.obs)).all():
            raise NumericsError(f"an action value is NaN or infinite on held-out episode {episode.number}")
        loss = loss_of(policy, batch)
        log_prob = None
        if episode.log_prob is not None:
            log_prob = policy.behaviour_log_prob(batch.obs, batch.action, AFTER_TRAINING)
        self.update(episode, policy.act(batch.obs).action, loss, log_prob)

    @torch.no_grad()
    def names(self, episode: HeldOut, policy: Policy, loss_of: LossOf) -> list[str]:
        """What :meth:`compute` will say of such episodes."""
        self.score(episode, policy, loss_of)
        names = list(self.compute())
        self.reset()
        policy.train()
        return names

    def update(self, episode: HeldOut, action: Tensor, loss: Tensor | None, log_prob: Tensor | None) -> None:
        """Count an episode of n steps.

        Args:
            episode: what was recorded.
            action: what the policy does instead, (n, ...).
            loss: of each step, (n,), where there is one.
            log_prob: of the recorded actions under the policy, (n,), where it has one.

        Raises:
            NumericsError: the policy's output is NaN or infinite.
        """
        number, count = episode.number, len(episode.reward)
        for name, x in (("action", action), ("loss", loss), ("log-probability", log_prob)):
            broken = x is not None and (x.isnan().any() or (name != "log-probability" and not x.isfinite().all()))
            if broken:
                raise NumericsError(f"the policy's {name} is NaN or infinite on held-out episode {number}")
        taken = episode.batch.action
        error = 0.0
        if self._of_parts:
            for i, (f1, accuracy) in enumerate(self._of_parts):
                of_part = [x if x.ndim == 1 else x[:, i] for x in (action, taken)]
                f1.update(*of_part)
                accuracy.update(*of_part)
        else:
            error = float(torch.square(action.double() - taken.double()).mean(1).sum())
        total = torch.nan if loss is None else float(loss.double().sum())
        row = [number, count, error, total]
        self.sums.append(torch.tensor([row], dtype=torch.float64, device=self.device))
        if episode.log_prob is not None and log_prob is not None:
            ratio = log_prob.double() - episode.log_prob.to(log_prob.device)
            place = torch.arange(count, dtype=torch.float64, device=self.device)
            rows = [torch.full_like(place, number), place, ratio.to(self.device), episode.reward.to(self.device)]
            self.ratios.append(torch.stack(rows, 1))

    def compute(self) -> dict[str, float]:
        """The scores by name; without what the data or the policy do not say."""
        sums = _sorted(self.sums)
        steps = float(sums[:, 1].sum())
        scores: dict[str, float] = {}
        if self._of_parts:
            of_parts = [float(f1.compute()) for f1, _ in self._of_parts]
            scores["f1"] = sum(of_parts) / len(of_parts)
            scores["accuracy"] = sum(float(accuracy.compute()) for _, accuracy in self._of_parts) / len(of_parts)
            if len(of_parts) > 1:
                scores |= {f"f1_{i}": score for i, score in enumerate(of_parts)}
        else:
            scores["mse"] = float(sums[:, 2].sum()) / steps
        if not sums[:, 3].isnan().any():
            scores["loss"] = float(sums[:, 3].sum()) / steps
        if len(self.ratios):
            rows = _sorted(self.ratios)
            _, episode = torch.unique_consecutive(rows[:, 0], return_inverse=True)
            found = importance_sampling(episode, rows[:, 1].long(), rows[:, 2], rows[:, 3], self.gamma)
            scores |= dict(zip(ESTIMATES, found, strict=True))
        return scores

    def reset(self) -> None:
        super().reset()
        for metrics in self._of_parts:
            for metric in metrics:
                metric.reset()


def _sizes(action: gym.Space[Any]) -> list[int]:
    """How much each part of a discrete action has to choose from."""
    if isinstance(action, gs.Discrete):
        return [int(action.n)]
    if isinstance(action, gs.MultiDiscrete):
        return [int(n) for n in action.nvec.reshape(-1)]
    return [2] * int(np.prod(action.shape or ()))


def _sorted(rows: list[Tensor] | Tensor) -> Tensor:
    """Rows of all ranks in the order of their episodes."""
    whole = torch.cat(rows) if isinstance(rows, list) else rows
    return whole.cpu()[whole[:, 0].cpu().argsort(stable=True)]
