"""The LightningModule: it loops over minibatches, counts updates, scores episodes, and leaves the rest to its parts."""

from __future__ import annotations

import math
import traceback
import warnings
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
import torch
from pytorch_lightning.callbacks import Timer
from pytorch_lightning.trainer.states import TrainerFn
from torch import Tensor, nn

from lit_rl import __version__
from lit_rl.algorithms import algorithm_name, check_saved_model, is_own, make_algorithm, saved_algorithm
from lit_rl.algorithms.base import Algorithm, Optimize, Progress, Updated
from lit_rl.callbacks.stop import end_fit
from lit_rl.checkpoint import check_finite, describing, load, misfit, rng_state, set_rng_state
from lit_rl.data.evaluation import AFTER_TRAINING, EpisodeStatistics
from lit_rl.data.experience import Experience
from lit_rl.data.hooks import summarise
from lit_rl.data.offline.scores import HeldOut, HeldOutScores
from lit_rl.data.plans import Plan, PopulationPlan
from lit_rl.data.transitions import Episode, Transitions
from lit_rl.datamodule import ExperienceDataModule
from lit_rl.envs.spaces import Spaces
from lit_rl.errors import OWN, AlgorithmError, NumericsError, UsageError
from lit_rl.functional.schedules import Schedule, check_schedule_range
from lit_rl.functional.tree import tree_map
from lit_rl.loggers.curve import PREFIXES
from lit_rl.networks.target import Follower
from lit_rl.optimize import Compile, GradientStep, NativeGradient, Pace, Refining
from lit_rl.policies.base import Policy

EXTREMES = ((min, math.inf, "min"), (max, -math.inf, "max"))
CRITIC_WARMUP = 200  # updates that a critic learns alone for where it has to start anew


