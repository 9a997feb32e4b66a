from __future__ import annotations

import importlib
import sys

import gymnasium as gym
import numpy as np
import pytest
import torch
from recorded_env import RecordedDict
from tiny_runs import Signs, fit, make_data, make_policy

from lit_rl import LitPolicy, load_policy
from lit_rl.errors import UsageError


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """A trained policy whose actions are 5 and 6, and its file."""
    data = make_data(env_config={"start": 5})
    policy = make_policy(data)
    trainer = fit(policy, data, 2)
    path = tmp_path_factory.mktemp("saved") / "best.ckpt"
    trainer.save_checkpoint(path, weights_only=True)
    return policy, path


OBS = np.random.default_rng(1).uniform(-1, 1, (40, 2)).astype(np.float32)


def test_one_observation_and_a_batch(saved):
    policy, path = saved
    loaded = load_policy(path)
    with torch.no_grad():
        expected = policy.policy.q_values(torch.from_numpy(OBS)).numpy()
    np.testing.assert_allclose(loaded.q_values(OBS), expected, rtol=1e-6)
    assert loaded.act(OBS).tolist() == (expected.argmax(1) + 5).tolist()
    one = loaded.act(OBS[0])
    assert np.shape(one) == () and one == expected[0].argmax() + 5
    assert loaded.q_values(OBS[0]).shape == (2,) and loaded.q_values(OBS[:1]).shape == (1, 2)


def test_what_it_returns_is_what_the_env_takes(saved):
    loaded = load_policy(saved[1])
    env = Signs(start=5)
    obs, _ = env.reset(seed=1)
    over = False
    while not over:
        action = loaded.act(obs)
        assert env.action_space.contains(action)
        obs, _, terminated, truncated, _ = env.step(action)
        over = terminated or truncated
    vector = gym.vector.SyncVectorEnv([lambda: Signs(start=5)] * 3)
    obs, _ = vector.reset(seed=1)
    vector.step(loaded.act(obs))


def test_a_folder_stands_for_its_best(saved):
    assert load_policy(saved[1].parent).act(OBS).tolist() == load_policy(str(saved[1])).act(OBS).tolist()


def test_float64_and_lists_are_taken(saved):
    loaded = load_policy(saved[1])
    assert loaded.act(OBS.astype(np.float64)).tolist() == loaded.act(OBS.tolist()).tolist() == loaded.act(OBS).tolist()


def test_exploring_is_as_at_the_end_of_training(saved):
    loaded = load_policy(saved[1])
    many = np.repeat(OBS, 100, 0)
    differs = (loaded.act(many, explore=True) != loaded.act(many)).mean()
    assert 0.03 < differs < 0.07  # epsilon ends at 0.1, and half of random actions are the best one


def test_an_observation_of_another_shape_is_refused(saved):
    loaded = load_policy(saved[1])
    for wrong in (np.zeros(3), np.zeros((2, 3)), np.zeros((1, 1, 2)), {"obs": np.zeros(2)}, None):
        with pytest.raises(UsageError, match="observation"):
            loaded.act(wrong)


def test_dict_observations(tmp_path):
    data = make_data(RecordedDict, num_envs=1)
    trainer = fit(make_policy(data), data, 1, limit_val_batches=0)
    trainer.save_checkpoint(tmp_path / "x.ckpt")
    loaded = load_policy(tmp_path / "x.ckpt")
    env = RecordedDict()
    obs, _ = env.reset(seed=0)
    assert env.action_space.contains(loaded.act(obs))
    vector = gym.vector.SyncVectorEnv([RecordedDict] * 3)
    obs, _ = vector.reset(seed=0)
    assert loaded.act(obs).shape == (3,) and loaded.q_values(obs).shape == (3, 3)


