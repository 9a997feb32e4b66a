"""PG, A2C and PPO: their losses by hand, their settings, and all spaces of actions."""

from __future__ import annotations

import gymnasium as gym
import numpy as np
import pytest
import torch
from torch.fx.experimental.proxy_tensor import make_fx

from lit_rl.algorithms import find_algorithm
from lit_rl.algorithms.base import Progress
from lit_rl.data.transitions import RolloutBatch
from lit_rl.envs.spaces import Spaces
from lit_rl.errors import UsageError
from lit_rl.optimize import GradientStep

NAMES = ("PG", "A2C", "PPO")
SPACES = Spaces(gym.spaces.Box(-9, 9, (2,), np.float32), gym.spaces.Discrete(2))


def make(name, spaces=SPACES, **settings):
    algorithm = find_algorithm(name)
    return algorithm(spaces, algorithm.Config(**({"hidden_sizes": []} | settings)))


def certain(name, **settings):
    """Without hidden layers: P(action 0) is 1/2 at obs (0, 1) and 3/4 at (1, 0); V is 2 and 1."""
    algorithm = make(name, **settings)
    with torch.no_grad():
        algorithm.policy.actor.linear.weight.copy_(torch.tensor([[3.0, 1.0], [1.0, 1.0]]).log())
        if algorithm.policy.critic is not None:
            algorithm.policy.critic[1].linear.weight.copy_(torch.tensor([[1.0, 2.0]]))
    return algorithm


def batch_of(old=(0.5, 0.5), advantage=(3.0, 1.0), last=True):
    """Actions 0 at (1, 0) and 1 at (0, 1): their probabilities are now 3/4 and 1/2."""
    return RolloutBatch(
        obs=torch.tensor([[1.0, 0.0], [0.0, 1.0]]),
        action=torch.tensor([0, 1]),
        log_prob=torch.tensor(old).log(),
        value=torch.tensor([0.5, 2.0]),
        advantage=torch.tensor(advantage),
        return_=torch.tensor([3.0, 2.0]),
        last=torch.tensor(last),
    )


LOGS = np.log([0.75, 0.5])
ENTROPY = (-(0.75 * np.log(0.75) + 0.25 * np.log(0.25)) + np.log(2)) / 2
VALUE_ERROR = ((1 - 3) ** 2 + (2 - 2) ** 2) / 2


def near(x):
    return pytest.approx(float(x), rel=1e-5)


def test_a2cs_loss_by_hand():
    a2c = certain("A2C", vf_coeff=0.5)
    metrics = a2c.loss(batch_of(), torch.tensor(0.1)).metrics
    policy_loss = -(3 * LOGS[0] + 1 * LOGS[1]) / 2
    assert metrics["policy_loss"].item() == near(policy_loss)
    assert metrics["value_loss"].item() == near(VALUE_ERROR)
    assert metrics["entropy"].item() == near(ENTROPY)
    assert metrics["loss"].item() == near(policy_loss + 0.5 * VALUE_ERROR - 0.1 * ENTROPY)
    # what the critic said before: returns 3, 2, errors 2.5, 0; variances 1.25^2 and 0.5^2
    assert metrics["explained_variance"].item() == near(1 - 1.5625 / 0.25)
    normal = certain("A2C", normalize_advantage=True).loss(batch_of(), torch.tensor(0.0))
    assert normal.metrics["policy_loss"].item() == near(-(LOGS[0] - LOGS[1]) / 2)


def test_pgs_loss_by_hand():
    found = certain("PG", vf_coeff=2.0).loss(batch_of(), torch.tensor(0.1)).metrics
    policy_loss = -(LOGS[0] - LOGS[1]) / 2  # advantages 3 and 1, standardised
    assert found["loss"].item() == near(policy_loss + 2 * VALUE_ERROR - 0.1 * ENTROPY)
    without = certain("PG", baseline=False)
    assert without.policy.critic is None
    found = without.loss(batch_of(), torch.tensor(0.0)).metrics
    assert found["loss"].item() == near(policy_loss) and "value_loss" not in found


