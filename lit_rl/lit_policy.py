"""The LightningModule: it loops over minibatches, counts updates, scores episodes, and leaves the rest to its parts."""

from __future__ import annotations

import warnings
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
import torch
from pytorch_lightning.trainer.states import TrainerFn

from lit_rl import __version__
from lit_rl.algorithms import (
    algorithm_name,
    check_saved_model,
    make_algorithm,
    raise_from_update,
    saved_algorithm,
)
from lit_rl.algorithms.base import Algorithm, Optimize, Progress, Updated
from lit_rl.algorithms.handover import begun_anew, hand_over
from lit_rl.callbacks.limits import Limits
from lit_rl.checkpoint import describing, load, rng_state, set_rng_state
from lit_rl.data.epoch import EpochMetrics
from lit_rl.data.evaluation import EpisodeStatistics
from lit_rl.data.experience import Experience
from lit_rl.data.offline.scores import HeldOut, HeldOutScores
from lit_rl.data.plans import Plan
from lit_rl.data.transitions import Episode
from lit_rl.datamodule import ExperienceDataModule
from lit_rl.envs.spaces import Spaces
from lit_rl.errors import NumericsError, UsageError
from lit_rl.functional.schedules import Schedule
from lit_rl.loggers.curve import PREFIXES
from lit_rl.loggers.report import report
from lit_rl.networks.target import Follower
from lit_rl.optimize import Compile, GradientStep, NativeGradient, Refining, Remedies
from lit_rl.policies.base import Policy
from lit_rl.weights import Weights, taken_over