class LitPolicy(pl.LightningModule):
    """A policy under training, for any ``pl.Trainer``.

    Args:
        algo: an algorithm's name, class, or import path (``my_pkg.algos:MyDQN``).
        spaces: the spaces of the environment (``datamodule.spaces``).
        stage: 1 logs ``Eval/*``, 2 logs ``Step2Eval/*``.
        average_weights: decay per update, in (0, 1), of a running average of the policy's weights; evaluation and
            :func:`lit_rl.load_policy` then use the average, while collecting and learning go on with the raw weights.
        critic_warmup: updates at the start that move the critic alone; None for :data:`CRITIC_WARMUP` where
            :meth:`start_from` found none to go on with, else 0.
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
        self.max_updates, self.max_env_steps = max_updates, max_env_steps
        self.updates = 0
        self.first_env_step: int | None = None  # where this stage began on the x-axis
        self.optimize: GradientStep | None = None
        self.native_updates = compile
        self.native: NativeGradient | None = None  # of this fit
        check_schedule_range("anchor", anchor, 0.0)
        if critic_warmup and self.policy.critic is None:
            name = type(self.algorithm).__name__
            raise UsageError(f"--critic_warmup {critic_warmup}: {name} has no critic beside its policy: leave it out")
        if anchor != 0 and isinstance(self.algorithm.plan, PopulationPlan):
            name = type(self.algorithm).__name__
            raise UsageError(
                f"--anchor {anchor}: {name} learns from no observations to hold its policy at: leave it out"
            )
        if anchor != 0 and self.policy.remembers:
            raise UsageError(
                f"--anchor {anchor}: a policy that remembers is no function of one observation: leave it out"
            )
        self.critic_warmup, self.critic_warmup_lr, self.anchor = critic_warmup, critic_warmup_lr, anchor
        self.offline_fraction = offline_fraction
        self.anew: list[str] = []  # parts of the policy that start_from could not go on with
        self._refining: Refining | None = None
        self._first: dict[str, Tensor] | None = None  # of a checkpoint: the weights that the anchor holds to
        self.episodes = EpisodeStatistics()
        self.held_out = HeldOutScores(spaces.action, self.algorithm.config.gamma)
        self.reported: dict[str, float] = {}  # the newest value of every metric
        # from outside, at any time; ranks agree on them at the end of an iteration
        self.stop_wanted = self.quit_wanted = False  # end the fit; end the run, as SIGTERM asks for
        self._newest: list[dict[str, Tensor]] = []  # of each update of this iteration
        self._metrics: dict[str, list[Tensor]] = {}  # of the iterations of this epoch, (updates,) each
        self._finished: list[Episode] = []
        self._window: list[Episode] = []  # the newest training episodes of earlier epochs
        self._rng: dict[str, Any] | None = None  # of a checkpoint, until training begins
        self._paths: dict[str, str] = {}  # of a checkpoint: what computed the gradients
        self._pace = Pace()
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
    def finished(self) -> list[Episode]:
        """The training episodes that ended in this epoch so far."""
        return self._finished

    @property
    def newest_metrics(self) -> dict[str, float]:
        """What the newest update of this epoch has logged."""
        return {name: float(values[-1][-1]) for name, values in self._metrics.items()}

    @property
    def plan(self) -> Plan:
        """The experience that this stage learns from, where it acts."""
        plan: Plan = self.algorithm.plan
        return plan.refining(self.warmup, self.offline_fraction) if self.warmup or self.offline_fraction else plan

    @property
    def warmup(self) -> int:
        """Updates at the start that move the critic alone."""
        return (CRITIC_WARMUP if "critic" in self.anew else 0) if self.critic_warmup is None else self.critic_warmup

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
            config = self.algorithm.config
            self.optimize = GradientStep(
                self.algorithm.groups(),
                *self.algorithm.optimizer(),
                config.gradient_clip_val,
                config.gradient_clip_algorithm,
            )
        self.optimize.attach()
        exact = self._trainer is not None and self._data.exact_resume  # trainer itself raises where there is none
        steady = torch.are_deterministic_algorithms_enabled() or exact
        off = "minibatches of sequences have many shapes" if self.policy.remembers else None
        self.native = NativeGradient(self.native_updates, steady, lambda: self.updates, off)
        self.optimize.gradient = self.native
        if self._refining is None and (self.warmup or self.anchor != 0):
            self._refining = Refining(self.optimize, self.algorithm, self.anchor, self.warmup, self.critic_warmup_lr)
            if self._refining.first is not None and self._first is not None:
                self._refining.first.load_state_dict(self._first)
        return self.optimize.optimizer

    def on_train_start(self) -> None:
        if self.first_env_step is None:
            self.first_env_step = self._data.env_steps
        counted = self.trainer.fit_loop.epoch_loop.manual_optimization.optim_step_progress.total
        counted.ready = counted.completed = self.updates  # where another Trainer has fitted before
        if self._limit_reached():
            end_fit(self.trainer)
        if self._rng is not None:
            set_rng_state(self._rng)
            self._rng = None
        assert self.native is not None
        self.native.go_on(self._paths)
        self._pace = Pace()

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
        for group, lr in algorithm.learning_rates(self.curve_step).items():
            optimize.set_lr(group, lr)
        algorithm.train()
        for minibatch in experience.minibatches():
            progress = Progress(self.updates, self.updates if offline else experience.env_steps)
            step = self._optimize(minibatch, progress)
            try:
                updated = algorithm.update(minibatch, step, progress)
            except NumericsError as error:
                where = f"update {progress.updates + 1}, env step {progress.env_steps}"
                raise NumericsError(f"{error} in {where}") from None
            except Exception as error:
                own = is_own(type(algorithm)) or algorithm.config.custom_model is not None
                if isinstance(error, OWN) or not own:
                    raise
                where = f"update {progress.updates + 1}, env step {progress.env_steps}"
                raise AlgorithmError(_raised(type(algorithm), where, error)) from error
            experience.feedback(updated.td_error, updated.enough)
            self._count(updated)
            if self.max_updates is not None and self.updates >= self.max_updates:
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
        self._newest.append(updated.metrics)
        if self._averaging is not None and self.average_weights is not None:
            self._averaging.move(1 - self.average_weights)

    def _end_iteration(self) -> None:
        assert self.optimize is not None and self.native is not None
        self.native.poll(self._seconds_left())
        self._finished += self._data.take_episodes()
        progress = self.trainer.fit_loop.epoch_loop.manual_optimization.optim_step_progress
        made = self.updates - progress.total.completed
        for counted in (progress.total, progress.current):  # Lightning's global_step counts optimizer steps
            counted.ready += made
            counted.completed += made
        self._join_metrics()
        for name, group in self.optimize.groups.items():
            if not torch.isfinite(group.flat.detach().sum()):
                raise NumericsError(f"the weights of the {name} group are NaN or infinite after update {self.updates}")
        stop, quit_ = self._wanted_by_a_rank()
        if quit_:
            self.trainer._signal_connector.received_sigterm = True
        if self._limit_reached() or stop:
            end_fit(self.trainer)

    def _join_metrics(self) -> None:
        """Put those of the iteration together: thousands of small tensors would keep the heap from closing around them."""
        for name in dict.fromkeys(name for metrics in self._newest for name in metrics):
            values = torch.stack([metrics[name] for metrics in self._newest if name in metrics])
            self._metrics.setdefault(name, []).append(values)
        self._newest = []

    def _seconds_left(self) -> float:
        """Of this fit, at the pace of its updates so far."""
        done = self.trainer.fit_loop.epoch_loop.total_batch_idx + 1
        epochs, batches = self.trainer.max_epochs, self.trainer.num_training_batches
        all_env_steps = None if self.max_env_steps is None else (self.first_env_step or 0) + self.max_env_steps
        limits = [
            (done, None if epochs in (None, -1) else epochs * batches),
            (self.updates, self.max_updates),
            (self.env_steps, all_env_steps),
        ]
        if not self.updates:
            return 0.0
        timed = [c.time_remaining() for c in self.trainer.callbacks if isinstance(c, Timer)]  # type: ignore[attr-defined]
        return min([self._pace.seconds_left(limits), *(seconds for seconds in timed if seconds is not None)])

    def _wanted_by_a_rank(self) -> list[bool]:
        """Whether some rank wants to stop or to quit, which none must do alone: the others would wait for it for ever."""
        if self.trainer.world_size == 1:
            return [self.stop_wanted, self.quit_wanted]
        votes = torch.tensor([self.stop_wanted, self.quit_wanted], dtype=torch.int32, device=self.device)
        return [votes_ > 0 for votes_ in self.trainer.strategy.reduce(votes, reduce_op="sum").tolist()]

    def _limit_reached(self) -> bool:
        made = self.env_steps - (self.first_env_step or 0)
        limits = ((self.updates, self.max_updates), (made, self.max_env_steps))
        return any(limit is not None and count >= limit for count, limit in limits)

    def on_train_epoch_end(self) -> None:
        means = {name: float(torch.cat(values).double().mean()) for name, values in self._metrics.items()}
        ranks = self.trainer.world_size  # each made the same number of updates
        custom = self._custom_metrics([e.custom for e in self._finished if e.custom])
        window = -(-self._data.return_window // ranks)
        counted = [*self._window, *self._finished][-max(window, len(self._finished)) :]
        finished = len(self._finished)
        episodes = [len(counted), sum(e.return_ for e in counted), sum(e.length for e in counted), finished]
        self._window = counted[-window:] if window > 1 else []
        self._metrics, self._finished = {}, []
        sums = self._sum_over_ranks([*means.values(), *episodes])
        returns_ = [e.return_ for e in counted]
        low, high = (self._over_ranks([extreme(returns_, default=none)], name)[0] for extreme, none, name in EXTREMES)
        metrics = {f"Train/{name}": total / ranks for name, total in zip(means, sums, strict=False)}
        for name, value in metrics.items():
            if not math.isfinite(value):
                raise NumericsError(f"{name} is {value} in epoch {self.current_epoch}, after update {self.updates}")
        count, returns, lengths, ended = sums[len(means) :]
        if count:
            metrics |= {"Train/return": returns / count, "Train/length": lengths / count, "Train/episodes": ended}
            metrics |= {"Train/return_min": low, "Train/return_max": high}
        self._report(metrics | custom)

    def _custom_metrics(self, measured: list[dict[str, float]]) -> dict[str, float]:
        """What hooks have measured of the episodes of this epoch, on all ranks."""
        if self._data.hooks is None:
            return {}
        if self.trainer.world_size > 1:
            parts: list[Any] = [None] * self.trainer.world_size
            torch.distributed.all_gather_object(parts, measured)
            measured = [one for part in parts for one in part]
        return {f"Train/{name}": value for name, value in summarise(measured).items()}

    def _sum_over_ranks(self, values: list[float]) -> list[float]:
        """The sum of each number over all ranks, the same on each of them."""
        return self._over_ranks(values, "sum")

    def _over_ranks(self, values: list[float], operation: str) -> list[float]:
        """The sum, min or max of each number over all ranks."""
        if self.trainer.world_size == 1:
            return values
        mine = torch.tensor(values, dtype=torch.float64, device=self.device)
        total: list[float] = self.trainer.strategy.reduce(mine, reduce_op=operation).tolist()
        return total

    def _report(self, metrics: dict[str, float]) -> None:
        """Metrics for callbacks by Lightning's log; while fitting, for loggers over env steps, exactly (not as float32)."""
        fitting = self.trainer.state.fn == TrainerFn.FITTING
        step = self.curve_step + (self.trainer.state.fn == TrainerFn.TESTING)  # after all that a checkpoint has seen
        if not self.trainer.barebones:  # Lightning has no log then
            self._log(metrics if fitting else metrics | {"step": float(step)}, not fitting)
        if self.trainer.sanity_checking:
            return
        self.reported |= metrics
        if fitting and self.trainer.is_global_zero:
            for logger in self.trainer.loggers:
                logger.log_metrics(metrics, step=step)

    def _log(self, metrics: dict[str, float], for_loggers: bool) -> None:
        with warnings.catch_warnings():  # validate and test return only what is logged, where nobody logs it too
            warnings.filterwarnings("ignore", ".*have no logger configured")
            self.log_dict(metrics, logger=for_loggers)

    # ---- evaluation ----

    def validation_step(self, episode: Episode | HeldOut, batch_idx: int, dataloader_idx: int = 0) -> None:
        if isinstance(episode, HeldOut):
            self._score(episode)
        else:
            self.episodes.update(episode)

    def _score(self, episode: HeldOut) -> None:
        """What the policy says of a recorded episode that it does not learn from."""
        policy = self.best_policy.eval()
        batch = Transitions._make(tree_map(lambda x: x.to(self.device), tuple(episode.batch)))
        values = getattr(policy, "q_values", None)
        if values is not None and not torch.isfinite(values(batch.obs)).all():
            raise NumericsError(f"an action value is NaN or infinite on held-out episode {episode.number}")
        loss = self.algorithm.held_out_loss(policy, batch)
        log_prob = None
        if episode.log_prob is not None:
            log_prob = policy.behaviour_log_prob(batch.obs, batch.action, AFTER_TRAINING)
        self.held_out.update(episode, policy.act(batch.obs).action, loss, log_prob)

    def test_step(self, episode: Episode, batch_idx: int) -> None:
        self.episodes.update(episode)

    @torch.no_grad()
    def score_names(self, episode: HeldOut) -> list[str]:
        """The names of what an evaluation says about held-out episodes."""
        self._score(episode)
        names = list(self.held_out.compute())
        self.held_out.reset()
        self.best_policy.train()
        return names

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
            "metrics": {name: torch.cat(values) for name, values in self._metrics.items()},  # empty at an epoch's end
            "finished": [tuple(episode) for episode in self._finished],
            "paths": {} if self.native is None else self.native.state(),
            "window": [tuple(episode) for episode in self._window],
        }
        # Only the first rank writes; what the others have is dropped, and a buffer is large.
        checkpoint["experience"] = data.experience_state() if self.trainer.is_global_zero else None
        checkpoint["rng"] = rng_state()
        first = None if self._refining is None else self._refining.first
        checkpoint["first"] = None if first is None else first.state_dict()

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        fitting = self._trainer is not None and self._trainer.state.fn == TrainerFn.FITTING
        if fitting and "progress" in checkpoint:
            progress = checkpoint["progress"]
            self.updates, self.first_env_step = progress["updates"], progress["first_env_step"]
            self._metrics = {name: [values] for name, values in progress["metrics"].items()}
            self._finished, self._window = (
                [Episode(*episode) for episode in progress[name] if self.trainer.is_global_zero]  # whose they are
                for name in ("finished", "window")
            )
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

    def load_weights(self, state: dict[str, Tensor]) -> None:
        """Take over saved weights: raw ones and their average; where only one side has an average, the one that counts.

        Raises:
            UsageError: a weight is missing, has another shape or no place here, or is NaN or infinite.
        """
        wanted = self.state_dict()
        averages = {_raw_name(name): x for name, x in state.items() if name.startswith("average.")}
        if self.average is None:
            state = {name: averages.get(name, x) for name, x in state.items() if not name.startswith("average.")}
        raw = {
            name: state[_raw_name(name)] for name in wanted if name.startswith("average.") and _raw_name(name) in state
        }
        state = raw | state
        if problem := misfit(state, wanted, "in the checkpoint", "in this network"):
            raise UsageError(f"the checkpoint does not fit: {problem}")
        check_finite(state)
        self.load_state_dict(state)

    def check_start(self, first: LitPolicy) -> None:
        """Whether :meth:`start_from` can go on with the policy of ``first``.

        :attr:`anew` then names the parts beside what acts that start anew: of other shapes, or not learned by ``first``.

        Raises:
            UsageError: what acts differs.
        """
        theirs, own = first.policy, self.policy
        grouped = {id(p) for group in first.algorithm.groups().values() for p in group}
        anew = []
        for part in dict.fromkeys(name.partition(".")[0] for name in own.state_dict() | theirs.state_dict()):
            problem = misfit(_part(theirs, part), _part(own, part), "in the first", "in the second")
            problem = problem or _unlike(theirs, own, part)
            if problem and part not in self.policy.beside:
                raise UsageError(f"the policies of the two stages do not match: {problem}; keep the networks' settings")
            fixed = {n: p for n, p in theirs.named_parameters() if n.partition(".")[0] == part and id(p) not in grouped}
            unlearned = not problem and any(not torch.equal(p, own.get_parameter(n)) for n, p in fixed.items())
            if part in self.policy.beside and _part(own, part) and (problem or unlearned):
                anew.append(part)
        self.anew = anew

    def start_from(self, first: LitPolicy) -> None:
        """Begin with the best policy of another LitPolicy, targets and average included; what acts must match.

        Parts beside it that cannot be carried over start anew: :attr:`anew` names them.

        Raises:
            UsageError: what acts differs.
        """
        self.check_start(first)
        found = first.best_policy.state_dict()
        carried = {name: x for name, x in found.items() if name.partition(".")[0] not in self.anew}
        wanted = self.policy.state_dict()
        self.policy.load_state_dict(wanted | {name: x for name, x in carried.items() if name in wanted})
        if type(first.algorithm) is type(self.algorithm):
            self._go_on_with(first.algorithm)
        self.algorithm.start_from_policy()
        if self.average is not None:
            self.average.load_state_dict(self.policy.state_dict())

    @torch.no_grad()
    def _go_on_with(self, first: Algorithm) -> None:
        """Take over what the same algorithm has learned beside its policy: IQL's state values, say."""
        learned = {n: p for n, p in first.named_parameters() if p.requires_grad and not n.startswith("policy.")}
        for name, mine in self.algorithm.named_parameters():
            if name in learned and mine.shape == learned[name].shape:
                mine.copy_(learned[name])


def _raised(algorithm: type[Algorithm], where: str, error: Exception) -> str:
    """What an algorithm raised: where in one line, and its own part of the traceback."""
    own = error.__traceback__ and error.__traceback__.tb_next
    text = "".join(traceback.format_exception(type(error), error, own)).rstrip()
    return f"{algorithm_name(algorithm)} raised {type(error).__name__} in {where}: {error}\n{text}"


def _raw_name(name: str) -> str:
    return "algorithm.policy." + name.removeprefix("average.")


def _part(policy: Policy, name: str) -> dict[str, Tensor]:
    """The weights of one part of a policy."""
    return {n: x for n, x in policy.state_dict().items() if n.partition(".")[0] == name}


def _unlike(first: Policy, second: Policy, part: str) -> str | None:
    """The first line by which two modules of the same shapes differ: another activation, say."""
    modules = [getattr(policy, part, None) for policy in (first, second)]
    ones, others = (repr(module).splitlines() for module in modules)
    for one, other in zip(ones, others, strict=False):
        if one != other and isinstance(modules[0], nn.Module):
            return f"{part} has {one.strip()} in the first and {other.strip()} in the second"
    return None
