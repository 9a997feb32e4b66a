"""Tianshou's trainer functions, called as its users call them."""

from __future__ import annotations

import gymnasium as gym
import numpy as np
import pytest
import torch
from tiny_runs import Signs, make_policy

from lit_rl import LitPolicy, offline_trainer, offpolicy_trainer, onpolicy_trainer
from lit_rl.compat import tianshou as ts
from lit_rl.datamodule import ExperienceDataModule
from lit_rl.envs.make import make_env
from lit_rl.errors import UsageError

# As it stands in the document that this project began with.
CALL = """
result = ts.trainer.offpolicy_trainer( policy, train_collector, test_collector, max_epoch=max_epoch, step_per_epoch=step_per_epoch, collect_per_step=collect_per_step, episode_per_test=30, batch_size=64, train_fn=lambda e1, e2: policy.set_eps(0.1 / round), test_fn=lambda e1, e2: policy.set_eps(0.05 / round), writer=None)
"""  # noqa: E501


def make(algo="DQN", **settings):
    data = ExperienceDataModule(Signs)
    if algo == "DQN":
        return make_policy(data, **settings)
    return LitPolicy(algo, data.spaces, hidden_sizes=[8], **settings)


def collectors(policy, count=2):
    buffer = ts.ReplayBuffer(400)
    return ts.Collector(policy, ts.DummyVectorEnv([Signs] * count), buffer), ts.Collector(policy, ts.VectorEnv([Signs]))


class Writer:
    """A SummaryWriter that keeps what it is given."""

    def __init__(self, log_dir):
        self.log_dir, self.rows = str(log_dir), []

    def add_scalar(self, name, value, global_step):
        assert isinstance(value, float)
        self.rows.append((name, global_step))


def small(policy, **more):
    train, test = collectors(policy)
    settings = {"max_epoch": 2, "step_per_epoch": 40, "collect_per_step": 4, "episode_per_test": 3, "batch_size": 8}
    settings |= {"update_per_step": 0.5, "verbose": False}
    return offpolicy_trainer(policy, train, test, **(settings | more))


def test_the_call_of_the_document_runs_as_written():
    torch.manual_seed(0)
    policy = make()
    train_collector, test_collector = collectors(policy)
    found = {
        "ts": ts,
        "policy": policy,
        "train_collector": train_collector,
        "test_collector": test_collector,
        "max_epoch": 2,
        "step_per_epoch": 40,
        "collect_per_step": 4,
        "round": 1,
    }
    exec(CALL, found)
    result = found["result"]
    assert set(result) == {
        *("train_step", "train_episode", "train_time/collector", "train_time/model", "train_speed"),
        *("test_step", "test_episode", "test_time", "test_speed", "best_reward", "best_result", "duration"),
    }
    assert result["train_step"] == 80 and result["train_episode"] == 20
    assert result["test_episode"] == 3 * 30 and result["test_step"] == 3 * 30 * 4  # before the first epoch too
    assert 0 <= result["best_reward"] <= 4 and result["best_result"][0] == result["best_reward"]
    assert policy.policy.fixed_eps == 0.1 and policy.updates == 80
    assert all(isinstance(value, float | int) for name, value in result.items() if name != "best_result")


def test_train_fn_runs_before_every_collect_and_test_fn_before_every_test():
    policy = make()
    train, test = [], []
    small(policy, train_fn=lambda e, s: train.append((e, s)), test_fn=lambda e, s: test.append((e, s)))
    assert train == [(1, n) for n in range(0, 40, 4)] + [(2, n) for n in range(40, 80, 4)]
    assert test == [(0, 0), (1, 40), (2, 80)]


def test_an_epsilon_of_test_fn_holds_in_the_test_only():
    policy = make()
    seen = []
    result = small(
        policy,
        max_epoch=1,
        train_fn=lambda e, s: (seen.append(policy.policy.fixed_eps), policy.set_eps(0.3)),
        test_fn=lambda e, s: policy.set_eps(1.0),
        episode_per_test=200,
    )
    assert seen == [None] + [0.3] * 9
    assert abs(result["best_result"][0] - 2) < 0.3  # of episodes that act at random
    assert policy.policy.fixed_eps == 0.3


def test_the_best_policy_is_saved_and_the_run_ends_where_stop_fn_says_so():
    policy = make()
    saved, checkpoints, weights = [], [], []

    def save_best_fn(found):
        assert found is policy
        saved.append(policy.updates)
        weights.append({name: x.clone() for name, x in policy.state_dict().items()})

    result = small(
        policy,
        max_epoch=50,
        stop_fn=lambda mean_reward: mean_reward >= 4,
        save_best_fn=save_best_fn,
        save_checkpoint_fn=lambda epoch, env_step, gradient_step: checkpoints.append((epoch, env_step, gradient_step)),
        test_in_train=False,
    )
    assert result["best_reward"] == 4 and result["train_step"] < 50 * 40
    assert checkpoints[0] == (1, 40, 20) and len(checkpoints) == result["train_step"] // 40
    assert saved[-1] == policy.updates
    for name, value in policy.state_dict().items():  # the best one's, in the end
        assert torch.equal(value, weights[-1][name])


