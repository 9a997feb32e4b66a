"""Keeping what a policy knows while it goes on learning: what a second stage asks of every gradient step."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from lit_rl.algorithms.base import Algorithm, Loss, Optimize
from lit_rl.functional.schedules import Schedule, value_at
from lit_rl.functional.tree import Tree
from lit_rl.optimize.step import GradientStep
from lit_rl.policies.base import Policy


class Refining:
    """An ``optimize`` that first moves the critic alone, and holds the policy near the one that it was given.

    A policy that acts well has much to lose from a critic that knows nothing: its first gradients are noise. So the
    first updates freeze all of the policy but its critic. Then the losses that move the actor get the KL divergence from
    the first policy added, with a weight that falls (Baker et al. 2022, arXiv:2206.11795, appendix G).

    Args:
        step: makes the gradient steps.
        algorithm: whose policy it is.
        anchor: weight of the divergence, over env steps of the stage.
        critic_warmup: updates that freeze the policy.
        critic_lr: learning rate in that time; None for the algorithm's own.

    Attributes:
        first: the policy to stay near, frozen; None where there is no anchor.
    """

    def __init__(
        self,
        step: GradientStep,
        algorithm: Algorithm,
        anchor: Schedule = 0.0,
        critic_warmup: int = 0,
        critic_lr: float | None = None,
    ) -> None:
        self._step, self._algorithm, self._anchor = step, algorithm, anchor
        self.critic_warmup, self._critic_lr = critic_warmup, critic_lr
        policy = algorithm.policy
        self.first: Policy | None = None if anchor == 0 else copy.deepcopy(policy).requires_grad_(False).eval()
        critic = set() if policy.critic is None else {id(p) for p in policy.critic.parameters()}
        self._frozen = [p for p in policy.parameters() if id(p) not in critic]
        self._is_frozen = False
        actor = {id(p) for p in policy.actor.parameters()}
        self._acting = {name for name, group in algorithm.groups().items() if any(id(p) in actor for p in group)}
        self._losses: dict[Callable[..., Loss], Anchored] = {}

    def at(self, obs: Tree, updates: int, env_steps: int, stage_env_steps: int) -> Optimize:
        """The ``optimize`` of one update.

        Args:
            obs: of its minibatch.
            updates: made before it.
            env_steps: on the x-axis.
            stage_env_steps: made in this stage.
        """
        if updates <= self.critic_warmup:
            self._warm_up(updates, env_steps)
        weight = value_at(self._anchor, stage_env_steps)
        if self.first is None or weight == 0 or updates < self.critic_warmup:
            return self._step
        leaf = next(self._algorithm.policy.parameters())
        scale = torch.tensor(weight, dtype=leaf.dtype, device=leaf.device)

        def optimize(group: str, loss_fn: Callable[..., Loss], *tensors: Any) -> tuple[dict[str, Tensor], Any]:
            if group not in self._acting:
                return self._step(group, loss_fn, *tensors)
            return self._step(group, self._anchored(loss_fn), obs, scale, *tensors)

        return optimize

    def _anchored(self, loss_fn: Callable[..., Loss]) -> Callable[..., Loss]:
        """The loss under the anchor: one object for good, by which what was captured of it is found again."""
        assert self.first is not None
        if loss_fn not in self._losses:
            self._losses[loss_fn] = Anchored(loss_fn, self._algorithm.policy, self.first)
        return self._losses[loss_fn].loss

    def _warm_up(self, updates: int, env_steps: int) -> None:
        if updates < self.critic_warmup:
            if not self._is_frozen:
                self._step.freeze(self._frozen)
                self._is_frozen = True
            for group in self._step.groups if self._critic_lr is not None else ():
                self._step.set_lr(group, self._critic_lr)  # type: ignore[arg-type]
        elif self.critic_warmup:
            self._step.thaw(self._frozen)
            self._is_frozen = False
            self._step.set_lrs(self._algorithm.learning_rates(env_steps))


class Anchored:
    """A loss and the weighted divergence of ``policy`` from ``first``, over the minibatch's observations; as pure as the loss."""

    def __init__(self, loss_fn: Callable[..., Loss], policy: Policy, first: Policy) -> None:
        self._loss_fn, self._policy, self._first = loss_fn, policy, first

    def loss(self, obs: Tree, weight: Tensor, *tensors: Any) -> Loss:
        """The sum of both."""
        loss = self._loss_fn(*tensors)
        divergence = self._policy.divergence(self._first, obs).mean()
        return Loss(loss.value + weight * divergence, loss.metrics | {"anchor_kl": divergence}, loss.aux)
