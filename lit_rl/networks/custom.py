"""A user's own network in the encoder's place."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from typing import Any

import gymnasium as gym
import torch
from torch import Tensor, nn

from lit_rl.envs.spaces import cast_observation
from lit_rl.errors import UsageError, in_one_line
from lit_rl.functional.tree import Tree, tree_map
from lit_rl.networks.encoder import Encoder


class CustomEncoder(nn.Module):
    """Observations of ``space`` → (B, features), by a module of the user's own, whose weights begin as it made them.

    Args:
        space: of the observations, which come as :func:`lit_rl.envs.spaces.storage` keeps them, in batches.
        kind: its class, made as ``kind(space, **config)``; it has the whole number ``output_size``.
        config: keyword arguments.
        name: what messages call it.

    Raises:
        UsageError: it cannot be made, or maps a batch of observations to something else than (B, output_size) floats.
    """

    is_identity = False
    like: Tensor

    def __init__(self, space: gym.Space[Any], kind: type[nn.Module], config: Mapping[str, Any], name: str) -> None:
        super().__init__()
        try:
            model = kind(space, **config)
        except Exception as error:
            raise UsageError(
                f"{name} cannot be made as {kind.__name__}(observation_space, **custom_model_config): {in_one_line(error)}"
            ) from error
        size = getattr(model, "output_size", None)
        if not isinstance(size, int) or size < 1:
            raise UsageError(f"{name} has the output_size {size!r}: set self.output_size to the number of its features")
        self.features = size
        self.register_buffer("like", torch.zeros(()), persistent=False)  # follows .to(dtype)
        self.model = model
        self._try(space, name)

    def _try(self, space: gym.Space[Any], name: str) -> None:
        """Refuse a module that does not map two observations to two rows of features by all of its weights."""
        sample = copy.deepcopy(space)  # sampling must not move the env's own randomness
        sample.seed(0)
        shown = [cast_observation(space, sample.sample())[0] for _ in range(2)]
        obs = tree_map(lambda *x: torch.cat([torch.from_numpy(part) for part in x]), *shown)
        training = self.model.training
        self.model.eval()
        try:
            with torch.enable_grad():
                found = self(obs)
        except Exception as error:
            raise UsageError(f"{name} fails on a batch of two observations: {in_one_line(error)}") from error
        if not isinstance(found, Tensor) or not found.is_floating_point():
            raise UsageError(f"{name} maps observations to {_kind(found)}; it must return a tensor of floats")
        if found.shape != (2, self.features):
            raise UsageError(
                f"{name} maps 2 observations to the shape {tuple(found.shape)}, and its output_size is "
                f"{self.features}: it must return (B, output_size)"
            )
        learned = {key: p for key, p in self.model.named_parameters() if p.requires_grad}
        gradients = (
            torch.autograd.grad(found.sum(), list(learned.values()), allow_unused=True)
            if learned and found.requires_grad
            else [None] * len(learned)
        )
        if unused := [key for key, gradient in zip(learned, gradients, strict=True) if gradient is None]:
            raise UsageError(
                f"{name} has the weights {unused[0]}, on which its output does not depend: remove them, or let them "
                "require no gradient"
            )
        self.model.train(training)

    def forward(self, obs: Tree) -> Tensor:
        dtype = self.like.dtype
        features: Tensor = self.model(tree_map(lambda x: x.to(dtype) if x.is_floating_point() else x, obs))
        return features


AnyEncoder = Encoder | CustomEncoder
MakeEncoder = Callable[[gym.Space[Any]], AnyEncoder]


def _kind(found: object) -> str:
    return f"{found.dtype} numbers" if isinstance(found, Tensor) else f"a {type(found).__name__}"