def test_a_file_that_is_none_is_one_clear_line(tmp_path, saved):
    with pytest.raises(UsageError, match="there is no checkpoint"):
        load_policy(tmp_path / "missing.ckpt")
    checkpoint = torch.load(saved[1], weights_only=True)
    first = next(iter(checkpoint["state_dict"]))
    checkpoint["state_dict"][first] = torch.zeros(1)
    torch.save(checkpoint, tmp_path / "odd.ckpt")
    with pytest.raises(UsageError, match="odd.ckpt does not fit the network it describes"):
        load_policy(tmp_path / "odd.ckpt")
    checkpoint = torch.load(saved[1], weights_only=True)
    name = next(name for name in checkpoint["state_dict"] if name.startswith("algorithm.policy."))
    checkpoint["state_dict"][name].view(-1)[0] = torch.nan
    torch.save(checkpoint, tmp_path / "nan.ckpt")
    with pytest.raises(UsageError, match="nan.ckpt holds NaN or infinity in "):
        load_policy(tmp_path / "nan.ckpt")
    with pytest.raises(UsageError, match=f"the checkpoint holds NaN or infinity in {name}"):
        LitPolicy.load_from_checkpoint(tmp_path / "nan.ckpt")


@pytest.mark.parametrize("load", [load_policy, LitPolicy.load_from_checkpoint])
@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"config": {"no_setting": 1}}, "x.ckpt cannot be loaded: DQN has no setting no_setting"),
        ({"config": {"hidden_sizes": "wide"}}, "x.ckpt holds settings that cannot be used"),
        ({"config": 3}, "x.ckpt holds settings that cannot be used"),
        ({"spaces": [1]}, "x.ckpt (holds settings that cannot be used|cannot be loaded)"),
        ({"algo": None}, "x.ckpt does not say which algorithm it holds"),
    ],
)
def test_settings_that_cannot_be_used_are_one_clear_line(load, settings, message, saved, tmp_path):
    checkpoint = torch.load(saved[1], weights_only=True)
    checkpoint["hyper_parameters"]["lit_rl"] |= settings
    torch.save(checkpoint, tmp_path / "x.ckpt")
    with pytest.raises(UsageError, match=message):
        load(tmp_path / "x.ckpt")


@pytest.mark.parametrize("load", [load_policy, LitPolicy.load_from_checkpoint])
def test_a_file_imports_no_network(load, saved, tmp_path):
    checkpoint = torch.load(saved[1], weights_only=True)
    config = checkpoint["hyper_parameters"]["lit_rl"]["config"]
    for name, message in (
        ("nowhere_yet:Net", "x.ckpt holds a policy with the custom model nowhere_yet:Net: import nowhere_yet first"),
        ("os:system", "x.ckpt holds a policy with the custom model os:system, which is no torch.nn.Module"),
    ):
        config["custom_model"] = name
        torch.save(checkpoint, tmp_path / "x.ckpt")
        with pytest.raises(UsageError, match=message):
            load(tmp_path / "x.ckpt")


@pytest.mark.parametrize("load", [load_policy, LitPolicy.load_from_checkpoint])
def test_a_file_imports_no_module(load, saved, tmp_path, monkeypatch):
    (tmp_path / "trap_of_a_file.py").write_text("from lit_rl.algorithms.dqn import DQN as Own\n")
    monkeypatch.syspath_prepend(tmp_path)
    checkpoint = torch.load(saved[1], weights_only=True)
    checkpoint["hyper_parameters"]["lit_rl"]["algo"] = "trap_of_a_file:Own"
    torch.save(checkpoint, tmp_path / "x.ckpt")
    with pytest.raises(UsageError, match="x.ckpt holds a policy of trap_of_a_file:Own: import trap_of_a_file first"):
        load(tmp_path / "x.ckpt")
    assert "trap_of_a_file" not in sys.modules
    importlib.import_module("trap_of_a_file")
    load(tmp_path / "x.ckpt")
    del sys.modules["trap_of_a_file"]
    checkpoint["hyper_parameters"]["lit_rl"]["algo"] = "os:system"
    torch.save(checkpoint, tmp_path / "x.ckpt")
    with pytest.raises(UsageError, match="os:system, which is no lit_rl.Algorithm"):
        load(tmp_path / "x.ckpt")
