"""On-policy algorithms that remember (``--use_lstm``): they keep the tester's promises and solve what nobody else can."""

from __future__ import annotations

import gymnasium as gym
import numpy as np
import pytest
import pytorch_lightning as pl
import torch
from algorithms.tester import AlgorithmTester, Enough
from memory_env import Recall
from tiny_runs import make_trainer

from lit_rl import load_policy
from lit_rl.algorithms import find_algorithm
from lit_rl.data.evaluation import play_episodes
from lit_rl.datamodule import ExperienceDataModule
from lit_rl.envs.vector import make_vector_env, probe
from lit_rl.errors import UsageError
from lit_rl.lit_policy import LitPolicy
from lit_rl.networks.architecture import Architecture
from lit_rl.policies.actor_critic import ActorCritic

ON_POLICY = ["PG", "A2C", "PPO"]
LSTM = {"use_lstm": True, "lstm_cell_size": 16, "max_seq_len": 10}
QUICK = {"hidden_sizes": [16], "lr": 5e-3, "gamma": 0.9, "steps_per_iteration": 400, "rollout_length": 20}
PPO = {"batch_size": 80, "epochs_per_rollout": 4}


def recall(algo, max_epochs, env_config=None, **settings):
    """The best evaluation of a run on Recall, and its policy."""
    data = ExperienceDataModule(
        Recall, env_config or {}, num_envs=8, step_per_epoch=1600, episode_per_test=32, num_test_envs=32
    )
    pl.seed_everything(0, verbose=False)
    policy = LitPolicy(algo, data.spaces, **QUICK | (PPO if algo == "PPO" else {}) | settings)
    enough = Enough(0.99)
    trainer = make_trainer(max_epochs, [enough])
    trainer.fit(policy, datamodule=data)
    return enough.best, policy


@pytest.mark.parametrize("share_torso", [False, True])
@pytest.mark.parametrize("algo", ON_POLICY)
def test_it_recalls_what_it_saw_in_the_first_step(algo, share_torso, tmp_path):
    best, policy = recall(algo, 12, share_torso=share_torso, **LSTM)
    assert best == 1.0, f"{best} after {policy.env_steps} env steps"
    path = tmp_path / "x.ckpt"
    policy.trainer.save_checkpoint(path, weights_only=True)
    served = load_policy(path)
    envs = gym.vector.SyncVectorEnv([Recall] * 9, autoreset_mode=gym.vector.AutoresetMode.SAME_STEP)
    obs, _ = envs.reset(seed=3)
    total = 0.0
    for _ in range(20):  # four episodes of each
        obs, reward, terminated, truncated, _ = envs.step(served.act(obs))
        served.reset(terminated | truncated)
        total += reward.sum()
    assert total == 36.0


def test_whoever_remembers_nothing_answers_by_chance():
    best, policy = recall("PPO", 2)
    assert best < 0.7 and policy.env_steps == 3200


def test_what_is_remembered_goes_on_from_sequence_to_sequence():
    """Gradients end with a sequence of two steps; the cue of four steps ago is known all the same."""
    best, _ = recall("PPO", 12, {"truncates": True}, **LSTM | {"max_seq_len": 2})
    assert best == 1.0


def make_tester(algo):
    """PPO with torsos of their own and normalised observations, A2C with a shared one."""
    made = AlgorithmTester(algo)
    made.settings |= {"use_lstm": True, "lstm_cell_size": 8, "max_seq_len": 3, "share_torso": algo == "A2C"}
    made.settings["normalize_obs"] = algo == "PPO"
    return made


def test_it_acts_learns_repeats_itself_and_counts_updates_as_any_algorithm():
    tester = make_tester("PPO")
    tester.acts()
    tester.owns_its_parameters()
    tester.updates_only_what_it_should()
    tester.repeats_itself()
    tester.makes_as_many_updates_whatever_comes_in()


def test_it_sees_any_observation_and_through_a_users_own_network(tmp_path):
    tester = make_tester("A2C")
    tester.sees_any_observation()
    tester.takes_a_users_own_network(tmp_path)


@pytest.mark.parametrize("algo", ["A2C", "PPO"])
def test_it_is_saved_loaded_and_resumed(algo, tmp_path):
    tester = make_tester(algo)
    tester.is_saved_and_loaded(tmp_path)
    tester.resumes(tmp_path)


