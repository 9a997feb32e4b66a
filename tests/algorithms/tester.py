"""What every algorithm promises, checked on envs that are learned in seconds; a new one is covered by being listed.

An algorithm gets those of the quick settings below that its Config has, on those of the envs whose spaces it takes.
"""

from __future__ import annotations

import copy
import tempfile
from collections.abc import Callable
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytorch_lightning as pl
import torch
from recorded_episodes import record
from tiny_runs import Signs, make_trainer

from lit_rl import load_policy
from lit_rl.algorithms import find_algorithm
from lit_rl.algorithms.base import Algorithm, Loss, Progress
from lit_rl.checkpoint import load
from lit_rl.datamodule import ExperienceDataModule
from lit_rl.envs.make import make_env
from lit_rl.envs.spaces import Spaces
from lit_rl.envs.vector import probe
from lit_rl.errors import UsageError
from lit_rl.lit_policy import LitPolicy
from lit_rl.networks.custom import CustomEncoder
from lit_rl.optimize import GradientStep

QUICK: dict[str, Any] = {
    "hidden_sizes": [32],
    "lr": 5e-3,
    "gamma": 0.5,
    "steps_per_iteration": 64,
    "batch_size": 32,
    # from replay
    "buffer_size": 1000,
    "learning_starts": 32,
    "random_steps": 32,
    "collect_per_step": 4,
    "update_per_step": 0.5,
    "target_update_every": 10,
    "epsilon": [[0, 1.0], [300, 0.1]],
    "cql_alpha": 0.5,
    # from rollouts
    "rollout_length": 8,
    "epochs_per_rollout": 4,
}
"""Settings that make any algorithm learn :class:`Signs` in some hundred env steps, by name."""

ENVS: dict[str, dict[str, Any]] = {"discrete": {"start": 2}, "continuous": {"start": None}}


