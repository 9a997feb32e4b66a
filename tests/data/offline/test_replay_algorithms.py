"""Algorithms with a replay buffer learn from data as they are, frames and all."""

from __future__ import annotations

import pytest
import torch
from algorithms.tester import ENVS, QUICK
from recorded_episodes import answer, record, spaces_of
from tiny_envs import Counting
from tiny_runs import Signs, fit, make_data

from lit_rl.algorithms import find_algorithm
from lit_rl.data.offline.data_set import DataSet
from lit_rl.data.offline.source import OfflineSource
from lit_rl.data.plans import OfflinePlan, PopulationPlan, ReplayPlan, RolloutPlan
from lit_rl.envs.frames import Stacking, stack_spaces
from lit_rl.errors import UsageError
from lit_rl.lit_policy import LitPolicy


def half(obs, env, rng):
    """Half of the actions are good: a critic that has seen no others knows nothing of them."""
    return answer(obs, env, rng) if rng.random() < 0.5 else env.action_space.sample()


@pytest.mark.parametrize(
    ("algo", "kind"),
    [("DQN", "discrete"), ("SAC", "discrete"), ("SAC", "continuous"), ("TD3", "continuous"), ("DDPG", "continuous")],
)
def test_it_learns_signs_without_acting(tmp_path, algo, kind):
    config = ENVS[kind]
    path = record(tmp_path / "signs.jsonl", 80, act=half, **config)
    data = make_data(Signs, env_config=config, input=path, step_per_epoch=200, episode_per_test=20)
    known = find_algorithm(algo).Config.__dataclass_fields__
    policy = LitPolicy(algo, data.spaces, **{name: x for name, x in QUICK.items() if name in known})
    fit(policy, data, 2)
    data.close()
    assert (policy.updates, policy.env_steps) == (400, 0)
    assert policy.reported["Eval/return"] > 3.2  # of 4; chance has 2
    assert ("Eval/f1" if kind == "discrete" else "Eval/mse") in policy.reported


def test_stacks_are_made_of_single_recorded_frames(tmp_path):
    path = record(tmp_path / "a.jsonl", 20, Counting, act=lambda obs, env, rng: 0)
    stacking = Stacking.of(stack_spaces(spaces_of(Counting), 3))
    data = DataSet(path, validation_fraction=0.0).training(0, 1, 1.0, stacking)
    for batch in OfflineSource(OfflinePlan(4, 16, 0.9), data, 0).sample(4):
        t, episode = batch.obs[:, -1, 1], batch.obs[:, :, 0]
        expected = torch.stack([(t - 2).clamp(min=0), (t - 1).clamp(min=0), t], 1)
        torch.testing.assert_close(batch.obs[:, :, 1], expected)
        assert (episode == episode[:, :1]).all()
        torch.testing.assert_close(batch.next_obs[:, 0], batch.obs[:, 1])


def test_a_policy_of_stacks_is_scored_on_single_frames(tmp_path):
    path = record(tmp_path / "signs.jsonl", 20)
    data = make_data(Signs, input=path, frame_stack=3)
    policy = LitPolicy("BC", data.spaces, hidden_sizes=[8], batch_size=16)
    fit(policy, data, 1)
    data.close()
    assert data.spaces.observation.shape == (3, 2) and {"Eval/f1", "Eval/return"} <= policy.reported.keys()


def test_only_plans_that_can_do_without_acting_have_an_offline_one():
    replay = ReplayPlan(40, 4, 0.5, 32, 1000, 100, 0.9, n_step=3, noise=(2, 5))
    assert replay.offline() == OfflinePlan(40, 32, 0.9, 3, (2, 5)) == replay.offline().offline()
    for plan in (RolloutPlan(40, 4, 1, None, 0.9, 1.0), PopulationPlan(40, 4, 0.1)):
        with pytest.raises(UsageError, match="learns from its own policy's experience alone"):
            plan.offline()
    with pytest.raises(UsageError, match="learns from recorded episodes alone: give --input PATH"):
        replay.offline().make_source(None, 0, 1)
    assert replay.offline().fit(100, 7).steps_per_iteration == 25  # whatever envs make at once