def test_it_starts_a_stage():
    make_tester("A2C").starts_a_stage()


def test_no_native_code_is_built_for_minibatches_of_many_shapes():
    with pytest.warns(UserWarning, match="updates stay eager: minibatches of sequences have many shapes"):
        _, policy = recall("A2C", 1, compile=True, **LSTM)
    assert policy.native.history()["all"][0]["why"] == "minibatches of sequences have many shapes"


@pytest.fixture
def policy():
    """One whose actions depend on all that it has seen."""
    made = ActorCritic(probe(Recall, {}), Architecture([8], "tanh", lstm=8))
    with torch.no_grad():
        for p in made.parameters():
            p.copy_(torch.randn_like(p) if p.ndim == 2 else torch.zeros_like(p))
    return made


def test_evaluation_forgets_where_episodes_end_whatever_the_number_of_envs(policy):
    def play(num_envs):
        envs = make_vector_env(Recall, {}, num_envs, "sync", autoreset="disabled")
        return [e.return_ for e in play_episodes(policy, envs, policy.spaces, [(i, 100 + i) for i in range(40)])]

    def alone(seed):
        env, state, total, over = Recall(), None, 0.0, False
        obs, _ = env.reset(seed=seed)
        while not over:
            action, state = policy.act(torch.from_numpy(obs)[None], state=state)
            obs, reward, over, _, _ = env.step(int(action))
            total += reward
        return total

    with torch.no_grad():
        expected = [alone(100 + i) for i in range(40)]
    assert 5 < sum(expected) < 35
    assert play(1) == play(3) == play(40) == expected


def test_a_served_policy_remembers_until_it_is_told_that_an_episode_begins(policy, tmp_path):
    data = ExperienceDataModule(Recall, num_envs=2, step_per_epoch=40, episode_per_test=2, num_test_envs=2)
    lit = LitPolicy("A2C", data.spaces, hidden_sizes=[8], activation="tanh", use_lstm=True, lstm_cell_size=8)
    lit.policy.load_state_dict(policy.state_dict())
    trainer = make_trainer(1, limit_train_batches=0)
    trainer.fit(lit, datamodule=data)
    trainer.save_checkpoint(tmp_path / "x.ckpt", weights_only=True)
    served = load_policy(tmp_path / "x.ckpt")
    shown = np.random.default_rng(0).uniform(-1, 1, (60, 3, 2)).astype(np.float32)

    def run(begins):
        served.reset()
        found = []
        for t, obs in enumerate(shown):
            if t in begins:
                served.reset(begins[t])
            found.append(served.act(obs))
        return np.stack(found)

    whole, state = run({}), None
    with torch.no_grad():
        for t, obs in enumerate(shown):
            action, state = policy.act(torch.from_numpy(obs), state=state)
            assert whole[t].tolist() == action.tolist()
    part = run({30: np.array([False, True, False])})
    assert (part[:, [0, 2]] == whole[:, [0, 2]]).all() and (part[:30] == whole[:30]).all()
    assert (part[30:] != whole[30:]).any()
    served.reset()
    assert (np.stack([served.act(obs) for obs in shown[30:]])[:, 1] == part[30:, 1]).all()
    with pytest.raises(UsageError, match="remembers the episodes of 3 observations and got 1: call reset"):
        served.act(shown[0, 0])
    with pytest.raises(UsageError, match=r"reset\(\) of shape \(2,\) does not fit the 3 observations"):
        served.reset(np.array([True, False]))
    served.reset()
    served.act(shown[0, 0])


@pytest.mark.parametrize("algo", ["DQN", "SAC", "TD3", "DDPG", "ES"])
def test_what_learns_from_single_transitions_refuses_a_memory(algo):
    known = {field for config in (find_algorithm(algo).Config,) for field in config.__dataclass_fields__}
    assert not known & {"use_lstm", "max_seq_len", "lstm_cell_size"}
    with pytest.raises(UsageError, match=f"^{algo} has no setting use_lstm; PG, A2C, PPO have it$"):
        LitPolicy(algo, probe(Recall, {}), use_lstm=True)
