from __future__ import annotations

import gymnasium as gym
import numpy as np
import pytest
import torch

from lit_rl.algorithms.base import Progress
from lit_rl.algorithms.es import ES, ESConfig
from lit_rl.data.transitions import Evaluations
from lit_rl.envs.spaces import Spaces
from lit_rl.errors import UsageError
from lit_rl.optimize import GradientStep

OBS = gym.spaces.Box(-9, 9, (1,), np.float32)
DISCRETE = Spaces(OBS, gym.spaces.Discrete(2))


def test_the_gradient_by_hand():
    es = ES(DISCRETE, ESConfig(hidden_sizes=[], l2=0.1))  # two weights, two biases
    theta = torch.cat([p.detach().reshape(-1) for p in es.policy.actor.parameters()])
    direction = torch.tensor([[1.0, 0.0, 2.0, 0.0], [0.0, 1.0, 0.0, -1.0]])
    batch = Evaluations(direction, torch.tensor([[100.0, 1.0], [2.0, 3.0]]))
    loss = es.es_loss(batch)
    gradient = torch.autograd.grad(loss.value, es.groups()["actor"])
    # centered ranks: 1/2, -1/2; -1/6, 1/6
    expected = 0.1 * theta - (1.0 * direction[0] - 1 / 3 * direction[1]) / 4
    torch.testing.assert_close(torch.cat([g.reshape(-1) for g in gradient]), expected)


def test_it_climbs_a_hill_that_is_seen_through_ranks_only():
    es = ES(DISCRETE, ESConfig(hidden_sizes=[], l2=0.0, noise_stdev=0.1))
    optimize = GradientStep(es.groups(), settings={"lr": 0.05})
    top, generator = torch.tensor([1.0, -2.0, 0.5, 3.0]), torch.Generator().manual_seed(0)

    def height(theta):
        return -1e4 * (theta - top).square().sum(-1)

    for number in range(300):
        theta = torch.cat([p.detach().reshape(-1) for p in es.policy.actor.parameters()])
        direction = torch.randn(10, 4, generator=generator)
        returns = torch.stack([height(theta + 0.1 * direction), height(theta - 0.1 * direction)], 1)
        es.update(Evaluations(direction, returns), optimize, Progress(number, 0))
    assert (theta - top).abs().max() < 0.15


def test_the_spread_that_members_do_not_use_is_not_learned():
    es = ES(Spaces(OBS, gym.spaces.Box(-1, 1, (2,), np.float32)), ESConfig(hidden_sizes=[4]))
    assert not es.policy.actor.distribution.log_std.requires_grad
    assert sum(p.numel() for p in es.groups()["actor"]) == (1 * 4 + 4) + (4 * 2 + 2)


@pytest.mark.parametrize(
    "settings", [{"members": 1}, {"noise_stdev": 0.0}, {"l2": -1.0}, {"hidden_sizes": [0]}], ids=str
)
def test_a_setting_out_of_range_is_one_line_that_names_it(settings):
    with pytest.raises(UsageError, match=next(iter(settings))):
        ESConfig(**settings)
