from __future__ import annotations

from pathlib import Path

import gymnasium as gym
import numpy as np
import own_nets
import pytest
import torch
from torch import nn

from lit_rl.algorithms import find_algorithm
from lit_rl.algorithms.base import AlgorithmConfig, Progress
from lit_rl.data.transitions import RolloutBatch
from lit_rl.envs.spaces import Spaces
from lit_rl.errors import UsageError
from lit_rl.networks.custom import CustomEncoder
from lit_rl.optimize import GradientStep

FLAT = gym.spaces.Box(-1, 1, (3,), np.float32)
PARTS = gym.spaces.Dict({"place": gym.spaces.Discrete(5, start=2), "image": gym.spaces.Box(0, 255, (4, 4), np.uint8)})


def encoder(name, space=FLAT, **config):
    settings = AlgorithmConfig(custom_model=f"own_nets:{name}", custom_model_config=config)
    return settings.encoder(space)


def test_its_features_are_what_the_network_says():
    found = encoder("Widened", width=5)
    obs = torch.randn(7, 3)
    assert found.features == 5 and not found.is_identity
    assert torch.equal(found(obs), found.model(obs)) and isinstance(found.model, own_nets.Widened)


def test_it_gets_each_part_as_the_space_declares_it():
    found = encoder("ByParts", PARTS)
    obs = {"place": torch.tensor([2, 6]), "image": torch.full((2, 4, 4), 255, dtype=torch.uint8)}
    features = found(obs)
    assert torch.equal(features[:, :3], found.model.table.weight[[0, 4]])
    flat = encoder("Widened").double()
    assert flat(torch.randn(7, 3)).dtype == torch.float64  # as in --precision 64-true


def test_making_it_moves_neither_the_spaces_randomness_nor_its_own_mode():
    space = gym.spaces.Box(-1, 1, (3,), np.float32, seed=5)
    other = gym.spaces.Box(-1, 1, (3,), np.float32, seed=5)
    assert encoder("Widened", space).training
    np.testing.assert_array_equal(space.sample(), other.sample())


@pytest.mark.parametrize(
    ("name", "config", "message"),
    [
        ("Missing", {}, "cannot be imported: AttributeError: module 'own_nets' has no attribute 'Missing'"),
        ("NoModule", {}, "is no torch.nn.Module: give the class"),
        ("Widened", {"wide": 3}, r"cannot be made as Widened\(observation_space, \*\*custom_model_config\): TypeError"),
        (
            "WrongSize",
            {},
            r"maps 2 observations to the shape \(2, 8\), and its output_size is 9: .* \(B, output_size\)",
        ),
        ("NoSize", {}, "has the output_size None: set self.output_size"),
        ("NoBatch", {}, r"maps 2 observations to the shape \(8,\), and its output_size is 8"),
        ("Whole", {}, "maps observations to torch.int64 numbers; it must return a tensor of floats"),
        ("Pair", {}, "maps observations to a tuple; it must return a tensor of floats"),
        ("Idle", {}, "has the weights spare.weight, on which its output does not depend"),
        ("Raising", {}, r"fails on a batch of two observations: KeyError: 'there' \(own_nets.py, line \d+\)"),
    ],
)
def test_what_is_wrong_with_it_is_one_line(name, config, message):
    with pytest.raises(UsageError, match=f"^--custom_model own_nets:{name} {message}") as caught:
        encoder(name, **config)
    assert "\n" not in str(caught.value)


def test_a_name_that_is_no_path_is_refused():
    for wrong in ("Widened", "own_nets.Widened", own_nets.Widened):
        with pytest.raises(UsageError, match="is no import path: give your own torch.nn.Module as module:Class"):
            _ = AlgorithmConfig(custom_model=wrong).encoder
    with pytest.raises(UsageError, match="--custom_model_config has no model to configure"):
        AlgorithmConfig(custom_model_config={"width": 3})


def test_the_network_of_the_docs_works(tmp_path, monkeypatch):
    text = (Path(__file__).parents[2] / "docs" / "networks.md").read_text("utf-8")
    (tmp_path / "nets_of_the_docs.py").write_text(text.split("```python\n# my_nets.py\n")[1].split("```")[0])
    monkeypatch.syspath_prepend(tmp_path)
    config = find_algorithm("SAC").Config(custom_model="nets_of_the_docs:Waves", custom_model_config={"waves": 64})
    obs = torch.randn(3, 3)
    found = config.encoder(FLAT)(obs)
    assert found.shape == (3, 128)
    torch.testing.assert_close(found[:, :64] ** 2 + found[:, 64:] ** 2, torch.ones(3, 64))


def test_its_weights_begin_as_it_made_them_and_frozen_ones_stay():
    ppo = find_algorithm("PPO")
    config = ppo.Config(custom_model="own_nets:HalfFrozen", hidden_sizes=[4])
    algorithm = ppo(Spaces(FLAT, gym.spaces.Discrete(2)), config)
    own = [m for m in algorithm.modules() if isinstance(m, CustomEncoder)]
    assert len(own) == 2 and all(m.model.net.bias.abs().min() > 0 for m in own)  # orthogonal_ would make them 0
    assert (algorithm.policy.actor.torso.mlp[0].bias == 0).all()
    before = {name: p.clone() for name, p in algorithm.named_parameters()}
    ones = torch.ones(6)
    batch = RolloutBatch(torch.randn(6, 3), ones.long(), -ones, ones, torch.randn(6), ones, torch.tensor(True))
    algorithm.update(batch, GradientStep(algorithm.groups()), Progress(0, 0))
    for name, p in algorithm.named_parameters():
        assert torch.equal(before[name], p) == ("frozen" in name), name
    assert isinstance(own[0].model.frozen, nn.Linear)
