"""DQN's options, alone and all together."""

from __future__ import annotations

import gymnasium as gym
import numpy as np
import pytest
import torch
from algorithms.tester import AlgorithmTester

from lit_rl.algorithms.dqn import DQN, DQNConfig
from lit_rl.data.transitions import Transitions
from lit_rl.envs.spaces import Spaces
from lit_rl.errors import UsageError
from lit_rl.functional.distributional import project
from lit_rl.networks.heads import CategoricalQHead, QHead

OPTIONS = {
    "dueling": {"dueling": True},
    "n_step": {"n_step": 3},
    "prioritized": {"prioritized": True, "prioritized_beta": [[0, 0.4], [500, 1.0]]},
    "noisy": {"noisy": True},
    "c51": {"num_atoms": 11, "v_min": 0.0, "v_max": 2.0},
}
RAINBOW = {name: value for option in OPTIONS.values() for name, value in option.items()}
ALL = pytest.mark.parametrize("options", [*OPTIONS.values(), RAINBOW], ids=[*OPTIONS, "rainbow"])
MASKED = gym.spaces.Dict({"obs": gym.spaces.Box(-9, 9, (2,), np.float32), "action_mask": gym.spaces.MultiBinary(3)})


def rainbow_tester(options):
    found = AlgorithmTester("DQN")
    found.settings |= options
    return found


@ALL
def test_every_option_learns(options):
    rainbow_tester(options).learns()


@ALL
def test_every_option_updates_only_what_it_should(options):
    rainbow_tester(options).updates_only_what_it_should()


def test_rainbow_keeps_the_other_promises(tmp_path):
    rainbow = rainbow_tester(RAINBOW)
    rainbow.acts()
    rainbow.owns_its_parameters()
    rainbow.repeats_itself()
    rainbow.is_saved_and_loaded(tmp_path)
    rainbow.resumes(tmp_path)
    rainbow.starts_a_stage()


def test_the_distributional_target_by_hand():
    spaces = Spaces(gym.spaces.Box(-9, 9, (1,), np.float32), gym.spaces.Discrete(2))
    dqn = DQN(spaces, DQNConfig(hidden_sizes=[], num_atoms=3, v_min=0.0, v_max=2.0, double=False))
    p = torch.tensor([[0.5, 0.25, 0.25], [0.25, 0.25, 0.5]])  # means 0.75 and 1.25: the second action is better
    with torch.no_grad():
        for net in (dqn.policy.actor, dqn.target):
            net.head.linear.weight.zero_()
            net.head.linear.bias.copy_(p.log().flatten())
    one, discount = torch.ones(1, 1), torch.tensor([0.5])
    batch = Transitions(one, torch.tensor([0]), torch.tensor([1.0]), discount, one, torch.tensor([2.0]))
    assert dqn.policy.q_values(one).tolist() == [pytest.approx([0.75, 1.25])]
    target = [0.0, 0.25 + 0.25 / 2, 0.5 + 0.25 / 2]  # atoms 0, 1, 2 go to 1, 1.5 and 2
    assert project(batch.reward, discount, p[1:], torch.tensor([0.0, 1.0, 2.0])).tolist() == [pytest.approx(target)]
    kl = sum(t * np.log(t / q) for t, q in zip(target, p[0].tolist(), strict=True) if t)
    loss = dqn.q_loss(batch)
    assert loss.value.item() == pytest.approx(2 * kl) and loss.aux.tolist() == pytest.approx([kl])


@pytest.mark.parametrize("double", [False, True])
def test_a_forbidden_action_is_never_bootstrapped(double):
    dqn = DQN(Spaces(MASKED, gym.spaces.Discrete(3)), DQNConfig(hidden_sizes=[], double=double))
    with torch.no_grad():
        for net in (dqn.policy.actor, dqn.target):
            net.head.linear.weight.zero_()
            net.head.linear.bias.copy_(torch.tensor([9.0, 1.0, 2.0]))
    obs = {"obs": torch.zeros(2, 2), "action_mask": torch.tensor([[0, 1, 1], [0, 1, 0]], dtype=torch.uint8)}
    assert dqn.bootstrap(obs, torch.zeros(2, 0)).tolist() == [2.0, 1.0]


def test_noisy_networks_explore_by_their_weights_alone_and_evaluate_without():
    spaces = Spaces(gym.spaces.Box(-9, 9, (4,), np.float32), gym.spaces.Discrete(3))
    policy = DQN(spaces, DQNConfig(hidden_sizes=[16], noisy=True, sigma0=5.0)).policy
    noise = policy.noise(1, 200, torch.Generator().manual_seed(0), 0, 1)[0]
    assert (noise[:, 0] >= 0).all() and noise.shape[1] == 1 + 3 + (4 + 16) + (16 + 3)
    obs = torch.ones(200, 4)
    assert len(policy.act(obs, noise).action.unique()) == 3 and len(policy.act(obs).action.unique()) == 1


@pytest.mark.parametrize("dueling", [False, True])
@pytest.mark.parametrize("sigma0", [None, 0.5])
def test_both_heads_hand_out_one_value_for_each_action(dueling, sigma0):
    for head in (QHead(5, 3, dueling, sigma0), CategoricalQHead(5, 3, dueling, sigma0, 7, -1.0, 1.0)):
        out = head(torch.randn(4, 5))
        assert head.values(out).shape == (4, 3)
        chosen = head.of_action(out, torch.tensor([0, 1, 2, 0]))
        torch.testing.assert_close(head.values(chosen), head.values(out)[torch.arange(4), torch.tensor([0, 1, 2, 0])])


@pytest.mark.parametrize(
    "settings", [{"num_atoms": 0}, {"v_min": 3.0, "v_max": 3.0}, {"sigma0": -1.0}], ids=lambda s: next(iter(s))
)
def test_a_setting_out_of_range_is_one_line_that_names_it(settings):
    with pytest.raises(UsageError, match=next(iter(settings))):
        DQNConfig(**settings)
