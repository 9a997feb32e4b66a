"""SAC, TD3 and DDPG on one-dimensional linear networks, with numbers worked out by hand."""

from __future__ import annotations

import gymnasium as gym
import numpy as np
import pytest
import torch
from algorithms.tester import AlgorithmTester

from lit_rl.algorithms.base import Progress
from lit_rl.algorithms.ddpg import DDPG, DDPGConfig
from lit_rl.algorithms.sac import SAC, SACConfig
from lit_rl.algorithms.td3 import TD3, TD3Config
from lit_rl.data.transitions import Transitions
from lit_rl.envs.spaces import Spaces
from lit_rl.errors import UsageError
from lit_rl.optimize import GradientStep

OBS = gym.spaces.Box(-9, 9, (1,), np.float32)
BOX = Spaces(OBS, gym.spaces.Box(-1, 1, (1,), np.float32))
DISCRETE = Spaces(OBS, gym.spaces.Discrete(2))


def set_critic(critic, weights):
    """Q_k = weights[k] @ (obs, action)."""
    layer = critic.mlp.output
    with torch.no_grad():
        layer.weight.copy_(torch.tensor(weights)[:, None, :])
        layer.bias.zero_()


def set_linear(layer, weight, bias=0.0):
    with torch.no_grad():
        layer.weight.copy_(torch.tensor(weight).view_as(layer.weight))
        layer.bias.fill_(bias)


def batch_of(noise, weight=(1.0, 0.5)):
    """Two transitions, the second of which terminated."""
    return Transitions(
        obs=torch.tensor([[1.0], [2.0]]),
        action=torch.tensor([[0.5], [-0.5]]),
        reward=torch.tensor([1.0, 2.0]),
        discount=torch.tensor([0.5, 0.0]),
        next_obs=torch.tensor([[3.0], [0.0]]),
        weight=torch.tensor(weight),
        noise=noise,
    )


def atanh(x):
    return float(np.arctanh(x))


# ---- TD3 ----


def make_td3(**settings):
    td3 = TD3(BOX, TD3Config(**({"hidden_sizes": [], "batch_size": 2} | settings)))
    set_linear(td3.policy.actor.head, [0.0], atanh(0.2))
    set_linear(td3.target_actor.head, [0.0], atanh(0.4))
    set_critic(td3.policy.critic, [[1.0, 2.0], [2.0, 0.0]])
    set_critic(td3.target_critic, [[1.0, 1.0], [0.0, 5.0]])
    return td3


@pytest.mark.parametrize("noise, action", [(1.0, 0.6), (9.0, 0.9), (-9.0, -0.1), (0.0, 0.4)])
def test_td3_values_the_smoothed_target_action_by_the_smaller_critic(noise, action):
    td3 = make_td3()  # target noise 0.2, clipped to 0.5
    loss = td3.critic_loss(batch_of(torch.tensor([[noise], [noise]])))
    target = [1 + 0.5 * min(3 + action, 5 * action), 2.0]
    q = [[1 * 1 + 2 * 0.5, 2 * 1.0], [1 * 2 - 2 * 0.5, 2 * 2.0]]  # of each transition, by each critic
    errors = [[target[i] - q[i][k] for k in (0, 1)] for i in (0, 1)]
    assert loss.aux.tolist() == pytest.approx([sum(e) / 2 for e in errors], abs=1e-6)
    expected = sum((errors[0][k] ** 2 + 0.5 * errors[1][k] ** 2) / 2 for k in (0, 1))
    assert loss.value.item() == pytest.approx(expected, abs=1e-5)


def test_td3_smooths_no_further_than_the_bounds():
    td3 = make_td3(target_noise=9.0, target_noise_clip=9.0)
    loss = td3.critic_loss(batch_of(torch.tensor([[1.0], [1.0]])))
    assert loss.aux[0].item() == pytest.approx(1 + 0.5 * min(3 + 1.0, 5 * 1.0) - 2.0)


def test_td3_raises_the_first_critics_value_of_its_actions():
    td3 = make_td3()
    loss = td3.actor_loss(batch_of(torch.zeros(2, 1)))
    assert loss.value.item() == pytest.approx(-((1 + 2 * 0.2) + (2 + 2 * 0.2)) / 2)
    (gradient,) = torch.autograd.grad(loss.value, [td3.policy.actor.head.bias])
    assert gradient.item() == pytest.approx(-2 * (1 - 0.2**2))  # dQ/da times the slope of tanh


