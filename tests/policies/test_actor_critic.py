from __future__ import annotations

import itertools

import gymnasium as gym
import numpy as np
import pytest
import torch
from torch import nn

from lit_rl.envs.spaces import Spaces
from lit_rl.errors import UsageError
from lit_rl.networks.architecture import Architecture
from lit_rl.policies.acting import HostActor, TorchActor, make_actor
from lit_rl.policies.actor_critic import ActorCritic

FLAT = gym.spaces.Box(-1, 1, (3,), np.float32)
ACTIONS = {
    "discrete": gym.spaces.Discrete(4),
    "discrete from -2": gym.spaces.Discrete(4, start=-2),
    "parts": gym.spaces.MultiDiscrete([3, 3]),
    "ragged parts": gym.spaces.MultiDiscrete([2, 4, 3], start=[0, -1, 5]),
    "table of parts": gym.spaces.MultiDiscrete(np.array([[2, 3], [4, 2]])),
    "bits": gym.spaces.MultiBinary(3),
    "table of bits": gym.spaces.MultiBinary([2, 2]),
    "box": gym.spaces.Box(-1, 1, (2,), np.float32),
    "unequal box": gym.spaces.Box(np.array([0.0, -5.0, 2.0]), np.array([1.0, 0.5, 300.0]), dtype=np.float64),
    "infinite box": gym.spaces.Box(-np.inf, np.inf, (2,), np.float32),
    "half a box": gym.spaces.Box(np.array([0, -np.inf, -1], np.float32), np.array([np.inf, 3, 1], np.float32)),
    "number": gym.spaces.Box(-2, 2, (), np.float32),
    "table of whole numbers": gym.spaces.Box(0, 9, (2, 2), np.int64),
}
DISCRETE = [name for name, space in ACTIONS.items() if not isinstance(space, gym.spaces.Box)]
MASKED = {
    "discrete": (gym.spaces.Discrete(4), [4]),
    "ragged parts": (gym.spaces.MultiDiscrete([2, 4, 3]), [2, 4, 3]),
    "parts": (gym.spaces.MultiDiscrete([3, 3]), [3, 3]),
}


def make_policy(action, observation=FLAT, hidden=(16,), activation="tanh", spread=1.0, **settings):
    """A policy whose weights and statistics are those of one that has learned something."""
    policy = ActorCritic(Spaces(observation, action), Architecture(hidden, activation), **settings)
    with torch.no_grad():
        for p in policy.parameters():
            p.add_(spread * torch.randn_like(p) / 2)
        if policy.norm is not None:
            policy.observe(torch.randn(100, 3) * torch.tensor([1.0, 2.0, 3.0]) + 1)
    return policy


def every_action(space):
    """All actions of a discrete space, as the policy has them."""
    if isinstance(space, gym.spaces.Discrete):
        return torch.arange(int(space.n))
    sizes = space.nvec.reshape(-1) if isinstance(space, gym.spaces.MultiDiscrete) else [2] * int(np.prod(space.shape))
    return torch.tensor(list(itertools.product(*(range(n) for n in sizes))))


@pytest.mark.parametrize("name", ACTIONS)
def test_every_action_is_one_of_the_space(name):
    space = ACTIONS[name]
    policy = make_policy(space, spread=3.0)
    obs = torch.randn(60, 3)
    noise = policy.noise(1, 60, torch.Generator().manual_seed(1), 0, 1)[0]
    for action in (policy.act(obs).action, policy.act(obs, noise).action, policy.random(obs, noise)):
        taken = policy.env_action(action.detach().numpy())
        assert taken.shape == (60, *space.shape)
        assert all(space.contains(a) for a in taken), taken[:5]


@pytest.mark.parametrize("name", DISCRETE)
def test_probabilities_of_all_actions_add_up_to_one_and_make_the_entropy(name):
    policy = make_policy(ACTIONS[name])
    actions = every_action(ACTIONS[name])
    found = policy.evaluate(torch.randn(1, 3).expand(len(actions), 3), actions)
    p = found.log_prob.exp()
    assert p.sum().item() == pytest.approx(1, abs=1e-5)
    assert found.entropy[0].item() == pytest.approx(-(p * found.log_prob).sum().item(), abs=1e-4)


@pytest.mark.parametrize("name", DISCRETE)
def test_actions_are_taken_as_often_as_their_probability_says(name):
    policy = make_policy(ACTIONS[name])
    actions = every_action(ACTIONS[name])
    obs = torch.randn(1, 3)
    count = 20_000
    noise = policy.noise(1, count, torch.Generator().manual_seed(1), 0, 1)[0]
    taken = policy.act(obs.expand(count, 3), noise).action
    p = policy.evaluate(obs.expand(len(actions), 3), actions).log_prob.exp()
    rows = [(taken.view(count, -1) == a.view(1, -1)).all(1).float().mean() for a in actions]
    assert (torch.stack(rows) - p).abs().max() < 4.5 * (0.25 / count) ** 0.5


