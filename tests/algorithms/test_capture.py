"""Losses can be captured once as a pure graph and replayed on other minibatches: nothing in them branches on a value."""

from __future__ import annotations

import pytest
import torch
from algorithms.tester import AlgorithmTester
from torch.fx.experimental.proxy_tensor import make_fx

from lit_rl.algorithms.base import Progress

RAINBOW = {
    "dueling": True,
    "n_step": 3,
    "prioritized": True,
    "noisy": True,
    "num_atoms": 11,
    "v_min": 0.0,
    "v_max": 2.0,
}


@pytest.mark.parametrize(
    "name, kind, settings",
    [
        ("DQN", "discrete", {}),
        ("DQN", "discrete", RAINBOW),
        ("SAC", "continuous", {}),
        ("SAC", "discrete", {}),
        ("TD3", "continuous", {}),
        ("DDPG", "continuous", {}),
        ("ES", "discrete", {}),
        ("BC", "discrete", {}),
        ("BC", "continuous", {"loss": "mse"}),
        ("MARWIL", "continuous", {}),
    ],
    ids=["DQN", "Rainbow", "SAC", "discrete SAC", "TD3", "DDPG", "ES", "BC", "BC by error", "MARWIL"],
)
def test_a_captured_loss_says_the_same_of_other_minibatches(name, kind, settings):
    tester = AlgorithmTester(name)
    tester.settings |= settings
    policy = tester.run(kind)
    algorithm, batches = policy.algorithm, [tester.minibatch(policy) for _ in range(2)]
    losses = capturing(algorithm, batches)
    for group, (loss_fn, first, second) in losses.items():
        parameters = algorithm.groups()[group]

        def gradients(*tensors, loss_fn=loss_fn, parameters=parameters):
            loss = loss_fn(*tensors)
            return loss.value, *torch.autograd.grad(loss.value, parameters)

        graph = make_fx(gradients)(*first)
        for tensors in (first, second):
            torch.testing.assert_close(graph(*tensors), gradients(*tensors), rtol=1e-5, atol=1e-6)


def capturing(algorithm, batches):
    """What an update would hand to ``optimize`` for each of two minibatches, by group; nothing is stepped."""
    calls = [{}, {}]
    for found, batch in zip(calls, batches, strict=True):

        def optimize(group, loss_fn, *tensors, found=found):
            found[group] = loss_fn, tensors
            loss = loss_fn(*tensors)
            aux = None if loss.aux is None else loss.aux.detach()
            return {name: x.detach() for name, x in loss.metrics.items()}, aux

        algorithm.update(batch, optimize, Progress(1, 1000))
    return {group: (fn, tensors, calls[1][group][1]) for group, (fn, tensors) in calls[0].items()}
