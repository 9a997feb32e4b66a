"""What a second stage asks of the gradient steps: the critic first and alone, then near the policy that it began with."""

from __future__ import annotations

import copy

import gymnasium as gym
import numpy as np
import pytest
import torch
from torch.fx.experimental.proxy_tensor import make_fx

from lit_rl.algorithms import make_algorithm
from lit_rl.algorithms.base import Loss
from lit_rl.envs.spaces import Spaces
from lit_rl.optimize import GradientStep, Refining

SPACES = Spaces(gym.spaces.Box(-1, 1, (3,), np.float32), gym.spaces.Discrete(2))


def parts(algo="PPO", kind="adam", **settings):
    """An algorithm, its steps, and a loss that every parameter of the policy is in."""
    algorithm = make_algorithm(algo, SPACES, {"hidden_sizes": [4]} | settings)
    step = GradientStep(algorithm.groups(), kind, {"lr": 0.1})

    def loss(obs):
        evaluated = algorithm.policy.evaluate(obs, torch.zeros(len(obs), dtype=torch.int64))
        value = (evaluated.value - 1).square().mean() - evaluated.log_prob.mean()
        return Loss(value, {"loss": value}, evaluated.value)

    return algorithm, step, loss


class Watched(GradientStep):
    """Notes what it should step down, and steps nothing."""

    def __init__(self, groups):
        super().__init__(groups)
        self.seen = []

    def __call__(self, group, loss_fn, *tensors):
        self.seen.append((loss_fn, loss_fn(*tensors)))
        return {}, None


def copied(module):
    return {name: x.detach().clone() for name, x in module.state_dict().items()}


def moved(before, module):
    return {name.partition(".")[0] for name, x in module.state_dict().items() if not torch.equal(before[name], x)}


@pytest.mark.parametrize("kind", ["adam", "rmsprop"])
@pytest.mark.parametrize("share_torso", [False, True])
def test_the_critic_moves_alone_at_first_and_then_all_by_a_fresh_optimizer(kind, share_torso):
    algorithm, step, loss = parts(kind=kind, share_torso=share_torso)
    refining = Refining(step, algorithm, critic_warmup=3, critic_lr=0.5)
    for updates in range(3):
        before, obs = copied(algorithm.policy), torch.randn(5, 3)
        refining.at(obs, updates, 0, 0)("policy", loss, obs)
        assert moved(before, algorithm.policy) == {"critic"}
        assert step.optimizer.param_groups[0]["lr"] == 0.5
    twin = copy.deepcopy(algorithm)
    fresh = GradientStep(twin.groups(), kind, {"lr": algorithm.config.lr})
    before, obs = copied(algorithm.policy), torch.randn(5, 3)
    refining.at(obs, 3, 0, 0)("policy", loss, obs)
    assert moved(before, algorithm.policy) == {"actor", "critic"}
    with torch.enable_grad():
        gradients = torch.autograd.grad(loss_of(twin, obs), list(twin.policy.parameters()))
    fresh._step("policy", fresh.groups["policy"], torch.cat([g.reshape(-1) for g in gradients]))
    for name, x in twin.policy.state_dict().items():
        torch.testing.assert_close(algorithm.policy.state_dict()[name], x)


def loss_of(algorithm, obs):
    evaluated = algorithm.policy.evaluate(obs, torch.zeros(len(obs), dtype=torch.int64))
    return (evaluated.value - 1).square().mean() - evaluated.log_prob.mean()


def test_a_frozen_part_counts_in_no_gradient_norm():
    """What is not moved must not shorten the step of what is."""
    algorithm, step, loss = parts()
    step.clip = 1e-3
    step.freeze(algorithm.policy.actor.parameters())
    step("policy", loss, torch.randn(5, 3))
    moment = step.optimizer.state[step.groups["policy"].flat]["exp_avg"]
    assert moment.norm().item() == pytest.approx(0.1 * 1e-3, rel=1e-2)


def test_a_group_that_is_frozen_whole_is_evaluated_alone():
    algorithm = make_algorithm("SAC", SPACES, {"hidden_sizes": [4]})
    step = GradientStep(algorithm.groups(), "adam", {"lr": 0.1})
    refining = Refining(step, algorithm, critic_warmup=1)

    def loss(x):
        value = sum(p.sum() for p in algorithm.policy.actor.parameters()) * x
        return Loss(value, {"loss": value}, value)

    before = copied(algorithm)
    metrics, aux = refining.at(None, 0, 0, 0)("actor", loss, torch.tensor(2.0))
    assert moved(before, algorithm) == set()
    assert torch.equal(metrics["loss"], aux) and not aux.requires_grad
    assert refining.at(None, 1, 0, 0)("actor", loss, torch.tensor(2.0)) and moved(before, algorithm) == {"policy"}


def test_the_anchor_adds_the_weighted_divergence_to_what_moves_the_actor():
    algorithm, _, loss = parts()
    step = Watched(algorithm.groups())
    refining = Refining(step, algorithm, anchor=[[0, 0.5], [100, 0.0]])
    first = copy.deepcopy(algorithm.policy)
    for p in algorithm.policy.actor.parameters():
        p.data += 0.3 * torch.randn_like(p)
    obs = torch.randn(6, 3)
    refining.at(obs, 0, 9_000, 20)("policy", loss, obs)  # weight 0.4, 20 env steps into the stage
    refining.at(obs, 1, 9_001, 21)("policy", loss, obs)
    (fn, found), (again, _) = step.seen
    divergence = algorithm.policy.divergence(first, obs).mean()
    assert divergence > 0.01 and found.metrics["anchor_kl"].item() == pytest.approx(divergence.item())
    assert found.value.item() == pytest.approx((loss(obs).value + 0.4 * divergence).item())
    assert torch.equal(found.aux, loss(obs).aux), "what the update needs is the loss's own"
    assert fn == again, "by which what was captured of it is found"
    assert refining.at(obs, 2, 9_100, 100) is step, "costs nothing once it is off"


def test_a_strong_anchor_holds_the_policy_and_a_weak_one_lets_it_go():
    obs, found = torch.randn(64, 3), {}
    for weight in (0.01, 100.0):
        torch.manual_seed(0)
        algorithm, step, loss = parts()
        refining = Refining(step, algorithm, anchor=weight)
        step.set_lr("policy", 0.01)
        for updates in range(100):
            refining.at(obs, updates, 0, 0)("policy", loss, obs)
        found[weight] = algorithm.policy.divergence(refining.first, obs).mean().item()
    assert found[100.0] < 0.01 < 0.2 < found[0.01]


def test_an_anchored_loss_can_be_captured():
    algorithm, step, loss = parts()
    refining = Refining(step, algorithm, anchor=1.0)
    for p in algorithm.policy.actor.parameters():
        p.data += 0.3 * torch.randn_like(p)
    anchored, parameters = refining._anchored(loss), algorithm.groups()["policy"]

    def gradients(obs, weight):
        value = anchored(obs, weight, obs).value
        return value, *torch.autograd.grad(value, parameters)

    graph = make_fx(gradients)(torch.randn(5, 3), torch.tensor(1.0))
    for weight in (1.0, 0.25):
        given = torch.randn(5, 3), torch.tensor(weight)
        torch.testing.assert_close(graph(*given), gradients(*given))
