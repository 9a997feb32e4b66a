from __future__ import annotations

import pytest
import torch

from lit_rl.functional.distributional import kl_to_logits, project

ATOMS = torch.tensor([-1.0, 0.0, 1.0, 2.0])


def test_mass_goes_to_the_two_nearest_atoms_and_from_beyond_to_the_ends():
    probability = torch.tensor(
        [[0.0, 1.0, 0.0, 0.0], [0.0, 0.0, 0.0, 1.0], [0.5, 0.0, 0.0, 0.5], [0.0, 0.0, 0.25, 0.75]]
    )
    reward = torch.tensor([0.25, 9.0, -0.5, 1.5])
    discount = torch.tensor([0.5, 1.0, 0.5, 0.0])
    # rows: 0 -> 0.25; 2 -> 11, cut to 2; -1 -> -1 and 2 -> 0.5; terminated: everything -> 1.5
    expected = [[0.0, 0.75, 0.25, 0.0], [0.0, 0.0, 0.0, 1.0], [0.5, 0.25, 0.25, 0.0], [0.0, 0.0, 0.5, 0.5]]
    assert project(reward, discount, probability, ATOMS).tolist() == expected


def test_the_mean_is_that_of_the_bellman_target_inside_the_atoms():
    generator = torch.Generator().manual_seed(0)
    support = torch.linspace(-10, 10, 51)
    probability = torch.randn(64, 51, generator=generator).softmax(1)
    reward, discount = torch.rand(64, generator=generator), torch.full((64,), 0.9)
    projected = project(reward, discount, probability, support)
    torch.testing.assert_close(projected.sum(1), torch.ones(64))
    torch.testing.assert_close(projected @ support, reward + discount * (probability @ support), atol=1e-5, rtol=1e-5)


def test_kl_by_hand():
    target = torch.tensor([[0.5, 0.5], [1.0, 0.0]])
    logits = torch.tensor([[0.25, 0.75], [0.25, 0.75]]).log()
    expected = [0.5 * torch.log(torch.tensor(4 / 3)).item(), torch.log(torch.tensor(4.0)).item()]
    assert kl_to_logits(target, logits).tolist() == pytest.approx(expected)
