"""The interface of all algorithms: what they own, what they ask for, how they learn."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, NamedTuple, Protocol

from torch import Tensor, nn

from lit_rl.data.config import at_least
from lit_rl.data.plans import Plan
from lit_rl.envs.spaces import Spaces
from lit_rl.errors import UsageError
from lit_rl.functional.schedules import Schedule, check_schedule_range, value_at
from lit_rl.networks.architecture import Architecture
from lit_rl.networks.custom import CustomEncoder, MakeEncoder
from lit_rl.networks.encoder import Encoder
from lit_rl.policies.base import Policy

# Keys of a setting's metadata (``field(default=1_000, metadata={IN_STAGE_2: 0})``): its value in stage 2 unless --step2
# gives one, and its default in a stage 2 that goes on with a policy of another algorithm.
IN_STAGE_2, ANEW = "in stage 2", "after another algorithm"


class Progress(NamedTuple):
    """How far the run is when an update begins."""

    updates: int  # gradient steps made in this stage
    env_steps: int  # on the x-axis


class Loss(NamedTuple):
    """What a loss function returns: the scalar to descend, scalars to log, and tensors that the update needs."""

    value: Tensor
    metrics: dict[str, Tensor]
    aux: Any = None


class Updated(NamedTuple):
    """What an update returns: scalars to log, TD errors (B,) for prioritized replay, and whether a rollout is used up."""

    metrics: dict[str, Tensor]
    td_error: Tensor | None = None
    enough: bool = False  # the rest of this rollout is left out; the same on all ranks


class Optimize(Protocol):
    """One gradient step on the parameters of ``group``, and on no others."""

    def __call__(self, group: str, loss_fn: Callable[..., Loss], *tensors: Any) -> tuple[dict[str, Tensor], Any]:
        """Descend ``loss_fn(*tensors)``; its metrics and aux, detached."""


@dataclass
class AlgorithmConfig:
    """Settings that every algorithm has."""

    gamma: float = 0.99
    """Discount factor per env step, in [0, 1]."""
    lr: Schedule = 5e-4
    """Learning rate: a number, or [[env_step, value], ...] with straight lines between."""
    adam_eps: float = 1e-8
    """Adam's epsilon."""
    gradient_clip_val: float | None = 40.0
    """Largest norm (or value) of a gradient; null for none."""
    gradient_clip_algorithm: Literal["norm", "value"] = "norm"
    """What gradient_clip_val limits."""
    steps_per_iteration: int = 200
    """Env steps of one iteration (what Lightning calls a batch), over all envs and ranks."""
    hidden_sizes: list[int] = field(default_factory=lambda: [64, 64])
    """Widths of the hidden layers of every network."""
    activation: str = "tanh"
    """Activation of the hidden layers: relu, tanh, elu, gelu or silu."""
    custom_model: str | None = None
    """Your own torch.nn.Module as module:Class; it encodes observations before the hidden layers."""
    custom_model_config: dict[str, Any] = field(default_factory=dict)
    """Keyword arguments of custom_model, '{"width": 64}'."""

    def __post_init__(self) -> None:
        if not 0 <= self.gamma <= 1:
            raise UsageError(f"--gamma {self.gamma} is out of range: it must lie between 0 and 1")
        self.check_schedules(lr=(0.0, float("inf")))
        at_least("adam_eps", self.adam_eps, 0)
        at_least("steps_per_iteration", self.steps_per_iteration, 1)
        if self.gradient_clip_val is not None and not self.gradient_clip_val > 0:
            raise UsageError(
                f"--gradient_clip_val {self.gradient_clip_val} is out of range: it must be above 0, or null"
            )
        if any(size < 1 for size in self.hidden_sizes):
            raise UsageError(f"--hidden_sizes {self.hidden_sizes} must be positive widths, as in [64, 64]")
        if self.custom_model_config and self.custom_model is None:
            raise UsageError("--custom_model_config has no model to configure: add --custom_model module:Class")

    @property
    def architecture(self) -> Architecture:
        """What its networks have in common."""
        return Architecture(self.hidden_sizes, self.activation, self.encoder)

    @property
    def encoder(self) -> MakeEncoder:
        """What makes the encoder of observations: ours, or the user's own.

        Raises:
            UsageError: the user's own cannot be imported, or is no module.
        """
        from lit_rl.algorithms import import_object

        if self.custom_model is None:
            return Encoder
        name = f"--custom_model {self.custom_model}"
        if not isinstance(self.custom_model, str) or ":" not in self.custom_model:
            raise UsageError(f"{name} is no import path: give your own torch.nn.Module as module:Class")
        found = import_object(self.custom_model, "--custom_model")
        if not (isinstance(found, type) and issubclass(found, nn.Module)):
            raise UsageError(f"{name} is no torch.nn.Module: give the class of your network as module:Class")
        return lambda space: CustomEncoder(space, found, self.custom_model_config, name)

    def check_schedules(self, **ranges: tuple[float, float]) -> None:
        """Refuse malformed schedules and values outside their range, by name."""
        for name, (low, high) in ranges.items():
            check_schedule_range(name, getattr(self, name), low, high)