# Ratios 3/4 : old and 1/2 : old, advantages +1 and -1 once standardised, clip 0.2: -min(r A, clip(r) A), and the mean.
@pytest.mark.parametrize(
    "old, surrogate, clipped",
    [
        ((0.75, 0.5), (-1 + 1) / 2, 0.0),  # r = 1, 1
        ((0.5, 0.5), (-1.2 + 1) / 2, 0.5),  # 1.5 is clipped to 1.2
        ((0.9, 0.5), (-0.75 / 0.9 + 1) / 2, 0.0),  # 0.83
        ((1.0, 1.0), (-0.75 + 0.8) / 2, 1.0),  # 0.75 is the smaller for A > 0; for A < 0, 0.5 is raised to 0.8
        ((0.75, 0.25), (-1 + 2) / 2, 0.5),  # a probability that rose against its advantage counts in full
    ],
)
def test_ppos_loss_by_hand(old, surrogate, clipped):
    ppo = certain("PPO", vf_coeff=0.5)
    found = ppo.loss(batch_of(old), torch.tensor(0.2), torch.tensor(0.1), torch.tensor(0.0)).metrics
    assert found["policy_loss"].item() == near(surrogate) or abs(surrogate) < 1e-9
    assert found["loss"].item() == near(found["policy_loss"].item() + 0.5 * VALUE_ERROR - 0.1 * ENTROPY)
    assert found["clip_fraction"].item() == clipped
    ratios = np.array([0.75, 0.5]) / old
    assert found["kl"].item() == pytest.approx((ratios - 1 - np.log(ratios)).mean(), abs=1e-6)


def test_ppo_clips_values_near_the_old_ones():
    # The critic says 1 and 2, said 0.5 and 2, should say 3 and 2: within 0.25 of the old ones that is 0.75 and 2.
    ppo = certain("PPO", vf_clip=0.25)
    found = ppo.loss(batch_of(), torch.tensor(0.2), torch.tensor(0.0), torch.tensor(0.0)).metrics
    assert found["value_loss"].item() == near((3 - 0.75) ** 2 / 2)


def test_the_kl_penalty_is_added_and_its_weight_follows_the_target():
    ppo = certain("PPO", kl_coeff=0.5, kl_target=0.1)
    zero = torch.tensor(0.0)
    plain, penalised = (ppo.loss(batch_of(), torch.tensor(0.2), zero, torch.tensor(c)) for c in (0.0, 0.5))
    assert (penalised.value - plain.value).item() == near(0.5 * plain.metrics["kl"].item())
    for kl, expected in ((0.16, 1.0), (0.14, 1.0), (0.07, 1.0), (0.06, 0.5), (0.0, 0.25)):
        ppo.adapt_kl_coeff(kl)
        assert ppo.kl_coeff.item() == expected
    assert "kl_coeff" in ppo.state_dict()


def test_the_weight_of_the_kl_penalty_is_adapted_once_a_rollout():
    ppo = certain("PPO", kl_coeff=0.5, kl_target=10.0)
    optimize = GradientStep(ppo.groups(), settings={"lr": 0.0})
    for last, expected in ((False, 0.5), (False, 0.5), (True, 0.25), (False, 0.25)):
        ppo.update(batch_of(last=last), optimize, Progress(0, 0))
        assert ppo.kl_coeff.item() == expected
    fixed = certain("PPO")
    fixed.update(batch_of(), GradientStep(fixed.groups()), Progress(0, 0))
    assert fixed.kl_coeff.item() == 0.0


def test_a_rollout_has_taught_enough_beyond_the_target_kl():
    found = {}
    for target in (None, 0.01, 1.0):
        ppo = certain("PPO", target_kl=target)
        found[target] = ppo.update(batch_of(), GradientStep(ppo.groups()), Progress(0, 0)).enough
    assert found == {None: False, 0.01: True, 1.0: False}


@pytest.mark.parametrize("name, setting", [("PPO", "clip"), ("PPO", "entropy_coeff"), ("A2C", "entropy_coeff")])
def test_scheduled_values_follow_the_env_steps_and_reach_the_loss_as_tensors(name, setting):
    algorithm = certain(name, **{setting: [[0, 0.5], [100, 0.25]]})
    seen = []

    def optimize(group, loss_fn, *tensors):
        assert all(isinstance(x, torch.Tensor) for x in tensors[1:])
        seen.append([x.item() for x in tensors[1:]])
        return {"kl": torch.tensor(0.0)}, None

    for env_steps in (0, 50, 500):
        algorithm.update(batch_of(), optimize, Progress(0, env_steps))
    assert [0.5, 0.375, 0.25] in [list(column) for column in zip(*seen, strict=True)]


def test_a2c_moves_by_rmsprop_or_adam():
    assert make("A2C").optimizer() == ("rmsprop", {"alpha": 0.99, "eps": 1e-5})
    assert make("A2C", optimizer="adam", adam_eps=1e-3).optimizer() == ("adam", {"eps": 1e-3})
    assert make("PPO").optimizer() == ("adam", {"eps": 1e-5})