@pytest.mark.parametrize("name", MASKED)
def test_forbidden_actions_are_never_taken_have_no_probability_and_get_no_gradient(name):
    space, sizes = MASKED[name]
    width = sum(sizes)
    shown = gym.spaces.Dict({"obs": FLAT, "action_mask": gym.spaces.MultiBinary(width)})
    policy = make_policy(space, shown)
    mask = torch.ones(200, width, dtype=torch.int8)
    forbidden = [1] if len(sizes) == 1 else [0, sizes[0] + 2]
    mask[:, forbidden] = 0
    obs = {"obs": torch.randn(200, 3), "action_mask": mask}
    noise = policy.noise(1, 200, torch.Generator().manual_seed(1), 0, 1)[0]
    starts = np.cumsum([0, *sizes[:-1]])
    for action in (policy.act(obs).action, policy.act(obs, noise).action, policy.random(obs, noise)):
        places = action.view(200, -1).numpy() + starts
        assert not np.isin(places, forbidden).any()
        assert len(np.unique(places)) > len(sizes)
    actions = every_action(space)
    one = {"obs": obs["obs"][:1].expand(len(actions), 3), "action_mask": mask[: len(actions)]}
    found = policy.evaluate(one, actions)
    allowed = ~np.isin(actions.view(len(actions), -1).numpy() + starts, forbidden).any(1)
    p = found.log_prob.exp()
    assert p[torch.from_numpy(allowed)].sum().item() == pytest.approx(1, abs=1e-5) and (p[~allowed] == 0).all()
    assert torch.isfinite(found.entropy).all()
    loss = found.log_prob[torch.from_numpy(allowed)].sum() + found.entropy.sum()
    (gradient,) = torch.autograd.grad(loss, policy.actor.linear.bias)
    assert torch.isfinite(gradient).all()
    assert (gradient == 0).sum() >= len(forbidden)


@pytest.mark.parametrize("name", ACTIONS)
@pytest.mark.parametrize("normalize_obs", [False, True])
def test_the_collector_acts_as_the_policy_does_on_the_weights_of_the_moment(name, normalize_obs):
    policy = make_policy(ACTIONS[name], hidden=(8, 8), normalize_obs=normalize_obs)
    actor = make_actor(policy)
    assert isinstance(actor, TorchActor if name in ("ragged parts", "table of parts") else HostActor)
    generator = torch.Generator().manual_seed(2)
    for _ in range(3):
        obs = torch.randn(50, 3)
        noise = policy.noise(1, 50, generator, 0, 1)[0]
        before = obs.clone(), noise.clone()
        with torch.no_grad():
            action, state = actor.act(obs.numpy(), noise.numpy(), None)
            np.testing.assert_allclose(action, policy.act(obs, noise).action.numpy(), rtol=1e-4, atol=1e-5)
            assert state is None and torch.equal(obs, before[0]) and torch.equal(noise, before[1])
            for p in policy.parameters():
                p.add_(torch.randn_like(p) / 4)
            policy.observe(torch.randn(9, 3))


@pytest.mark.parametrize("name", ACTIONS)
@pytest.mark.parametrize("normalize_obs", [False, True])
def test_rollouts_are_evaluated_in_numpy_as_the_policy_does_on_the_weights_of_the_moment(name, normalize_obs):
    policy = make_policy(ACTIONS[name], hidden=(8, 8), normalize_obs=normalize_obs)
    evaluate = policy.host_evaluate()
    assert (evaluate is None) == (name in ("ragged parts", "table of parts"))
    if evaluate is None:
        return
    for _ in range(3):
        obs = torch.randn(40, 3)
        with torch.no_grad():
            noise = policy.noise(1, 30, torch.Generator().manual_seed(2), 0, 1)[0]
            action = policy.act(obs[:30], noise).action
            log_prob, value = evaluate(obs.numpy(), action.numpy())
            np.testing.assert_allclose(log_prob, policy.evaluate(obs[:30], action).log_prob, rtol=1e-4, atol=1e-5)
            np.testing.assert_allclose(value, policy.value(obs), rtol=1e-4, atol=1e-5)
            for p in policy.parameters():
                p.add_(torch.randn_like(p) / 4)
            policy.observe(torch.randn(9, 3))


def test_what_has_no_critic_of_its_own_is_evaluated_by_torch():
    assert make_policy(ACTIONS["discrete"], share_torso=True).host_evaluate() is None
    assert make_policy(ACTIONS["discrete"], critic=False).host_evaluate() is None


@pytest.mark.parametrize("observation", [gym.spaces.Discrete(3, start=1), gym.spaces.Dict({"a": FLAT})], ids=str)
def test_what_numpy_cannot_see_is_acted_on_by_torch(observation):
    policy = ActorCritic(Spaces(observation, ACTIONS["discrete"]), Architecture([4], "tanh"), normalize_obs=True)
    assert isinstance(make_actor(policy), TorchActor)
    wide = make_policy(ACTIONS["discrete"], activation="gelu")
    assert isinstance(make_actor(wide), TorchActor)