class SeenOtherwise(gym.ObservationWrapper[Any, Any, Any]):
    """Signs in a dict of kinds of observation, float64 among them."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(Signs(**kwargs))
        parts = (gym.spaces.Discrete(2, start=1), gym.spaces.Box(0, 255, (3,), np.uint8))
        self.observation_space = gym.spaces.Dict(
            {"time": gym.spaces.Box(0, 1, (), np.float64), "sign": gym.spaces.Tuple(parts)}
        )

    def observation(self, observation: np.ndarray) -> dict[str, Any]:
        sign = int(observation[0] > 0)
        return {"time": np.array(float(observation[1])), "sign": (1 + sign, np.full(3, 200 * sign, np.uint8))}


class Recorder:
    """An ``optimize`` that checks each of its steps."""

    def __init__(self, algorithm: Algorithm) -> None:
        self.algorithm = algorithm
        kind, settings = algorithm.optimizer()
        self.step = GradientStep(algorithm.groups(), kind, settings)
        self.stepped: list[str] = []

    def __call__(self, group: str, loss_fn: Callable[..., Loss], *tensors: Any) -> tuple[dict[str, torch.Tensor], Any]:
        before = snapshot(self.algorithm)
        random = torch.get_rng_state()
        values = [float(loss_fn(*tensors).value) for _ in range(2)]
        assert values[0] == values[1], f"the {group} loss is not pure: {values}"
        assert torch.equal(random, torch.get_rng_state()), f"the {group} loss draws random numbers"
        assert not changed(before, self.algorithm), f"the {group} loss changes weights"
        found = self.step(group, loss_fn, *tensors)
        allowed = {id(p) for p in self.algorithm.groups()[group]}
        named = {name for name, p in self.algorithm.named_parameters() if id(p) in allowed}
        assert changed(before, self.algorithm) and changed(before, self.algorithm) <= named
        self.stepped.append(group)
        return found


def snapshot(module: torch.nn.Module) -> dict[str, torch.Tensor]:
    """A copy of all weights and buffers."""
    return {name: x.detach().clone() for name, x in module.state_dict().items()}


def changed(before: dict[str, torch.Tensor], module: torch.nn.Module) -> set[str]:
    """Names of what is not as before."""
    return {name for name, x in module.state_dict().items() if not torch.equal(before[name], x)}


class AlgorithmTester:
    """The promises, for an algorithm by name; each is a method that a test calls."""

    def __init__(self, name: str, accelerator: str = "cpu") -> None:
        self.name, self.accelerator = name, accelerator
        self.algorithm = find_algorithm(name)
        known = {field.name for field in fields(self.algorithm.Config)}
        self.settings = {key: value for key, value in QUICK.items() if key in known}
        self.kinds = [kind for kind in ENVS if self.takes(probe(Signs, ENVS[kind]))]
        assert self.kinds, f"{name} takes none of the envs {list(ENVS)}"

    def takes(self, spaces: Spaces) -> bool:
        """Whether the algorithm can handle these spaces; a refusal is one line that names the space."""
        try:
            self.make(spaces)
        except UsageError as error:
            assert "\n" not in str(error) and str(spaces.action)[:4] in str(error), error
            return False
        return True

    def make(self, spaces: Spaces, seed: int = 0) -> Algorithm:
        torch.manual_seed(seed)
        return self.algorithm(spaces, self.algorithm.Config(**self.settings))  # type: ignore[call-arg]

    def run(
        self,
        kind: str,
        max_epochs: int = 1,
        seed: int = 0,
        env: Any = Signs,
        callbacks: tuple[pl.Callback, ...] = (),
        ckpt_path: Path | None = None,
        exact_resume: bool = False,
        limits: dict[str, Any] | None = None,
        **env_config: Any,
    ) -> LitPolicy:
        """Fit for epochs of 128 env steps, or updates on data; ``seed`` is that of weights, envs and exploration."""
        numbers: dict[str, Any] = {"num_envs": 4, "step_per_epoch": 128, "episode_per_test": 5, "seed": seed}
        if self.algorithm.data_only:
            numbers["input"] = recorded(env, ENVS[kind] | env_config)
        data = ExperienceDataModule(env, ENVS[kind] | env_config, **numbers, exact_resume=exact_resume)
        pl.seed_everything(seed, verbose=False)
        policy = LitPolicy(self.name, data.spaces, **self.settings, **(limits or {}))
        trainer = make_trainer(max_epochs, callbacks, accelerator=self.accelerator)
        trainer.fit(policy, datamodule=data, ckpt_path=ckpt_path)
        assert policy.env_steps <= self.env_steps(max_epochs) and trainer.global_step == policy.updates
        return policy

    def env_steps(self, epochs: int) -> int:
        """Env steps of so many epochs."""
        return 0 if self.algorithm.data_only else 128 * epochs

    def minibatch(self, policy: LitPolicy) -> Any:
        """A minibatch of the iteration after a fit."""
        data: Any = policy.trainer.datamodule  # type: ignore[attr-defined]
        minibatches = data.source.experience(policy.policy).minibatches()
        return next(iter(minibatches))

    # ---- the promises ----

    def acts(self) -> None:
        """Greedy acting is the same each time, exploring follows its noise; both stay in the space, row by row."""
        for kind in self.kinds:
            spaces = probe(Signs, ENVS[kind])
            policy = self.make(spaces).policy.eval()
            obs = torch.rand(50, 2) * 2 - 1
            noise = policy.noise(3, 50, torch.Generator().manual_seed(1), 0, 1)
            assert noise.shape[:2] == (3, 50)
            with torch.no_grad():
                greedy = [policy.act(obs).action for _ in range(2)]
                explored = [policy.act(obs, noise[t]).action for t in (0, 0, 1, 2)]
                alone = torch.cat([policy.act(obs[i : i + 1]).action for i in range(50)])
                random = policy.random(obs, noise[0])
            assert torch.equal(*greedy) and torch.equal(explored[0], explored[1])
            assert any(not torch.equal(explored[0], other) for other in explored[2:])
            torch.testing.assert_close(alone, greedy[0])
            for action in (greedy[0], explored[0], random):
                assert all(spaces.action.contains(a) for a in policy.env_action(action.numpy()))

    def owns_its_parameters(self) -> None:
        """Every parameter that can learn is in one group, and the policy holds actor and critic."""
        for kind in self.kinds:
            algorithm = self.make(probe(Signs, ENVS[kind]))
            grouped = [id(p) for group in algorithm.groups().values() for p in group]
            learns = [id(p) for p in algorithm.parameters() if p.requires_grad]
            assert sorted(grouped) == sorted(learns)
            assert algorithm.learning_rates(0).keys() == algorithm.groups().keys()
            assert isinstance(algorithm.policy.actor, torch.nn.Module)

    def updates_only_what_it_should(self) -> None:
        """A step moves its group alone, losses are pure, minibatches and parameter objects stay as they were."""
        for kind in self.kinds:
            policy = self.run(kind)
            algorithm, batch = policy.algorithm, self.minibatch(policy)
            given = copy.deepcopy(batch)
            optimize = Recorder(algorithm)
            objects = {name: id(p) for name, p in algorithm.named_parameters()}
            frozen = {name for name, p in algorithm.named_parameters() if not p.requires_grad}
            before = snapshot(algorithm)
            names = {id(p): name for name, p in algorithm.named_parameters()}
            for number in range(1, 25):  # target networks move at some updates only
                updated = algorithm.update(batch, optimize, Progress(number, 10_000))
                assert all(not x.requires_grad and x.ndim == 0 for x in updated.metrics.values())
                assert "loss" in "".join(updated.metrics), "a loss is what people look at first"
                if updated.td_error is not None:
                    assert updated.td_error.shape == (len(batch[1]),) and not updated.td_error.requires_grad
            groups = algorithm.groups()
            assert set(optimize.stepped) == set(groups)
            learned = {names[id(p)] for group in groups.values() for p in group}
            buffers = {name for name, _ in algorithm.named_buffers()}
            moved = changed(before, algorithm)
            assert moved <= learned | frozen | buffers and learned <= moved
            assert objects == {name: id(p) for name, p in algorithm.named_parameters()}
            assert_equal(batch, given)

    def learns(self) -> None:
        """It learns to answer; chance would be paid a half."""
        for kind in self.kinds:
            enough = Enough(0.9 * 4)
            policy = self.run(kind, 30, callbacks=(enough,))
            assert enough.best >= enough.score, (
                f"{self.name} reached {enough.best} of 4 in {policy.env_steps} env steps"
            )

    def sees_any_observation(self) -> None:
        """Dicts, tuples, indices, bytes and float64 reach the network."""
        for kind in self.kinds:
            policy = self.run(kind, 2, env=SeenOtherwise)
            assert policy.updates > 0 and np.isfinite(policy.reported["Eval/return"])

    def takes_a_users_own_network(self, folder: Path) -> None:
        """A custom model encodes what actor and critics see, learns with them, and is rebuilt from a checkpoint."""
        self.settings |= {"custom_model": "own_nets:Widened", "custom_model_config": {"width": 24}, "hidden_sizes": []}
        for kind in self.kinds:
            policy = self.run(kind)
            encoders = {name: m for name, m in policy.policy.named_modules() if isinstance(m, CustomEncoder)}
            assert encoders and all(m.features == 24 for m in encoders.values())
            torch.manual_seed(0)
            before = snapshot(LitPolicy(self.name, policy.algorithm.spaces, **self.settings).policy)
            weights = {f"{name}.model.net.weight" for name in encoders}
            assert policy.updates > 0 and weights <= changed(before, policy.policy)
            path = folder / f"{kind}.ckpt"
            policy.trainer.save_checkpoint(path)
            obs = np.random.default_rng(0).uniform(-1, 1, (40, 2)).astype(np.float32)
            with torch.no_grad():
                action = policy.policy.eval().act(torch.from_numpy(obs)).action
            np.testing.assert_array_equal(load_policy(path).act(obs), policy.policy.env_action(action.numpy()))
            second = LitPolicy.load_from_checkpoint(path, stage=2, average_weights=0.9)
            second.start_from(policy)
            make_trainer(1).fit(second, datamodule=policy.trainer.datamodule)  # type: ignore[attr-defined]
            assert second.updates > 0 and "Step2Eval/return" in second.reported

    def makes_as_many_updates_whatever_comes_in(self) -> None:
        """The number of updates follows from the plan, not from how episodes end: ranks would wait for each other."""
        counts = {self.run(self.kinds[0], env=Signs, length=length).updates for length in (1, 3, 200)}
        assert len(counts) == 1

    def repeats_itself(self) -> None:
        """The same seed gives the same weights, another one others."""
        for kind in self.kinds:
            one, two, other = (self.run(kind, 1, seed) for seed in (1, 1, 2))
            assert one.updates > 0
            assert_equal(dict(one.state_dict()), dict(two.state_dict()))
            assert changed(snapshot(one), other)
            assert one.reported == two.reported

    def is_saved_and_loaded(self, folder: Path) -> None:
        """Either kind of checkpoint is free of objects and acts alone."""
        for kind in self.kinds:
            policy = self.run(kind, 2)
            obs = np.random.default_rng(0).uniform(-1, 1, (40, 2)).astype(np.float32)
            with torch.no_grad():
                action = policy.best_policy.eval().cpu().act(torch.from_numpy(obs)).action
            expected = policy.policy.env_action(action.numpy())
            for weights_only in (True, False):
                path = folder / f"{kind}-{weights_only}.ckpt"
                policy.trainer.save_checkpoint(path, weights_only=weights_only)
                assert load(path)["hyper_parameters"]["lit_rl"]["config"] == asdict(policy.algorithm.config)
                loaded = load_policy(path)
                np.testing.assert_allclose(loaded.act(obs), expected, rtol=1e-5, atol=1e-6)
                loaded.reset()
                assert make_env(Signs, ENVS[kind]).action_space.contains(loaded.act(obs[0]))
                again = LitPolicy.load_from_checkpoint(path)
                assert_equal(dict(again.state_dict()), snapshot(policy))

    def resumes(self, folder: Path) -> None:
        """A full checkpoint brings back counters and weights; fresh episodes in each epoch, it goes on to the same bits."""
        for kind in self.kinds:
            policy = self.run(kind, 2, exact_resume=True)
            path = folder / f"{kind}.ckpt"
            policy.trainer.save_checkpoint(path)
            saved = snapshot(policy)
            begin = Begin()
            other = self.run(kind, 3, seed=7, ckpt_path=path, callbacks=(begin,))
            assert begin.counters == (2, policy.updates, self.env_steps(2))
            assert_equal(begin.weights, saved)
            assert other.env_steps == self.env_steps(3) and other.updates > policy.updates
            ends = [self.run(kind, 3, ckpt_path=start, exact_resume=True) for start in (path, None)]
            resumed, whole = (everything(end) for end in ends)
            assert_equal(resumed, whole)

    def starts_a_stage(self) -> None:
        """Another run can begin with its policy, and what is derived from the weights follows."""
        for kind in self.kinds:
            first = self.run(kind, 2)
            spaces = first.algorithm.spaces
            second = LitPolicy(self.name, spaces, stage=2, average_weights=0.9, **self.settings)
            second.start_from(first)
            assert_equal(dict(second.policy.state_dict()), dict(first.policy.state_dict()))
            assert_equal(dict(second.best_policy.state_dict()), dict(first.policy.state_dict()))
            data: Any = first.trainer.datamodule  # type: ignore[attr-defined]
            trainer = make_trainer(1, accelerator=self.accelerator)
            trainer.fit(second, datamodule=data)
            assert second.env_steps == self.env_steps(3) and second.first_env_step == self.env_steps(2)
            assert second.updates > 0

    def ends_at_an_exact_update(self) -> None:
        """``max_updates`` is exact, in the middle of an iteration too."""
        policy = self.run(self.kinds[0], 9, limits={"max_updates": 5})
        assert policy.updates == 5 and "Eval/return" in policy.reported


_RECORDED: dict[str, str] = {}  # data sets by what they were made of, for the whole test run
_FOLDER = tempfile.TemporaryDirectory()


def recorded(env: Any, env_config: dict[str, Any]) -> str:
    """A data set of an env that is played well."""
    key = f"{env.__name__} {env_config}"
    if key not in _RECORDED:
        _RECORDED[key] = record(f"{_FOLDER.name}/{len(_RECORDED)}.jsonl", 60, env, **env_config)
    return _RECORDED[key]


class Enough(pl.Callback):
    """Ends a fit when an evaluation reaches a score."""

    def __init__(self, score: float) -> None:
        self.score, self.best = score, float("-inf")

    def on_validation_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self.best = max(self.best, float(trainer.callback_metrics["Eval/return"]))
        trainer.should_stop = trainer.should_stop or self.best >= self.score


class Begin(pl.Callback):
    """Notes where a fit begins."""

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        assert isinstance(pl_module, LitPolicy)
        self.counters = trainer.current_epoch, pl_module.updates, pl_module.env_steps
        self.weights = snapshot(pl_module)


def everything(policy: LitPolicy) -> dict[str, Any]:
    """All that an update after a fit depends on."""
    data: Any = policy.trainer.datamodule  # type: ignore[attr-defined]
    assert policy.optimize is not None
    state = {"experience": data.experience_state(), "optimizer": policy.optimize.optimizer.state_dict()}
    return state | {"weights": dict(policy.state_dict()), "updates": policy.updates}


def assert_equal(one: Any, two: Any) -> None:
    """Trees of tensors are the same to the last bit."""
    if isinstance(one, torch.Tensor):
        assert torch.equal(one.cpu(), two.cpu())
    elif isinstance(one, dict):
        assert one.keys() == two.keys()
        for key, x in one.items():
            assert_equal(x, two[key])
    elif isinstance(one, tuple | list):
        for x, y in zip(one, two, strict=True):
            assert_equal(x, y)
    else:
        assert one == two


def accelerators() -> list[str]:
    """The CPU, and what else this machine has."""
    found = ["cpu"]
    if torch.cuda.is_available():
        found.append("gpu")
    if torch.backends.mps.is_available():
        found.append("mps")
    return found