def learn_only(policy: Policy, *parts: nn.Module) -> None:
    """Freeze all of a policy but these parts of it; what its maker has frozen in them stays so."""
    learn = {id(p) for part in parts for p in part.parameters()}
    for p in policy.parameters():
        if id(p) not in learn:
            p.requires_grad_(False)


def learning(*modules: nn.Module) -> list[nn.Parameter]:
    """The parameters of these modules that are not frozen, each once."""
    return [p for p in nn.ModuleList(modules).parameters() if p.requires_grad]


class Algorithm(nn.Module):
    """Owns a policy, what learning it needs (targets, critics), and the maths of its update.

    It knows no Lightning and no environment. Weights change in place and are never replaced.

    A subclass is made as ``cls(spaces, config)``, ``config`` being an instance of its ``Config``; its ``__init__`` builds
    the policy and hands all three to this one.

    Raises:
        UsageError: spaces that it cannot handle.
    """

    Config: ClassVar[type[AlgorithmConfig]] = AlgorithmConfig
    data_only: ClassVar[bool] = False  # learns from recorded episodes alone, and never acts

    def __init__(self, spaces: Spaces, config: AlgorithmConfig, policy: Policy) -> None:
        super().__init__()
        self.spaces = spaces
        self.config: Any = config
        self.policy = policy

    @property
    def plan(self) -> Plan:
        """The experience this algorithm learns from."""
        raise NotImplementedError

    def groups(self) -> dict[str, list[nn.Parameter]]:
        """Parameters by the name of the group that a gradient step moves."""
        raise NotImplementedError

    def update(self, batch: Any, optimize: Optimize, progress: Progress) -> Updated:
        """One update on one minibatch."""
        raise NotImplementedError

    def start_from_policy(self) -> None:
        """Called when the policy's weights came from elsewhere: bring what is derived from them in line."""

    def held_out_loss(self, policy: Policy, batch: Any) -> Tensor | None:
        """What this algorithm makes small, (B,), on recorded transitions that ``policy`` did not learn from; None: nothing.

        Args:
            policy: of this algorithm's kind: its own, or its running average.
            batch: :class:`~lit_rl.data.transitions.Transitions` by the plan, without noise.
        """
        return None

    def learning_rates(self, env_steps: int) -> dict[str, float]:
        """The learning rate of each group at this point of the x-axis."""
        lr = value_at(self.config.lr, env_steps)
        return dict.fromkeys(self.groups(), lr)

    def optimizer(self) -> tuple[str, dict[str, Any]]:
        """The kind of optimizer that moves the groups, and its settings (the learning rate comes with every step)."""
        return "adam", {"eps": self.config.adam_eps}