class LitPolicy(pl.LightningModule):
    """A policy under training, for any ``pl.Trainer``.

    Args:
        algo: an algorithm's name, class, or import path (``my_pkg.algos:MyDQN``).
        spaces: the spaces of the environment (``datamodule.spaces``).
        stage: 1 logs ``Eval/*``, 2 logs ``Step2Eval/*``.
        average_weights: decay per update, in (0, 1), of a running average of the policy's weights; evaluation and
            :func:`lit_rl.load_policy` then use the average, while collecting and learning go on with the raw weights.
        critic_warmup: updates at the start that move the critic alone; None for 200 where :meth:`start_from` found none to
            go on with, else 0.
        critic_warmup_lr: learning rate in that time; None for the algorithm's own.
        anchor: weight of the KL divergence from the policy that the fit began with, a number or ``[[env_step, value], ...]``
            over env steps of the stage.
        offline_fraction: share, in [0, 1), of each minibatch that is drawn from the recorded episodes that the datamodule
            has as ``mixed_in``.
        max_updates: end the fit, with an evaluation, after exactly this many updates.
        max_env_steps: end the fit, with an evaluation, at the end of the iteration that reaches this many env steps.
        compile: whether updates run as native code (docs/speed.md): "auto" where it is built already, with a build beside a
            run that is long enough for it; True waits for the build; False never.
        config: settings of the algorithm by name.

    Raises:
        UsageError: an unknown algorithm or setting, or spaces that the algorithm cannot handle.
    """

    def __init__(
        self,
        algo: str | type[Algorithm] = "DQN",
        spaces: Spaces | dict[str, Any] | None = None,
        *,
        stage: int = 1,
        average_weights: float | None = None,
        critic_warmup: int | None = None,
        critic_warmup_lr: float | None = None,
        anchor: Schedule = 0.0,
        offline_fraction: float = 0.0,
        max_updates: int | None = None,
        max_env_steps: int | None = None,
        compile: Compile = "auto",
        **config: Any,
    ) -> None:
        super().__init__()
        self.automatic_optimization = False
        if stage not in PREFIXES:
            raise UsageError(f"LitPolicy has no stage {stage!r}: 1 logs Eval/*, 2 logs Step2Eval/*")
        if spaces is None:
            raise UsageError("LitPolicy needs the environment's spaces: LitPolicy(algo, datamodule.spaces)")
        if isinstance(spaces, dict):
            spaces = Spaces.from_plain(spaces)
        self.algorithm = make_algorithm(algo, spaces, config)
        self.stage, self.prefix = stage, PREFIXES[stage]
        self.average: Policy | None = None
        self._averaging: Follower[Policy] | None = None
        if average_weights is not None:
            self._averaging = Follower(self.algorithm.policy)
            self.average = self._averaging.follower
        self.average_weights = average_weights
        self.limits = Limits(max_updates, max_env_steps)
        self.updates = 0
        self.first_env_step: int | None = None  # where this stage began on the x-axis
        self.optimize: GradientStep | None = None
        self.native_updates = compile
        self.native: NativeGradient | None = None  # of this fit
        self.remedies = Remedies(critic_warmup, critic_warmup_lr, anchor, offline_fraction)
        self.remedies.check(self.algorithm)
        self.anew: list[str] = []  # parts of the policy that start_from could not go on with
        self._refining: Refining | None = None
        self._first: Weights | None = None  # of a checkpoint: the weights that the anchor holds to
        self.episodes = EpisodeStatistics()
        self.held_out = HeldOutScores(spaces.action, self.algorithm.config.gamma)
        self.reported: dict[str, float] = {}  # the newest value of every metric
        self.epoch_metrics = EpochMetrics()
        self._rng: dict[str, Any] | None = None  # of a checkpoint, until training begins
        self._paths: dict[str, str] = {}  # of a checkpoint: what computed the gradients
        about: dict[str, Any] = {"version": __version__, "algo": algorithm_name(type(self.algorithm))}
        about["config"] = asdict(self.algorithm.config)
        about |= {"spaces": spaces.to_plain(), "stage": stage, "average_weights": average_weights}
        self.save_hyperparameters({"lit_rl": about}, logger=False)

    @property
    def policy(self) -> Policy:
        """The policy that collects and learns."""
        return self.algorithm.policy

    @property
    def best_policy(self) -> Policy:
        """The policy that is evaluated and kept: the running average where there is one."""
        return self.algorithm.policy if self.average is None else self.average

    def set_eps(self, eps: float | None) -> None:
        """Explore with this probability of a random action from now on; None returns to the schedule.

        Raises:
            UsageError: it lies outside [0, 1], or the policy explores in another way.
        """
        acting: Any = self.policy
        if not hasattr(acting, "set_eps"):
            raise UsageError(f"set_eps: a policy of {type(self.algorithm).__name__} has no epsilon")
        acting.set_eps(eps)

    @property
    def plan(self) -> Plan:
        """The experience that this stage learns from, where it acts."""
        return self.remedies.plan(self.algorithm.plan, self.anew)

    @property
    def warmup(self) -> int:
        """Updates at the start that move the critic alone."""
        return self.remedies.warmup(self.anew)

    @property
    def env_steps(self) -> int:
        """Env steps of the run so far, over all envs and ranks."""
        return self._data.env_steps if self._trainer is not None and self._data is not None else 0

    @property
    def offline(self) -> bool:
        """Whether this stage learns from data instead of acting."""
        return self._trainer is not None and self._data is not None and self._data.offline

    @property
    def curve_step(self) -> int:
        """Where the stage stands on the x-axis of its curves and schedules: env steps, or updates where it learns from data."""
        return self.updates if self.offline else self.env_steps

    def setup(self, stage: str) -> None:
        ours = r".*self\.log\('(Train/\w+|Eval/\w+|Step2Eval/\w+|Test/\w+|step)', "
        # What we log is the same on all ranks already; an average of equal numbers could differ in the last digit.
        warnings.filterwarnings("ignore", rf"{ours}.*sync_dist=True")

    @property
    def _data(self) -> ExperienceDataModule:
        data: ExperienceDataModule = self.trainer.datamodule  # type: ignore[attr-defined]
        return data

    # ---- learning ----

    def configure_optimizers(self) -> torch.optim.Optimizer:
        if self.optimize is None:
            self.optimize = GradientStep.of(self.algorithm)
        self.optimize.attach()
        exact = self._trainer is not None and self._data.exact_resume  # trainer itself raises where there is none
        steady = torch.are_deterministic_algorithms_enabled() or exact
        off = "minibatches of sequences have many shapes" if self.policy.remembers else None
        self.native = NativeGradient(self.native_updates, steady, lambda: self.updates, off)
        self.optimize.gradient = self.native
        if self._refining is None:
            self._refining = self.remedies.refining(self.optimize, self.algorithm, self.anew, self._first)
        return self.optimize.optimizer

    def on_train_start(self) -> None:
        if self.first_env_step is None:
            self.first_env_step = self._data.env_steps
        counted = self.trainer.fit_loop.epoch_loop.manual_optimization.optim_step_progress.total
        counted.ready = counted.completed = self.updates  # where another Trainer has fitted before
        self.limits.begin(self.trainer, self.updates, self.env_steps - self.first_env_step)
        if self._rng is not None:
            set_rng_state(self._rng)
            self._rng = None
        assert self.native is not None
        self.native.go_on(self._paths)

    def on_train_epoch_start(self) -> None:
        assert self.native is not None
        self._data.begin_epoch()
        self.native.check_again()

    def teardown(self, stage: str) -> None:
        if self.native is not None:
            self.native.close()

    def training_step(self, experience: Experience, batch_idx: int) -> None:
        algorithm, optimize, offline = self.algorithm, self.optimize, self.offline
        assert optimize is not None
        optimize.set_lrs(algorithm.learning_rates(self.curve_step))
        algorithm.train()
        for minibatch in experience.minibatches():
            progress = Progress(self.updates, self.updates if offline else experience.env_steps)
            step = self._optimize(minibatch, progress)
            try:
                updated = algorithm.update(minibatch, step, progress)
            except Exception as error:
                raise_from_update(algorithm, progress, error)
            experience.feedback(updated.td_error, updated.enough)
            self._count(updated)
            if self.limits.no_more(self.updates):
                break
        self._end_iteration()

    def _optimize(self, minibatch: Any, progress: Progress) -> Optimize:
        """What makes the gradient steps of an update."""
        assert self.optimize is not None
        if self._refining is None:
            return self.optimize
        made = progress.env_steps - (0 if self.offline else self.first_env_step or 0)
        return self._refining.at(minibatch.obs, self.updates, progress.env_steps, made)

    def _count(self, updated: Updated) -> None:
        """One more update."""
        self.__dict__["updates"] += 1  # what a module does when it is given an attribute costs more than all of this
        self.epoch_metrics.update(updated.metrics)
        if self._averaging is not None and self.average_weights is not None:
            self._averaging.move(1 - self.average_weights)

    def _end_iteration(self) -> None:
        assert self.optimize is not None and self.native is not None
        so_far = self.updates, self.env_steps - (self.first_env_step or 0)
        self.native.poll(self.limits.seconds_left(self.trainer, *so_far))
        progress = self.trainer.fit_loop.epoch_loop.manual_optimization.optim_step_progress
        made = self.updates - progress.total.completed
        for counted in (progress.total, progress.current):  # Lightning's global_step counts optimizer steps
            counted.ready += made
            counted.completed += made
        self.epoch_metrics.end_iteration(self._data.take_episodes())
        try:
            self.optimize.check_finite()
        except NumericsError as error:
            raise NumericsError(f"{error} after update {self.updates}") from None
        self.limits.end_iteration(self.trainer, *so_far, self.device)

    def on_train_epoch_end(self) -> None:
        data = self._data
        try:
            metrics = self.epoch_metrics.compute(data.config.return_window, data.hooks is not None, self.device)
        except NumericsError as error:
            raise NumericsError(f"{error} in epoch {self.current_epoch}, after update {self.updates}") from None
        self._report(metrics)

    def _report(self, metrics: dict[str, float]) -> None:
        testing = self.trainer.state.fn == TrainerFn.TESTING
        report(self, metrics, self.curve_step + testing)  # a test stands after all that its checkpoint has seen
        if not self.trainer.sanity_checking:
            self.reported |= metrics

    # ---- evaluation ----

    def validation_step(self, episode: Episode | HeldOut, batch_idx: int, dataloader_idx: int = 0) -> None:
        if isinstance(episode, HeldOut):
            self.held_out.score(episode, self.best_policy, self.algorithm.held_out_loss)
        else:
            self.episodes.update(episode)

    def test_step(self, episode: Episode, batch_idx: int) -> None:
        self.episodes.update(episode)

    def on_validation_epoch_end(self) -> None:
        self._report_episodes(self.prefix)

    def on_test_epoch_end(self) -> None:
        self._report_episodes("Test")

    def _report_episodes(self, prefix: str) -> None:
        statistics: dict[str, float] = {}
        for found in (self.episodes, self.held_out):
            if found.update_called:
                statistics |= {f"{prefix}/{name}": value for name, value in found.compute().items()}
                found.reset()
        self._report(statistics)

    # ---- checkpoints ----

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Counters, experience and randomness, in full checkpoints."""
        if "optimizer_states" not in checkpoint:
            return  # weights only, which Lightning does not tell us otherwise
        data = self._data
        checkpoint["progress"] = {
            "stage": self.stage,
            "updates": self.updates,
            "env_steps": data.env_steps,
            "first_env_step": data.env_steps if self.first_env_step is None else self.first_env_step,
            "paths": self._paths if self.native is None or self._rng is not None else self.native.state(),
            **self.epoch_metrics.state_dict(),
        }
        # Only the first rank writes; what the others have is dropped, and a buffer is large.
        checkpoint["experience"] = data.experience_state() if self.trainer.is_global_zero else None
        checkpoint["rng"] = rng_state() if self._rng is None else self._rng  # as callbacks begin, it is not set yet
        first = None if self._refining is None else self._refining.first
        checkpoint["first"] = None if first is None else first.state_dict()

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        fitting = self._trainer is not None and self._trainer.state.fn == TrainerFn.FITTING
        if fitting and "progress" in checkpoint:
            progress = checkpoint["progress"]
            self.updates, self.first_env_step = progress["updates"], progress["first_env_step"]
            self.epoch_metrics.load_state_dict(progress, self.trainer.is_global_zero)
            self._rng, self._paths, self._first = checkpoint["rng"], progress["paths"], checkpoint["first"]
            self._data.load_experience_state(checkpoint["experience"])

    @classmethod
    def load_from_checkpoint(cls, checkpoint_path: str | Path, **overrides: Any) -> LitPolicy:  # type: ignore[override]
        """A LitPolicy with the algorithm, settings and weights of a checkpoint; counters stand at 0.

        Args:
            checkpoint_path: a checkpoint file, or a run's folder (its ``best.ckpt``).
            overrides: arguments of :class:`LitPolicy` to use instead of the saved ones.

        Raises:
            UsageError: the file is missing, cut, damaged, foreign, or needs more than ``weights_only=True``; or it holds
                a policy of a user's own algorithm or network, whose module must be imported first.
        """
        checkpoint = load(checkpoint_path)
        about = checkpoint["hyper_parameters"]["lit_rl"]
        if "algo" not in overrides:
            overrides["algo"] = saved_algorithm(about.get("algo"), checkpoint_path)
        check_saved_model(about.get("config"), checkpoint_path)
        with describing(checkpoint_path):
            settings = {name: about[name] for name in ("spaces", "average_weights", "stage")}
            policy = cls(**(settings | about["config"] | overrides))
        policy.load_weights(checkpoint["state_dict"])
        return policy

    def load_weights(self, state: Weights) -> None:
        """Take over saved weights: raw ones and their average; where only one side has an average, the one that counts.

        Raises:
            UsageError: a weight is missing, has another shape or no place here, or is NaN or infinite.
        """
        self.load_state_dict(taken_over(state, self.state_dict()))

    def check_start(self, first: LitPolicy) -> None:
        """Whether :meth:`start_from` can go on with the policy of ``first``.

        :attr:`anew` then names the parts beside what acts that start anew: of other shapes, or not learned by ``first``.

        Raises:
            UsageError: what acts differs.
        """
        self.anew = begun_anew(first.algorithm, self.algorithm)

    def start_from(self, first: LitPolicy) -> None:
        """Begin with the best policy of another LitPolicy, targets and average included; what acts must match.

        Parts beside it that cannot be carried over start anew: :attr:`anew` names them.

        Raises:
            UsageError: what acts differs.
        """
        self.check_start(first)
        hand_over(first.algorithm, first.best_policy, self.algorithm, self.anew)
        if self.average is not None:
            self.average.load_state_dict(self.policy.state_dict())