def test_td3_moves_actor_and_targets_every_other_update():
    td3 = make_td3(tau=0.5)
    optimize = GradientStep(td3.groups(), settings={"lr": 0.1})
    for number in range(4):
        before = {name: x.clone() for name, x in td3.state_dict().items()}
        updated = td3.update(batch_of(torch.zeros(2, 1)), optimize, Progress(number, 0))
        moved = {name.split(".")[0] for name, x in td3.state_dict().items() if not torch.equal(x, before[name])}
        moved_actor = not torch.equal(before["policy.actor.head.bias"], td3.policy.actor.head.bias)
        assert moved_actor == bool(number % 2) == ("actor_loss" in updated.metrics)
        assert moved == ({"policy", "target_actor", "target_critic"} if number % 2 else {"policy"})
        if number % 2:
            expected = before["target_actor.head.bias"].lerp(td3.policy.actor.head.bias, 0.5)
            torch.testing.assert_close(td3.target_actor.head.bias, expected)


# ---- DDPG ----


def make_ddpg(**settings):
    ddpg = DDPG(BOX, DDPGConfig(**({"hidden_sizes": [], "l2": 0.0} | settings)))
    set_linear(ddpg.policy.actor.head, [0.0], atanh(0.2))
    set_linear(ddpg.target_actor.head, [0.0], atanh(0.4))
    set_critic(ddpg.policy.critic, [[1.0, 2.0]])
    set_critic(ddpg.target_critic, [[1.0, 5.0]])
    return ddpg


@pytest.mark.parametrize("l2", [0.0, 0.1])
def test_ddpg_by_hand(l2):
    ddpg = make_ddpg(l2=l2)
    batch = batch_of(torch.zeros(0))
    loss = ddpg.critic_loss(batch)
    errors = [1 + 0.5 * (3 + 5 * 0.4) - 2, 2 - 1.0]
    assert loss.aux.tolist() == pytest.approx(errors)
    bellman = (errors[0] ** 2 + 0.5 * errors[1] ** 2) / 2
    assert loss.metrics["loss"].item() == pytest.approx(bellman)
    assert loss.value.item() == pytest.approx(bellman + l2 * (1 + 4) / 2)
    assert ddpg.actor_loss(batch).value.item() == pytest.approx(-((1 + 2 * 0.2) + (2 + 2 * 0.2)) / 2)


def test_ddpg_begins_near_zero_and_has_two_learning_rates():
    ddpg = DDPG(BOX, DDPGConfig(lr=1e-3, actor_lr=[[0, 1e-4], [10, 2e-4]]))
    for layer in (ddpg.policy.actor.head, ddpg.policy.critic.mlp.output):
        assert layer.weight.abs().max() <= 3e-3 and layer.bias.abs().max() <= 3e-3
    assert ddpg.learning_rates(5) == pytest.approx({"critic": 1e-3, "actor": 1.5e-4})
    assert DDPG(BOX, DDPGConfig(lr=0.5)).learning_rates(0) == {"critic": 0.5, "actor": 0.5}
    assert ddpg.policy.initial_state(3).shape == (3, 1)
    assert DDPG(BOX, DDPGConfig(noise="gaussian")).policy.initial_state(3) is None


# ---- SAC ----


def make_sac(**settings):
    sac = SAC(BOX, SACConfig(**({"hidden_sizes": [], "batch_size": 2} | settings)))
    set_linear(sac.policy.actor.head, [[0.0], [0.0]])  # u is standard normal
    set_critic(sac.policy.critic, [[1.0, 2.0], [2.0, 0.0]])
    set_critic(sac.target, [[1.0, 1.0], [0.0, 5.0]])
    return sac


def test_sac_by_hand():
    sac = make_sac()
    u, alpha = 0.3, 0.7
    batch = batch_of(torch.full((2, 2, 1), u))
    a = np.tanh(u)
    log_prob = -0.5 * u**2 - 0.5 * np.log(2 * np.pi) - np.log(1 - a**2)
    loss = sac.critic_loss(batch, torch.tensor(alpha))
    target = [1 + 0.5 * (min(3 + a, 5 * a) - alpha * log_prob), 2.0]
    q = [[2.0, 2.0], [1.0, 4.0]]
    errors = [[target[i] - q[i][k] for k in (0, 1)] for i in (0, 1)]
    expected = sum(0.5 * (errors[0][k] ** 2 + 0.5 * errors[1][k] ** 2) / 2 for k in (0, 1))
    assert loss.value.item() == pytest.approx(expected, rel=1e-5)
    assert loss.aux.tolist() == pytest.approx([sum(e) / 2 for e in errors], rel=1e-5)
    actor = sac.actor_loss(batch, torch.tensor(alpha))
    smaller = [min(1 + 2 * a, 2.0), min(2 + 2 * a, 4.0)]
    assert actor.value.item() == pytest.approx(alpha * log_prob - sum(smaller) / 2, rel=1e-5)
    assert actor.aux.tolist() == pytest.approx([log_prob] * 2, rel=1e-5)


