"""The LightningDataModule: environments, collector and buffer for training, fixed episodes for evaluation and test."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytorch_lightning as pl
import torch
from pytorch_lightning.utilities import rank_zero_warn

from lit_rl.data.collector import Collector
from lit_rl.data.config import DataConfig, EvalConfig, divided
from lit_rl.data.evaluation import STATISTICS
from lit_rl.data.experience import Experience, Source
from lit_rl.data.hooks import Hooks
from lit_rl.data.loaders import EpisodeLoader, ExperienceLoader
from lit_rl.data.offline.data_set import DataSet, TrainingData
from lit_rl.data.offline.inputs import Input
from lit_rl.data.offline.recorder import BlockRecorder
from lit_rl.data.offline.scores import HeldOut, held_out_episodes
from lit_rl.data.offline.writers import of_rank, open_writer
from lit_rl.data.plans import OfflinePlan, Plan
from lit_rl.data.played import PlayedEpisodes, Seeds
from lit_rl.data.transitions import Episode
from lit_rl.envs.config import EnvConfig
from lit_rl.envs.environments import Environments, saved_env
from lit_rl.envs.frames import Stacking, stack_spaces
from lit_rl.envs.make import EnvName, name_of
from lit_rl.envs.seeds import env_seed
from lit_rl.envs.spaces import Spaces
from lit_rl.errors import UsageError


class ExperienceDataModule(pl.LightningDataModule):
    """Collects experience for the LitPolicy that is being fitted, or reads it, and has the episodes that score it.

    Args:
        env: an environment id, an import path, or a function that makes the environment; None to learn from data alone.
        env_config: keyword arguments of the environment.
        seed: of environments, exploration and sampling; ranks and purposes draw from it without overlap.
        exact_resume: begin each epoch with fresh episodes, so that a fit resumed from the end of an epoch goes on to the
            same bits as one that was never stopped.
        eval_env: the environment of evaluation and test, where it is not ``env``; it shows and takes the same.
        hooks: is told of every episode, step and batch of training.
        mixed_in: recorded episodes that a share of each minibatch is drawn from, while it acts; as ``input``.
        settings: by name, what :class:`~lit_rl.envs.config.EnvConfig` (``num_envs``, ``vector_env``, ``frame_stack``, ...),
            :class:`~lit_rl.data.config.DataConfig` (``step_per_epoch``, ``input``, ``output``, ...) and
            :class:`~lit_rl.data.config.EvalConfig` (``episode_per_test``, ...) have.

    Attributes:
        input: recorded episodes to learn from instead of acting, as of now: minibatches are drawn from them, and epochs and
            iterations count updates. It, ``mixed_in`` and ``step_per_epoch`` may be set between two fits.

    Raises:
        UsageError: an unknown setting, an unknown or unusable environment, a number out of range, or data that cannot be
            used.
    """

    def __init__(
        self,
        env: EnvName | None = "CartPole-v1",
        env_config: dict[str, Any] | None = None,
        *,
        seed: int = 0,
        exact_resume: bool = False,
        eval_env: EnvName | None = None,
        hooks: Hooks | None = None,
        mixed_in: Input | None = None,
        **settings: Any,
    ) -> None:
        super().__init__()
        settings |= {"env": env, "env_config": env_config or {}}
        environment, self.config, evaluation = divided(settings, type(self), EnvConfig, DataConfig, EvalConfig)
        self.env, self.num_envs, self.seed, self.exact_resume = env, environment.num_envs, seed, exact_resume
        self.evaluation: EvalConfig = evaluation
        self.step_per_epoch: int = self.config.step_per_epoch
        self.hooks, self.input, self.mixed_in = hooks, self.config.input, mixed_in
        self.appends = False  # whether what is recorded may be added to a data set that is there
        self.source: Source | None = None
        self.environments: Environments | None = None
        self.played: PlayedEpisodes | None = None
        self._data_sets: dict[str, DataSet] = {}
        self._collector: Collector | None = None
        self._numpy_threads: Any = None  # while a Trainer runs: the limit that it is under
        self._plan: tuple[Plan, str] | None = None  # of the last fit, as it fitted into an epoch, and its input
        if env is not None:
            self.environments = Environments(environment, eval_env)
            self.played = PlayedEpisodes(self.environments, evaluation, seed)
            self.spaces: Spaces = self.environments.spaces
            self.save_hyperparameters({"lit_rl": self.environments.saved()}, logger=False)
        elif self.input is None:
            raise UsageError("there is neither an environment nor data to learn from: give --env ID or --input PATH")
        if self.input is not None:
            data = self.data_set(self.input)
            if env is None:
                self.spaces = stack_spaces(data.spaces, environment.stacked_frames)
                if data.env_id is not None:  # where the policy can be played, for whoever loads it
                    limit = environment.max_episode_steps
                    self.save_hyperparameters({"lit_rl": saved_env(data.env_id, {}, False, limit)}, logger=False)

    # ---- what there is to learn from ----

    @property
    def offline(self) -> bool:
        """Whether experience is read from data, as of now; set ``input`` to change it."""
        return self.input is not None

    def data_set(self, given: Input) -> DataSet:
        """The data set that an ``--input`` names; opened and checked once.

        Raises:
            UsageError: it cannot be used, or its spaces are not the environment's.
        """
        if str(given) not in self._data_sets:
            config, spaces = self.config, None if self.environments is None else self.environments.frames
            how = config.validation_fraction, self.seed, config.skip_bad_episodes
            self._data_sets[str(given)] = DataSet(given, spaces, *how)
        return self._data_sets[str(given)]

    @property
    def data_sets(self) -> list[DataSet]:
        """The data sets opened so far."""
        return list(self._data_sets.values())

    @property
    def env_steps(self) -> int:
        """Env steps collected so far, over all envs and ranks; they count on through both stages."""
        return 0 if self.source is None else self.source.env_steps

    @property
    def _lit_policy(self) -> Any:
        """The LitPolicy under the trainer, or a wrapped one."""
        assert self.trainer is not None
        return self.trainer.lightning_module

    @property
    def _rank(self) -> tuple[int, int]:
        """This rank, and how many there are."""
        assert self.trainer is not None
        return self.trainer.global_rank, self.trainer.world_size

    def check(self, policy: Any, ranks: int) -> Plan:
        """The plan of a LitPolicy as it fits into an epoch on this many ranks.

        Raises:
            UsageError: other spaces than these, an epoch that no iteration fits, fewer episodes than ranks, or a plan
                that leaves a rank too little.
        """
        algorithm = policy.algorithm
        if algorithm.spaces != self.spaces:
            where = "the data" if self.env is None else name_of(self.env)
            raise UsageError(
                f"the policy was built for other spaces than those of {where}; make it with these: "
                "LitPolicy(algo, datamodule.spaces)"
            )
        for name in ("episode_per_test", "test_episodes"):
            if (episodes := getattr(self.evaluation, name)) < ranks and self.env is not None:
                raise UsageError(f"--{name} {episodes} leaves some of the {ranks} ranks nothing to play")
        if self.input is not None and 0 < (held_out := self.data_set(self.input).held_out_episodes) < ranks:
            raise UsageError(
                f"--validation_fraction leaves {held_out} episodes for {ranks} ranks to score by: give more, or 0 for none"
            )
        plan: Plan = policy.plan.offline() if self.offline else policy.plan
        if not self.offline and isinstance(plan, OfflinePlan):
            raise UsageError(f"{type(algorithm).__name__} learns from recorded episodes alone: give --input PATH")
        if not self.offline and self.env is None:
            raise UsageError("there is no environment to collect in: give --env ID")
        return plan.fit(self.step_per_epoch, self.num_envs * ranks, self.spaces.frame_stack)

    # ---- training ----

    def setup(self, stage: str) -> None:
        """Make the source that the fitted algorithm's plan asks for; a buffer of the same kind is kept from the last fit.

        Raises:
            UsageError: the spaces differ from the policy's, or no iteration fits an epoch.
        """
        from threadpoolctl import threadpool_limits

        _, ranks = self._rank
        plan = self.check(self._lit_policy, ranks)
        if self._numpy_threads is None:
            # what acts in numpy has a few rows at a time: threads that share them wait for each other, spinning
            self._numpy_threads = threadpool_limits(1, user_api="blas")
        if stage == "fit":
            if self.exact_resume and ranks > 1:
                raise UsageError(f"--exact_resume works on one device, not on {ranks}: leave it out")
            self._iterations = self.step_per_epoch // plan.steps_per_iteration
            made_by = plan, f"{self.input}, {self.mixed_in}"
            if self.source is None or made_by != self._plan:
                self._plan, self.source = made_by, self._make_source(plan)

    def _make_source(self, plan: Plan) -> Source:
        rank, ranks = self._rank
        if self._collector is None and not isinstance(plan, OfflinePlan):
            self._collector = self._make_collector(rank, ranks)
        seed = env_seed(self.seed, "train", 1, rank)
        source = plan.make_source(self._collector, seed, ranks, self._training_data(rank, ranks))
        if self.source is not None and not source.adopt(self.source) and self.source.kept:
            rank_zero_warn(f"{self.source.kept} is not carried over: the new settings collect another kind or amount")
        return source

    def _training_data(self, rank: int, ranks: int) -> TrainingData | None:
        """This rank's share of the data set."""
        given = self.input if self.input is not None else self.mixed_in
        if given is None:
            return None
        return self.data_set(given).training(rank, ranks, self.config.window_mb, Stacking.of(self.spaces))

    def _make_collector(self, rank: int, ranks: int) -> Collector:
        assert self.env is not None and self.environments is not None
        first = rank * self.num_envs

        def seeds(restart: int) -> list[int]:
            return [env_seed(self.seed, "train", 0, restart, first + i) for i in range(self.num_envs)]

        envs = self.environments.training(first)
        generator = torch.Generator().manual_seed(env_seed(self.seed, "train", 2, rank))
        collector = Collector(envs, self.spaces, seeds, generator, self.num_envs * ranks, self.hooks)
        if self.config.output is not None:
            target, frames = of_rank(self.config.output, rank), self.environments.frames
            writer = open_writer(target, frames, env_id=name_of(self.env), append=self.appends)
            collector.recorder = BlockRecorder(writer, self.spaces, self.num_envs)
        return collector

    def train_dataloader(self) -> ExperienceLoader:
        assert self.source is not None
        return ExperienceLoader(self._iterations, self._next_experience)

    def _next_experience(self) -> Experience:
        assert self.source is not None
        return self.source.experience(self._lit_policy.policy)

    def transfer_batch_to_device(self, batch: Any, device: torch.device, dataloader_idx: int) -> Any:
        """Experience moves its own minibatches; episodes are plain numbers."""
        return batch

    def begin_epoch(self) -> None:
        """Under ``exact_resume``, truncate the episodes under way."""
        if self.exact_resume and self.source is not None:
            self.source.cut()

    def take_episodes(self) -> list[Episode]:
        """The training episodes finished since the last call."""
        return [] if self._collector is None else self._collector.take_episodes()

    # ---- evaluation ----

    def val_dataloader(self) -> EpisodeLoader | list[EpisodeLoader]:
        """The episodes that are played, where there is an environment, and those that are held out of the data to learn from."""
        rank, ranks = self._rank
        loaders = [] if self.played is None else [self.played_dataloader()]
        if self.scores_data:
            assert self.input is not None
            count = len(range(rank, self.data_set(self.input).held_out_episodes, ranks))
            loaders.append(EpisodeLoader(count, lambda: self._held_out(self._lit_policy.algorithm, rank, ranks)))
        return loaders[0] if len(loaders) == 1 else loaders

    def played_dataloader(self) -> EpisodeLoader:
        """The episodes of an evaluation that are played."""
        assert self.played is not None
        return self._played(self.played.share("eval", *self._rank))

    def test_dataloader(self) -> EpisodeLoader:
        assert self.played is not None
        return self._played(self.played.share("test", *self._rank))

    def _played(self, seeds: Seeds) -> EpisodeLoader:
        assert self.played is not None
        play = self.played.play
        return EpisodeLoader(len(seeds), lambda: play(self._lit_policy.best_policy, seeds))

    @property
    def scores_data(self) -> bool:
        """Whether an evaluation scores the policy on held-out episodes."""
        return self.input is not None and self.data_set(self.input).held_out_episodes > 0

    def _held_out(self, algorithm: Any, rank: int, ranks: int) -> Iterator[HeldOut]:
        """A rank's share of the held-out episodes, as an algorithm sees them."""
        assert self.input is not None
        data, plan = self.data_set(self.input), algorithm.plan.offline()
        return held_out_episodes(data, plan, rank, ranks, Stacking.of(self.spaces))

    def first_held_out(self, algorithm: Any) -> HeldOut | None:
        """One held-out episode, as this algorithm sees it; None where none is held out."""
        return None if self.input is None else next(self._held_out(algorithm, 0, 1), None)

    def episodes_scored(self, metric: str) -> int:
        """The episodes of an evaluation that a metric rests on."""
        if self.input is not None and metric.rpartition("/")[2] not in STATISTICS:
            return self.data_set(self.input).held_out_episodes
        return self.evaluation.episode_per_test

    # ---- going on, and the end ----

    def experience_state(self) -> dict[str, Any] | None:
        """What an exact continuation needs of collector and buffer."""
        return None if self.source is None else self.source.state_dict()

    def load_experience_state(self, state: dict[str, Any] | None) -> None:
        """Go on from a checkpoint, which holds what the first rank had; the others take that with randomness of their own."""
        if state is None or self.source is None:
            return
        self.source.load_state_dict(state)
        rank = 0 if self.trainer is None else self.trainer.global_rank
        if rank > 0:
            generators = [*self.source.generators, *([] if self._collector is None else [self._collector.generator])]
            for i, generator in enumerate(generators):
                generator.manual_seed(env_seed(self.seed, "train", 3, rank, self.source.env_steps, i))

    def teardown(self, stage: str) -> None:
        """Give numpy its threads back."""
        if self._numpy_threads is not None:
            self._numpy_threads.restore_original_limits()
            self._numpy_threads = None

    def close(self) -> None:
        """End all environments; a later fit makes new ones."""
        if self._collector is not None:
            self._collector.close()
            self._collector = None
        self.source = self._plan = None
        if self.played is not None:
            self.played.close()