def test_a_training_return_that_passes_is_tested_at_once_and_its_winner_saved():
    policy = make()
    saved = []
    result = small(
        policy,
        max_epoch=50,
        step_per_epoch=4000,
        stop_fn=lambda mean_reward: mean_reward >= 3.5,
        save_best_fn=lambda p: saved.append(p.updates),
    )
    assert result["best_reward"] >= 3.5 and saved
    assert 0 < result["train_step"] < 4000  # in the middle of an epoch


def test_a_policy_that_is_good_enough_is_not_trained():
    policy = make()
    assert small(policy, stop_fn=lambda mean_reward: True)["train_step"] == 0
    assert policy.updates == 0


def test_the_writer_gets_scalars_over_env_steps_and_keeps_what_resume_from_log_goes_on_with(tmp_path):
    first, writer = make(), Writer(tmp_path)
    small(first, max_epoch=1, writer=writer, log_interval=5)
    assert {name for name, _ in writer.rows} >= {"train/reward", "train/length", "test/reward", "update/loss"}
    assert ("test/reward", 40) in writer.rows
    again, epochs = make(seed=7), []
    result = small(
        again,
        max_epoch=3,
        writer=writer,
        resume_from_log=True,
        save_checkpoint_fn=lambda epoch, env_step, gradient_step: epochs.append((epoch, env_step, gradient_step)),
    )
    assert epochs == [(2, 80, 40), (3, 120, 60)]
    assert result["train_step"] == 120


def test_a_resumed_fit_that_finds_nothing_better_ends_with_the_best_weights_from_before(tmp_path):
    first, again, writer = make(), make(seed=7), Writer(tmp_path)
    best = small(first, max_epoch=1, writer=writer)["best_result"]
    found = small(
        again, max_epoch=2, writer=writer, resume_from_log=True, reward_metric=lambda returns: returns - 100.0
    )
    assert again.updates > first.updates and found["best_result"] == best
    for name, weight in first.policy.state_dict().items():
        torch.testing.assert_close(again.policy.state_dict()[name], weight, rtol=0, atol=0)


def test_reward_metric_says_what_a_test_is_worth():
    result = small(make(), max_epoch=1, reward_metric=lambda returns: np.minimum(returns, 1.0))
    assert result["best_result"] == (1.0, 0.0)


@pytest.mark.parametrize(
    ("algo", "arguments", "updates"),
    [
        ("PPO", {"repeat_per_collect": 3, "batch_size": 10, "step_per_collect": 20}, 2 * 3 * 2 * 2),
        ("A2C", {"repeat_per_collect": 1, "step_per_collect": 20}, 2 * 2),
        ("PG", {"repeat_per_collect": 1, "episode_per_collect": 10}, None),
    ],
)
def test_onpolicy_trainer_repeats_over_rollouts(algo, arguments, updates):
    policy = make(algo)
    envs = ts.DummyVectorEnv([Signs] * 2)
    if "episode_per_collect" in arguments:
        with pytest.raises(UsageError, match="Signs has no limit on its episodes: give step_per_collect"):
            onpolicy_trainer(policy, ts.Collector(policy, envs), ts.Collector(policy, Signs), 2, 40, **arguments)
        return
    result = onpolicy_trainer(
        policy,
        ts.Collector(policy, envs),
        ts.Collector(policy, Signs),
        max_epoch=2,
        step_per_epoch=40,
        episode_per_test=3,
        verbose=False,
        **arguments,
    )
    assert policy.updates == updates and result["train_step"] == 80


def test_offline_trainer_learns_from_a_data_set(tmp_path):
    from lit_rl.data.offline.writers import writing

    data = ExperienceDataModule(Signs)
    with writing(str(tmp_path / "d.jsonl"), data.spaces, None, {}) as writer:
        for episode in right_episodes(20):
            writer.write(episode)
    torch.manual_seed(0)
    policy = LitPolicy("BC", data.spaces, hidden_sizes=[8], lr=0.02)
    result = offline_trainer(
        policy,
        str(tmp_path / "d.jsonl"),
        ts.Collector(policy, Signs),
        max_epoch=5,
        update_per_epoch=40,
        episode_per_test=5,
        batch_size=16,
        stop_fn=lambda mean_reward: mean_reward >= 4,
        verbose=False,
    )
    assert result["best_reward"] == 4 and result["train_step"] == 0