def test_the_temperature_rises_while_the_entropy_is_below_its_target():
    sac = make_sac(alpha=0.5)
    for log_prob, sign in ((2.0, -1), (0.5, 1)):  # entropies -2 and -0.5, target -1
        loss = sac.alpha_loss(torch.zeros(2, 1), torch.full((2,), log_prob))
        (gradient,) = torch.autograd.grad(loss.value, [sac.policy.log_alpha])
        assert gradient.item() == pytest.approx(-(log_prob - 1)) and np.sign(gradient.item()) == sign
    chosen = make_sac(target_entropy=-3.0).alpha_loss(torch.zeros(2, 1), torch.full((2,), 3.0))
    assert chosen.value.item() == 0


def test_a_fixed_temperature_stays():
    sac = make_sac(alpha=0.2, learn_alpha=False)
    assert set(sac.groups()) == {"critic", "actor"}
    sac.update(batch_of(torch.zeros(2, 2, 1)), GradientStep(sac.groups(), settings={"lr": 0.1}), Progress(0, 0))
    assert sac.policy.log_alpha.exp().item() == pytest.approx(0.2)


def test_sac_with_discrete_actions_by_hand():
    sac = SAC(DISCRETE, SACConfig(hidden_sizes=[], batch_size=2))
    set_linear(sac.policy.actor.linear, [[0.0], [0.0]])  # both actions with 1/2
    for critic, weights in ((sac.policy.critic, [[1.0, 2.0], [2.0, 0.0]]), (sac.target, [[1.0, 3.0], [2.0, 1.0]])):
        with torch.no_grad():
            critic.mlp.output.weight.copy_(torch.tensor(weights)[:, :, None])
            critic.mlp.output.bias.zero_()
    batch = batch_of(torch.zeros(2, 2, 0))._replace(action=torch.tensor([0, 1]))
    loss = sac.critic_loss(batch, torch.tensor(0.5))
    target = [1 + 0.5 * ((min(3, 6) + min(9, 3)) / 2 + 0.5 * np.log(2)), 2.0]
    errors = [[target[0] - 1, target[0] - 2], [2 - 4, 2 - 0]]
    assert loss.aux.tolist() == pytest.approx([sum(e) / 2 for e in errors])
    actor = sac.actor_loss(batch, torch.tensor(0.5))
    soft = [(min(1, 2) + min(2, 0)) / 2, (min(2, 4) + min(4, 0)) / 2]
    assert actor.value.item() == pytest.approx(-sum(soft) / 2 - 0.5 * np.log(2))


def test_a_second_stage_goes_on_at_the_temperature_of_the_first():
    one, two = make_sac(), make_sac()
    with torch.no_grad():
        one.policy.log_alpha.fill_(-3.0)
    two.policy.load_state_dict(one.policy.state_dict())
    two.start_from_policy()
    assert two.policy.log_alpha.item() == -3.0
    for mine, theirs in zip(two.target.parameters(), one.policy.critic.parameters(), strict=True):
        assert torch.equal(mine, theirs)


# ---- settings ----


@pytest.mark.parametrize("name", ["SAC", "TD3", "DDPG"])
def test_prioritized_replay_and_n_steps_work_for_each(name):
    tester = AlgorithmTester(name)
    tester.settings |= {"prioritized": True, "n_step": 3}
    tester.kinds = ["continuous"]
    tester.repeats_itself()


@pytest.mark.parametrize(
    "config, settings",
    [
        (SACConfig, {"alpha": 0.0}),
        (SACConfig, {"critics": 0}),
        (SACConfig, {"random_steps": -1}),
        (TD3Config, {"policy_delay": 0}),
        (TD3Config, {"target_noise": -0.1}),
        (TD3Config, {"exploration_noise": -0.1}),
        (DDPGConfig, {"ou_theta": 0.0}),
        (DDPGConfig, {"actor_lr": -1.0}),
        (DDPGConfig, {"l2": -1.0}),
        (SACConfig, {"prioritized_alpha": 1.5}),
        (SACConfig, {"prioritized_beta": [[0, 0.4], [10, 1.1]]}),
        (SACConfig, {"prioritized_eps": 0.0}),
    ],
    ids=str,
)
def test_a_setting_out_of_range_is_one_line_that_names_it(config, settings):
    (name,) = settings
    with pytest.raises(UsageError, match=name) as caught:
        config(**settings)
    assert "\n" not in str(caught.value)


def test_sac_names_the_actions_it_needs():
    spaces = Spaces(BOX.observation, gym.spaces.MultiDiscrete([2, 3]))
    with pytest.raises(UsageError, match=r"^SAC needs a Box or Discrete action space, not MultiDiscrete\(\[2, 3\]\)$"):
        SAC(spaces, SACConfig())