ACTIONS = {
    "discrete": gym.spaces.Discrete(3, start=4),
    "parts": gym.spaces.MultiDiscrete([2, 3]),
    "bits": gym.spaces.MultiBinary(3),
    "box": gym.spaces.Box(np.array([0.0, -3.0]), np.array([np.inf, 5.0]), dtype=np.float64),
}


@pytest.mark.parametrize("kind", ACTIONS)
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("masked", [False, True])
def test_updates_make_better_actions_likelier_in_every_space(name, kind, masked):
    """An update on two actions, of which one is better, in one observation."""
    space, obs = ACTIONS[kind], torch.ones(2, 2)
    seen = SPACES.observation
    if masked:
        if kind not in ("discrete", "parts"):
            return  # envs mask no other actions
        width = 3 if kind == "discrete" else 5
        seen = gym.spaces.Dict({"obs": seen, "action_mask": gym.spaces.MultiBinary(width)})
        obs = {"obs": obs, "action_mask": torch.ones(2, width, dtype=torch.int8)}
    algorithm = make(name, Spaces(seen, space), hidden_sizes=[8], share_torso=masked)
    optimize = GradientStep(algorithm.groups(), *algorithm.optimizer())
    optimize.set_lr("policy", 0.01)
    action = {
        "discrete": torch.tensor([0, 2]),
        "parts": torch.tensor([[0, 2], [1, 1]]),
        "bits": torch.tensor([[0, 1, 1], [1, 1, 0]]),
        "box": torch.tensor([[0.5, -0.5], [-0.5, 0.5]]),
    }[kind]
    with torch.no_grad():
        before = algorithm.policy.evaluate(obs, action)
    batch = batch_of(last=False)._replace(obs=obs, action=action, log_prob=before.log_prob, value=before.value)
    for number in range(5):
        algorithm.update(batch, optimize, Progress(number, 0))
    with torch.no_grad():
        after = algorithm.policy.evaluate(obs, action)
    change = after.log_prob - before.log_prob
    assert change[0] > 0.001 and change[0] > change[1]
    wanted = batch.return_.mean()
    assert (after.value - wanted).abs().mean() < (before.value - wanted).abs().mean()


@pytest.mark.parametrize("kind", ACTIONS)
@pytest.mark.parametrize("name", NAMES)
def test_a_captured_loss_is_the_loss_for_other_data_and_other_values_of_schedules(name, kind):
    settings = {"vf_clip": 0.2, "kl_coeff": 0.1} if name == "PPO" else {}
    algorithm = make(name, Spaces(SPACES.observation, ACTIONS[kind]), hidden_sizes=[4], normalize_obs=True, **settings)
    weights = algorithm.groups()["policy"]

    def gradient(*tensors):
        loss = algorithm.loss(*tensors)
        return [loss.value, *torch.autograd.grad(loss.value, weights), *loss.metrics.values()]

    def tensors(seed):
        drawn = torch.Generator().manual_seed(seed)
        obs = torch.randn(6, 2, generator=drawn)
        with torch.no_grad():
            action = algorithm.policy.act(obs, algorithm.policy.noise(1, 6, drawn, 0, 1)[0]).action
        numbers = torch.randn(4, 6, generator=drawn).unbind()
        scheduled = torch.rand(3 if name == "PPO" else 1, generator=drawn).unbind()
        return RolloutBatch(obs, action, *numbers, torch.tensor(False)), *scheduled

    captured = make_fx(gradient)(*tensors(1))
    for seed in (1, 2):
        for mine, theirs in zip(captured(*tensors(seed)), gradient(*tensors(seed)), strict=True):
            torch.testing.assert_close(mine, theirs)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    "setting",
    [
        {"gamma": 1.1},
        {"hidden_sizes": [8, 0]},
        {"rollout_length": 0},
        {"vf_coeff": -0.1},
        {"entropy_coeff": -0.1},
        {"entropy_coeff": [[0, 0.1], [0, 0.0]]},
        {"gae_lambda": 1.5},
        {"gae_lambda": float("nan")},
        {"rmsprop_eps": -1.0},
        {"rmsprop_decay": 1.0},
        {"epochs_per_rollout": 0},
        {"batch_size": 0},
        {"clip": -0.1},
        {"vf_clip": 0.0},
        {"kl_coeff": -1.0},
        {"kl_target": 0.0},
        {"target_kl": float("nan")},
        {"activation": "sine"},
    ],
    ids=str,
)
def test_a_setting_out_of_range_is_one_line_that_names_it(name, setting):
    (given,) = setting
    if not hasattr(find_algorithm(name).Config(), given):
        return
    with pytest.raises(UsageError, match=given) as caught:
        make(name, **({"hidden_sizes": [4]} | setting))
    assert "\n" not in str(caught.value)