def right_episodes(count):
    """Episodes that always say the sign."""
    from lit_rl.data.transitions import Trajectory

    for number in range(count):
        env = Signs()
        obs, _ = env.reset(seed=number)
        shown, actions, rewards, over = [obs], [], [], False
        while not over:
            actions.append(np.int64(obs[0] > 0))
            obs, reward, terminated, truncated, _ = env.step(actions[-1])
            shown.append(obs)
            rewards.append(reward)
            over = terminated or truncated
        yield Trajectory(
            number, number, np.stack(shown), np.array(actions), np.array(rewards), terminated, truncated, None, None
        )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"collect_per_step": None}, "collect_per_step None is not allowed"),
        ({"max_epoch": None}, "max_epoch None is not allowed: give a whole number of at least 1"),
        ({"batch_size": 1.5}, "batch_size 1.5 is not allowed"),
        ({"update_per_step": float("nan")}, "update_per_step nan is not allowed: give a number above 0"),
        ({"stop_fn": 5}, "stop_fn 5 is not allowed: give a function"),
        ({"writer": "log"}, "writer 'log' is not allowed: give a SummaryWriter"),
        ({"episode_per_test": True}, "episode_per_test True is not allowed"),
        ({"step_per_collect": 8}, "collect_per_step 4 and step_per_collect 8 say the same"),
        ({"resume_from_log": True}, "resume_from_log needs a writer"),
    ],
)
def test_arguments_that_contradict_are_refused(arguments, message):
    with pytest.raises(UsageError, match=message):
        small(make(), **arguments)


def test_what_is_no_policy_and_no_collector_is_refused():
    policy = make()
    with pytest.raises(UsageError, match="test_collector 'CartPole-v1' is not allowed: give Collector"):
        offpolicy_trainer(policy, ts.Collector(policy, Signs), "CartPole-v1", 1, 40, 4)
    with pytest.raises(UsageError, match="policy 'DQN' is not allowed: give LitPolicy"):
        offpolicy_trainer("DQN", *collectors(policy), 1, 40, 4)
    with pytest.raises(UsageError, match="epsilon 'a' must be a number in"):
        policy.set_eps("a")


def test_other_kinds_of_policies_are_sent_to_their_own_trainer():
    policy = make("PPO")
    with pytest.raises(UsageError, match="PPO keeps no replay buffer: use onpolicy_trainer"):
        offpolicy_trainer(policy, *collectors(policy), 1, 40, 4)
    with pytest.raises(UsageError, match="set_eps: a policy of PPO has no epsilon"):
        policy.set_eps(0.1)
    policy = make()
    with pytest.raises(UsageError, match="DQN learns from no rollouts: use offpolicy_trainer"):
        onpolicy_trainer(policy, *collectors(policy), 1, 40, 1, step_per_collect=20)


class Short(Signs):
    """Episodes of two steps."""

    def step(self, action):
        obs, reward, terminated, truncated, info = super().step(action)
        self.made = getattr(self, "made", 0) + 1
        return obs, reward, terminated or self.made % 2 == 0, truncated, info


def test_tests_are_played_in_the_envs_of_the_test_collector():
    policy = make()
    result = offpolicy_trainer(
        policy,
        ts.Collector(policy, ts.DummyVectorEnv([Signs] * 2), ts.ReplayBuffer(400)),
        ts.Collector(policy, ts.VectorEnv([Short])),
        **{"max_epoch": 1, "step_per_epoch": 40, "collect_per_step": 4, "episode_per_test": 3, "batch_size": 8},
        verbose=False,
    )
    assert result["test_step"] == 2 * 3 * 2 and result["train_episode"] == 10


def test_an_env_that_was_made_with_more_than_its_id_is_made_so_again():
    policy = make()
    env = gym.make("CartPole-v1", max_episode_steps=7, sutton_barto_reward=True)
    made = make_env(ts.Collector(policy, env).env, {})
    made.reset(seed=0)
    assert made.spec.max_episode_steps == 7 and made.unwrapped._sutton_barto_reward
    assert ts.Collector(policy, gym.make("CartPole-v1")).env == "CartPole-v1"


def test_what_cannot_mean_what_it_says_is_refused():
    policy = make()
    quiet = ts.Collector(policy, Signs, exploration_noise=False)
    with pytest.raises(UsageError, match="exploration_noise False is not allowed"):
        offpolicy_trainer(policy, quiet, quiet, 1, 40, 4)
    pg = make("PG")
    with pytest.raises(UsageError, match="offline_trainer: PG learns by acting alone"):
        offline_trainer(pg, "a.jsonl", ts.Collector(pg, Signs), 1, 40)
