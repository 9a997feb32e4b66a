from __future__ import annotations

import gymnasium as gym
import numpy as np
import pytest
import torch
from tiny_envs import Counting
from tiny_runs import Signs

from lit_rl.data.collector import Collector
from lit_rl.data.plans import PopulationPlan
from lit_rl.data.population import PopulationSource, return_per_episode
from lit_rl.data.transitions import Steps
from lit_rl.envs.spaces import Spaces
from lit_rl.envs.vector import make_vector_env, probe
from lit_rl.errors import UsageError
from lit_rl.networks.architecture import Architecture
from lit_rl.policies.acting import HostActor, make_actor
from lit_rl.policies.actor_critic import ActorCritic
from lit_rl.policies.population import Population

PLAN = PopulationPlan(steps_per_iteration=64, members=8, noise_stdev=0.5)


def make_source(env=Signs, plan=PLAN, num_envs=2, seed=0, **env_config):
    spaces = probe(env, env_config)
    envs = make_vector_env(env, env_config, num_envs, "sync", autoreset="same_step")
    generator = torch.Generator().manual_seed(0)
    collector = Collector(envs, spaces, lambda number: [number + i for i in range(num_envs)], generator, num_envs)
    return PopulationSource(plan, collector, seed, 1), make_policy(spaces)


def make_policy(spaces):
    torch.manual_seed(0)
    return ActorCritic(spaces, Architecture([4], "tanh"), critic=False)


def test_each_env_is_played_by_weights_of_its_own():
    policy = make_policy(probe(Signs, {"start": None}))
    population = Population(policy, 3)
    offset = torch.randn(3, population.size) * 3
    population.scatter(offset)
    obs = torch.randn(3, 2)
    found = population.act(obs).action
    flat = torch.cat([p.detach().reshape(-1) for p in policy.actor.parameters()])
    alone = make_policy(policy.spaces)
    for n in range(3):
        torch.nn.utils.vector_to_parameters(flat + offset[n], alone.actor.parameters())
        torch.testing.assert_close(found[n], alone.act(obs[n : n + 1]).action[0])
    actor = make_actor(population)
    assert isinstance(actor, HostActor)
    noise = population.noise(1, 3, torch.Generator(), 0, 3)[0].numpy()
    np.testing.assert_allclose(actor.act(obs.numpy(), noise, None)[0], found.numpy(), rtol=1e-5, atol=1e-6)
    population.scatter(torch.zeros(3, population.size))  # the actor reads the weights of the moment
    with torch.no_grad():
        expected = policy.act(obs).action.numpy()
    np.testing.assert_allclose(actor.act(obs.numpy(), noise, None)[0], expected, rtol=1e-5, atol=1e-6)


def test_a_score_is_the_rewards_over_the_episodes_begun():
    t, f = True, False
    steps = Steps(
        obs=np.zeros((5, 4, 1)),
        action=np.zeros((4, 4)),
        reward=np.array([[1, 1, 1, 1], [1, 2, 1, 9], [1, 3, 1, 1], [1, 4, 1, 1]], np.float32),
        terminated=np.array([[f, t, f, t], [f, f, f, f], [f, t, f, f], [f, f, t, f]]),
        truncated=np.array([[f, f, f, f], [f, f, t, f], [f, f, f, f], [f, f, f, f]]),
        valid=np.array([[t, t, t, t], [t, t, t, f], [t, t, t, t], [t, t, t, t]]),
        final_index=np.zeros((0, 2)),
        final_obs=np.zeros((0, 1)),
    )
    # never ended; ended twice and begun a third; ended twice, the last time at the end; ended once, reset in a step
    assert return_per_episode(steps).tolist() == [4.0, 10 / 3, 2.0, 3 / 2]


def test_members_come_in_mirrored_pairs_around_the_policy_of_the_moment():
    seen = []

    class Noting(Population):
        def scatter(self, offset):
            seen.append(offset.clone())
            super().scatter(offset)

    source, policy = make_source()
    source._population = policy, Noting(policy, 2)
    batch = source.evaluate(policy)
    assert batch.direction.shape == (4, source._population[1].size) and batch.return_.shape == (4, 2)
    for pair, direction in zip(seen, batch.direction, strict=True):
        assert torch.equal(pair[0], -pair[1]) and torch.equal(pair[0], 0.5 * direction)


@pytest.mark.parametrize("length", [1, 3, 100])
def test_an_iteration_costs_the_same_whatever_happens_in_it(length):
    source, policy = make_source(Counting, length=length)
    (batch,) = source.experience(policy).minibatches()
    assert source.env_steps == source.collector.env_steps == 64
    assert batch.return_[0, 0] == pytest.approx(8 / -(-8 // length))


def test_a_saved_source_goes_on_as_the_one_it_was_saved_from():
    one, policy = make_source(start=None)
    one.evaluate(policy)
    two, _ = make_source(start=None, seed=9)
    two.load_state_dict(one.state_dict())
    for a, b in zip(one.evaluate(policy), two.evaluate(policy), strict=True):
        assert torch.equal(a, b)
    assert one.env_steps == two.env_steps == 128


@pytest.mark.parametrize(
    "members, steps, epoch, vector, expected",
    [
        (40, 10_000, 10_000, 1, (40, 10_000)),
        (40, 10_000, 10_000, 4, (40, 10_000)),
        (41, 3_000, 10_000, 1, (40, 2_000)),  # 40 divide 2,000, which divides the epoch; 2,500 they do not
        (40, 64, 128, 4, (32, 64)),
        (2, 1, 96, 8, (16, 16)),
    ],
)
def test_the_members_fill_the_envs_and_the_iterations_an_epoch(members, steps, epoch, vector, expected):
    plan = PopulationPlan(steps, members, 0.1).fit(epoch, vector)
    assert (plan.members, plan.steps_per_iteration) == expected


def test_an_epoch_that_cannot_be_shared_out_is_refused():
    with pytest.raises(UsageError, match="step_per_epoch 100 cannot be shared out .* use --step_per_epoch 96"):
        PopulationPlan(64, 8, 0.1).fit(100, 8)


def test_any_space_can_be_seen():
    dictionary = gym.spaces.Dict({"a": gym.spaces.Box(-1, 1, (2,), np.float32), "b": gym.spaces.Discrete(3)})
    population = Population(make_policy(Spaces(dictionary, gym.spaces.Discrete(2))), 2)
    assert population.act({"a": torch.zeros(2, 2), "b": torch.tensor([0, 2])}).action.shape == (2,)
    assert not isinstance(make_actor(population), HostActor)
