"""A trained policy as a graph for other runtimes: observations in, greedy actions out, normalisation and masks included."""

from __future__ import annotations

import contextlib
import io
import logging
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from gymnasium import spaces as gs
from torch import Tensor, nn

from lit_rl.checkpoint import write_atomic
from lit_rl.envs.masks import MASK
from lit_rl.envs.spaces import Spaces, describe, storage
from lit_rl.errors import UsageError
from lit_rl.functional.tree import Tree, tree_leaves, tree_map
from lit_rl.policies.bounds import BoxUnits
from lit_rl.serving import LoadedPolicy, load_policy

TOLERANCE = 1e-5
CHECKED = 64  # observations


class GreedyPolicy(nn.Module):
    """A policy as a function of tensors alone: the leaves of B observations → actions as the environment takes them.

    The second output are the action values (B, A) of a policy that has some.
    """

    def __init__(self, loaded: LoadedPolicy) -> None:
        super().__init__()
        self.policy, self.spaces = loaded.policy, loaded.spaces
        self.values = getattr(loaded.policy, "q_values", None)

    def forward(self, *leaves: Tensor) -> tuple[Tensor, ...]:
        rest = iter(leaves)
        obs = tree_map(lambda _: next(rest), storage(self.spaces.observation))
        action = to_env(self.spaces.action, self.policy.act(obs).action)
        return (action,) if self.values is None else (action, self.values(obs))


def to_env(space: gym.Space[Any], action: Tensor) -> Tensor:
    """Actions (B, ...) in a policy's units as the environment takes them: what ``Policy.env_action`` does, in torch."""
    if isinstance(space, gs.Box):
        units = BoxUnits(space)
        return units.to_env_tensor(action)
    start = torch.as_tensor(np.asarray(getattr(space, "start", 0)), dtype=torch.int64)
    shaped = action.reshape(-1, *(space.shape or ()))
    return (shaped + start).to(torch.from_numpy(np.zeros(0, space.dtype)).dtype)


def export_onnx(path: str | Path, out: str | Path | None = None) -> Path:
    """Write the policy of a checkpoint as an ONNX graph, after checking that it acts alike.

    Inputs are named by their place in the observation ("obs" where it is one array), the outputs ``action`` and, of a
    policy with action values, ``q_values``; the first axis of each is a batch of any size.

    Args:
        path: a checkpoint, or a run's folder.
        out: the file; by default beside the checkpoint.

    Raises:
        UsageError: a package is missing, the policy carries a state through an episode, the graph cannot be made or
            differs by more than 1e-5, or the file cannot be written.
    """
    loaded = load_policy(path)
    target = Path(out) if out is not None else _beside(Path(path))
    try:
        import onnx  # noqa: F401
        import onnxruntime
        import onnxscript  # noqa: F401
    except ModuleNotFoundError as error:
        raise UsageError(f"--format onnx needs the package {error.name}: pip install -e '.[onnx]'") from None
    graph = _graph(loaded)
    with _quiet():
        session = onnxruntime.InferenceSession(graph, providers=["CPUExecutionProvider"])
    for count in (1, CHECKED):
        _check(loaded, session, sample(loaded.spaces, count))
    write_atomic(target, graph)
    return target


def _beside(path: Path) -> Path:
    return path / "policy.onnx" if path.is_dir() else path.with_suffix(".onnx")


def _graph(loaded: LoadedPolicy) -> bytes:
    """The policy as an ONNX model."""
    module = GreedyPolicy(loaded).eval()
    obs = tree_map(torch.from_numpy, sample(loaded.spaces, 2))
    leaves = tuple(tree_leaves(obs))
    if loaded.policy.act(obs).state is not None:
        raise UsageError(
            f"a policy of {loaded.algo} carries a state through an episode, which --format onnx does not know"
        )
    batch = torch.export.Dim("batch")
    try:
        with _quiet(), torch.no_grad():
            program = torch.onnx.export(
                module,
                leaves,
                input_names=names(loaded.spaces),
                output_names=["action", "q_values"][: 1 + (module.values is not None)],
                dynamic_shapes=(tuple({0: batch} for _ in leaves),),
                dynamo=True,
                optimize=True,
                verbose=False,
            )
    except Exception as error:  # the exporter fails in many ways
        said = " ".join(str(error).split())[:200]
        raise UsageError(f"the policy of {loaded.algo} cannot be made a graph: {said}") from error
    assert program is not None
    model: bytes = program.model_proto.SerializeToString()
    return model


def names(spaces: Spaces) -> list[str]:
    """The inputs by their place in the observation."""
    found: list[str] = []

    def walk(place: str, tree: Tree) -> None:
        parts = tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(tree, tuple) else None
        if parts is None:
            found.append(f"obs.{place}" if place.isdigit() else place or "obs")
        else:
            for key, part in parts:
                walk(f"{place}.{key}" if place else str(key), part)

    walk("", storage(spaces.observation))
    return found


def sample(spaces: Spaces, count: int) -> Tree:
    """Observations (count, ...) of these spaces, the same at every call; a mask allows something."""
    spaces.observation.seed(0)
    kinds = storage(spaces.observation)
    rows = [
        tree_map(lambda kind, x: np.asarray(x, kind.dtype), kinds, spaces.observation.sample()) for _ in range(count)
    ]
    obs = tree_map(lambda *xs: np.stack(xs), *rows)
    if isinstance(obs, dict) and MASK in obs:
        obs[MASK][:, 0] = 1
        if isinstance(spaces.action, gs.MultiDiscrete):
            obs[MASK][:, np.cumsum([0, *spaces.action.nvec.reshape(-1)[:-1]])] = 1
    return obs


def _check(loaded: LoadedPolicy, session: Any, obs: Tree) -> None:
    """Hold the graph against the policy on these observations."""
    found = session.run(None, dict(zip(names(loaded.spaces), tree_leaves(obs), strict=True)))
    wanted = [loaded.act(obs)]
    if len(found) > 1:
        wanted.append(loaded.q_values(obs))
    for there, here in zip(found, wanted, strict=True):
        if there.shape != here.shape or not np.allclose(there, here, rtol=TOLERANCE, atol=TOLERANCE):
            off = (
                f"by {np.abs(there - here).max():.2g}"
                if there.shape == here.shape
                else f"{there.shape}, not {here.shape}"
            )
            raise UsageError(f"the graph of {loaded.algo} on {describe(loaded.spaces.observation)} differs {off}")


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """The exporter talks a lot."""
    disabled = logging.root.manager.disable
    logging.disable(logging.ERROR)
    try:
        with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(disabled)