def test_the_normal_distribution_is_the_one_its_weights_say():
    policy = make_policy(ACTIONS["infinite box"])
    with torch.no_grad():
        policy.actor.distribution.log_std.copy_(torch.tensor([0.5, -1.0]))
    obs = torch.randn(1, 3)
    mean = policy.act(obs).action
    action = torch.randn(7, 2)
    normal = torch.distributions.Normal(mean, torch.tensor([0.5, -1.0]).exp())
    found = policy.evaluate(obs.expand(7, 3), action)
    torch.testing.assert_close(found.log_prob, normal.log_prob(action).sum(1))
    torch.testing.assert_close(found.entropy, normal.entropy().sum(1).expand(7))
    noise = policy.noise(1, 20_000, torch.Generator().manual_seed(1), 0, 1)[0]
    taken = policy.act(obs.expand(20_000, 3), noise).action
    torch.testing.assert_close(taken.std(0), normal.stddev[0], rtol=0.02, atol=0)
    torch.testing.assert_close(taken.mean(0), mean[0], rtol=0, atol=0.05)


def test_finite_bounds_stand_at_minus_one_and_one_and_the_rest_is_clipped():
    policy = ActorCritic(Spaces(FLAT, ACTIONS["unequal box"]), Architecture([4], "tanh"))
    own = np.array([[-1.0, 1.0, 0.0], [-7.0, 9.0, 0.5], [0.0, 0.0, -1.0]], np.float32)
    np.testing.assert_allclose(
        policy.env_action(own), [[0.0, 0.5, 151.0], [0.0, 0.5, 225.5], [0.5, -2.25, 2.0]], rtol=1e-6
    )
    half = ActorCritic(Spaces(FLAT, ACTIONS["half a box"]), Architecture([4], "tanh"))
    assert half.env_action(np.array([[-3.0, 9.0, 9.0], [50.0, -50.0, 0.5]], np.float32)).tolist() == [
        [0.0, 3.0, 1.0],
        [50.0, -50.0, 0.5],
    ]
    whole = ActorCritic(Spaces(FLAT, ACTIONS["table of whole numbers"]), Architecture([4], "tanh"))
    assert whole.env_action(np.array([[-1.0, 1.0, 0.0, 0.12]], np.float32)).tolist() == [[[0, 9], [4, 5]]]


def test_torsos_are_separate_unless_they_are_shared():
    apart, shared = (make_policy(ACTIONS["discrete"], share_torso=share) for share in (False, True))
    obs, action = torch.randn(5, 3), torch.zeros(5, dtype=torch.long)
    for policy, other in ((apart, 0), (shared, 1)):
        value = policy.evaluate(obs, action).value
        torch.testing.assert_close(value, policy.value(obs))
        gradients = torch.autograd.grad(value.sum(), list(policy.actor.torso.parameters()), allow_unused=True)
        assert all((g is not None) == bool(other) for g in gradients)
    names = {name for name, _ in shared.named_parameters()}
    assert {name for name in names if name.startswith("critic")} == {"critic.linear.weight", "critic.linear.bias"}


def test_without_a_critic_values_are_zero():
    policy = make_policy(ACTIONS["discrete"], critic=False)
    assert policy.critic is None and policy.value(torch.randn(5, 3)).tolist() == [0.0] * 5
    assert {name.split(".")[0] for name, _ in policy.named_parameters()} == {"actor"}


def test_weights_begin_orthogonal_and_all_actions_about_as_likely():
    policy = ActorCritic(Spaces(FLAT, ACTIONS["discrete"]), Architecture([16, 16], "tanh"))
    found = policy.evaluate(torch.randn(50, 3), torch.zeros(50, dtype=torch.long))
    assert (found.log_prob.exp() - 0.25).abs().max() < 0.02
    linears = [m for m in policy.modules() if isinstance(m, nn.Linear)]
    assert all((m.bias == 0).all() for m in linears)
    square = policy.actor.torso.mlp[2].weight
    torch.testing.assert_close(square @ square.T, 2 * torch.eye(16), rtol=0, atol=1e-5)
    assert policy.critic[1].linear.weight.norm().item() == pytest.approx(1, abs=1e-5)


def test_normalised_observations_are_what_actor_and_critic_see():
    policy = make_policy(ACTIONS["discrete"], normalize_obs=True)
    obs = torch.randn(300, 3) * 5 + 2
    fresh = ActorCritic(policy.spaces, Architecture([16], "tanh"), normalize_obs=True)
    fresh.observe(obs)
    plain = ActorCritic(policy.spaces, Architecture([16], "tanh"))
    plain.load_state_dict({k: v for k, v in fresh.state_dict().items() if not k.startswith("norm")})
    seen = (obs - obs.mean(0)) / obs.std(0, correction=0)
    action = torch.zeros(300, dtype=torch.long)
    for one, two in zip(fresh.evaluate(obs, action), plain.evaluate(seen, action), strict=True):
        torch.testing.assert_close(one, two, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(fresh.value(obs), plain.value(seen), rtol=1e-4, atol=1e-5)
    assert torch.equal(fresh.act(obs).action, plain.act(seen).action)


def test_other_action_spaces_are_refused_by_name():
    with pytest.raises(UsageError, match="no policy for Dict"):
        ActorCritic(Spaces(FLAT, gym.spaces.Dict({"a": ACTIONS["discrete"]})), Architecture([4], "tanh"))
