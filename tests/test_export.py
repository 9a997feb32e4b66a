"""`lit-rl export`: a graph that acts as the policy does, checked with ONNX Runtime before it is written."""

from __future__ import annotations

import sys

import gymnasium as gym
import numpy as np
import onnxruntime
import pytest
from gymnasium import spaces as gs

from lit_rl.checkpoint import AtomicCheckpointIO
from lit_rl.cli import main
from lit_rl.envs.spaces import Spaces
from lit_rl.export import export_onnx, sample
from lit_rl.functional.tree import tree_leaves
from lit_rl.lit_policy import LitPolicy
from lit_rl.serving import load_policy

VECTOR = gs.Box(-1, 1, (3,), np.float32)
MASKED = gs.Dict({"action_mask": gs.MultiBinary(5), "n": gs.Discrete(4), "v": VECTOR})


def save(folder, algo: str, observation: gym.Space, action: gym.Space, **settings):
    """A checkpoint of a policy that has seen some observations."""
    policy = LitPolicy(algo, Spaces(observation, action), **settings)
    if settings.get("normalize_obs"):
        import torch

        obs = sample(policy.algorithm.spaces, 50)
        policy.policy.observe({name: torch.from_numpy(x) for name, x in obs.items()})
    about = {"hyper_parameters": dict(policy.hparams), "state_dict": policy.state_dict()}
    path = folder / "a.ckpt"
    AtomicCheckpointIO().save_checkpoint(about, path)
    return path


@pytest.mark.parametrize(
    ("algo", "observation", "action", "settings"),
    [
        ("PPO", MASKED, gs.MultiDiscrete([2, 3]), {"normalize_obs": True}),
        pytest.param("DQN", VECTOR, gs.Discrete(3, start=2), {"dueling": True}, marks=pytest.mark.slow),
        pytest.param("DQN", MASKED, gs.Discrete(5), {"num_atoms": 5}, marks=pytest.mark.slow),
        pytest.param("DQN", VECTOR, gs.Discrete(3), {"noisy": True}, marks=pytest.mark.slow),
        pytest.param("PPO", gs.Box(0, 255, (40, 40, 3), np.uint8), gs.Box(-2, 2, (2,)), {}, marks=pytest.mark.slow),
        pytest.param(
            "A2C", gs.Tuple([VECTOR, gs.MultiDiscrete([3, 2])]), gs.MultiBinary(4), {}, marks=pytest.mark.slow
        ),
        pytest.param("SAC", VECTOR, gs.Box(-2, np.float32([3, 1]), (2,)), {}, marks=pytest.mark.slow),
        pytest.param("SAC", VECTOR, gs.Discrete(3), {}, marks=pytest.mark.slow),
        pytest.param("TD3", VECTOR, gs.Box(-2, 2, (1,)), {}, marks=pytest.mark.slow),
        pytest.param("DDPG", VECTOR, gs.Box(-2, 2, (1,)), {}, marks=pytest.mark.slow),
        pytest.param("ES", VECTOR, gs.Discrete(2), {}, marks=pytest.mark.slow),
    ],
)
def test_a_graph_acts_as_the_policy_does_on_any_number_of_observations(
    algo, observation, action, settings, tmp_path, capsys
):
    path = save(tmp_path, algo, observation, action, **settings)
    assert main(["export", str(path), "--format", "onnx"]) == 0
    assert capsys.readouterr().out.strip() == str(tmp_path / "a.onnx")
    loaded = load_policy(path)
    session = onnxruntime.InferenceSession(tmp_path / "a.onnx", providers=["CPUExecutionProvider"])
    obs = sample(loaded.spaces, 7)
    inputs = [i.name for i in session.get_inputs()]
    found = session.run(["action"], dict(zip(inputs, tree_leaves(obs), strict=True)))[0]
    np.testing.assert_allclose(found, loaded.act(obs), atol=1e-5)
    assert found.dtype == loaded.spaces.action.dtype


def test_a_graph_that_differs_is_not_written(tmp_path, monkeypatch, capsys):
    path = save(tmp_path, "TD3", VECTOR, gs.Box(-2, 2, (1,)), hidden_sizes=[4])
    monkeypatch.setattr("lit_rl.policies.bounds.BoxUnits.to_env_tensor", lambda self, action: action.double())
    assert main(["export", str(path)]) == 2
    assert "the graph of TD3 on Box(3,) float32 differs by" in capsys.readouterr().err
    assert not (tmp_path / "a.onnx").exists()


def test_export_names_the_extra_and_the_formats(tmp_path, monkeypatch, capsys):
    path = save(tmp_path, "ES", VECTOR, gs.Discrete(2))
    assert main(["export", str(path), "--format", "tflite"]) == 2
    assert "--format 'tflite' is not allowed: give onnx" in capsys.readouterr().err
    monkeypatch.setitem(sys.modules, "onnxscript", None)
    with pytest.raises(ValueError, match=r"needs the package onnxscript: pip install -e '.\[onnx\]'"):
        export_onnx(path)
