"""The LightningDataModule: environments, collector and buffer for training, fixed episodes for evaluation and test."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Literal

import gymnasium as gym
import pytorch_lightning as pl
import torch
from pytorch_lightning.utilities import rank_zero_warn

from lit_rl.data.collector import Collector
from lit_rl.data.config import DataConfig, EvalConfig
from lit_rl.data.evaluation import STATISTICS, play_episodes
from lit_rl.data.experience import Experience, Source
from lit_rl.data.hooks import Hooks
from lit_rl.data.offline.data_set import DataSet, TrainingData
from lit_rl.data.offline.inputs import Input
from lit_rl.data.offline.recorder import BlockRecorder
from lit_rl.data.offline.scores import HeldOut, held_out_episodes
from lit_rl.data.offline.writers import of_rank, open_writer
from lit_rl.data.plans import OfflinePlan, Plan
from lit_rl.data.transitions import Episode
from lit_rl.envs.atari import Atari
from lit_rl.envs.config import EnvConfig, VectorEnvKind
from lit_rl.envs.frames import Stacking, frame_space, stack_spaces
from lit_rl.envs.make import EnvName, make_env, name_of
from lit_rl.envs.rules import Rules
from lit_rl.envs.seeds import env_seed
from lit_rl.envs.spaces import Spaces, describe, storage
from lit_rl.envs.vector import make_vector_env, probe
from lit_rl.envs.video import check_rendering, filmed
from lit_rl.errors import UsageError
from lit_rl.policies.base import Policy

NO_RULES = Rules()


class ExperienceDataModule(pl.LightningDataModule):
    """Collects experience for the LitPolicy that is being fitted, or reads it, and has the episodes that score it.

    Args:
        env: an environment id, an import path, or a function that makes the environment; None to learn from data alone.
        env_config: keyword arguments of the environment.
        num_envs: training environments on each rank.
        vector_env: how they are stepped: one after the other, in processes, or by a vector version of the env.
        step_per_epoch: env steps of an epoch, over all envs and ranks.
        episode_per_test: episodes of one evaluation.
        num_test_envs: environments that play them.
        test_episodes: episodes of ``trainer.test``.
        seed: of environments, exploration and sampling; ranks and purposes draw from it without overlap.
        exact_resume: begin each epoch with fresh episodes, so that a fit resumed from the end of an epoch goes on to the
            same bits as one that was never stopped.
        atari: the standard preprocessing of Atari games.
        frame_stack: newest frames that a policy sees at once (4 with ``atari``, else 1).
        rules: where episodes end and what is paid, whatever the environment says; evaluations show raw rewards.
        eval_env_config: keyword arguments of the environments of evaluation and test, over ``env_config``.
        eval_env: the environment of evaluation and test, where it is not ``env``; it shows and takes the same.
        return_window: training episodes that ``Train/return`` is the mean of, where an epoch finishes fewer.
        hooks: is told of every episode, step and batch of training.
        input: recorded episodes to learn from instead of acting: minibatches are drawn from them, and epochs and iterations
            count updates. A file, a glob, ``minari:<id>``, ``minari-path:<folder>``, or several by probability.
        validation_fraction: share of these episodes, in [0, 1), that is held out to score by.
        skip_bad_episodes: drop episodes that cannot be learned from instead of refusing all.
        window_mb: MiB of memory for the episodes that minibatches are drawn from.
        mixed_in: recorded episodes that a share of each minibatch is drawn from, while it acts; as ``input``.
        output: record what is collected, as episodes: a new ``.jsonl`` or ``.jsonl.gz`` file, ``minari:<id>`` or
            ``minari-path:<folder>``.

    Raises:
        UsageError: an unknown or unusable environment, a number out of range, or data that cannot be used.
    """

    def __init__(
        self,
        env: str | Callable[..., gym.Env[Any, Any]] | None = "CartPole-v1",
        env_config: dict[str, Any] | None = None,
        num_envs: int = 1,
        vector_env: VectorEnvKind = "sync",
        step_per_epoch: int = 10_000,
        episode_per_test: int = 30,
        num_test_envs: int = 10,
        test_episodes: int = 100,
        seed: int = 0,
        exact_resume: bool = False,
        atari: bool = False,
        frame_stack: int | None = None,
        rules: Rules = NO_RULES,
        eval_env_config: dict[str, Any] | None = None,
        eval_env: EnvName | None = None,
        return_window: int = 1,
        hooks: Hooks | None = None,
        input: Input | None = None,
        validation_fraction: float = 0.1,
        skip_bad_episodes: bool = False,
        window_mb: float = 512.0,
        output: str | None = None,
        mixed_in: Input | None = None,
    ) -> None:
        super().__init__()
        # the border where settings are checked; a function is as welcome as the id that the flag is typed as
        checked = EnvConfig(env, env_config or {}, num_envs, vector_env, atari, frame_stack)  # type: ignore[arg-type]
        DataConfig(
            step_per_epoch,
            input=input if input is None or isinstance(input, str) else dict(input),
            validation_fraction=validation_fraction,
            skip_bad_episodes=skip_bad_episodes,
            window_mb=window_mb,
            output=output,
        )
        EvalConfig(episode_per_test, num_test_envs, test_episodes)
        self.env, self.env_config = env, env_config or {}
        self.eval_env = env if eval_env is None else eval_env
        self.num_envs, self.vector_env, self.step_per_epoch = num_envs, vector_env, step_per_epoch
        self.episode_per_test, self.num_test_envs, self.test_episodes = episode_per_test, num_test_envs, test_episodes
        self.seed, self.exact_resume = seed, exact_resume
        self.atari, self.rules, self.eval_env_config = atari, rules, eval_env_config or {}
        self.return_window, self.hooks = return_window, hooks
        self.input, self.window_mb, self.output, self.mixed_in = input, window_mb, output, mixed_in
        self._reading = validation_fraction, seed, skip_bad_episodes
        self._data_sets: dict[str, DataSet] = {}
        self._collector: Collector | None = None
        self.appends = False  # whether what is recorded may be added to a data set that is there
        self.source: Source | None = None
        self._plan: tuple[Plan, str] | None = None  # of the last fit, as it fitted into an epoch, and its input
        self._test_envs: gym.vector.VectorEnv | None = None
        self.evaluation_noise: torch.Generator | None = None  # evaluations explore with it; None: they act greedily
        self._depth = checked.stacked_frames
        if env is None:
            if input is None:
                raise UsageError(
                    "there is neither an environment nor data to learn from: give --env ID or --input PATH"
                )
            data = self.data_set(input)
            self.spaces: Spaces = stack_spaces(data.spaces, self._depth)
            if data.env_id is not None:  # where the policy can be played, for whoever loads it
                self.save_hyperparameters({"lit_rl": saved_env(data.env_id, {}, False, rules)}, logger=False)
            return
        found = probe(env, self.env_config, self._preprocessing(False))
        self.spaces = stack_spaces(found, self._depth)
        if vector_env in ("native", "envpool"):  # refused here rather than in the middle of a fit
            self._check_native()
        elif callable(env) or ":" in env or "." in env:  # of code that is the user's own: do two envs have the same?
            if (again := probe(env, self.env_config, self._preprocessing(False))) != found:
                both = f"{found.action} and {again.action}, {found.observation} and {again.observation}"
                raise UsageError(f"{name_of(env)} makes envs with different spaces: {both}")
        if self.eval_env_config or eval_env is not None:
            played = eval_env or env
            if probe(played, self.env_config | self.eval_env_config, self._preprocessing(False)) != found:
                if eval_env is None:
                    raise UsageError(
                        f"--eval_env_config makes {name_of(env)} show or take something else than in training"
                    )
                raise UsageError(f"evaluations in {name_of(played)} show or take something else than {name_of(env)}")
        self.save_hyperparameters({"lit_rl": saved_env(env, self.env_config, atari, rules)}, logger=False)
        if input is not None:
            self.data_set(input)

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
            spaces = None
            if self.env is not None:
                spaces = Spaces(frame_space(self.spaces), self.spaces.action)
            self._data_sets[str(given)] = DataSet(given, spaces, *self._reading)
        return self._data_sets[str(given)]

    @property
    def data_sets(self) -> list[DataSet]:
        """The data sets opened so far."""
        return list(self._data_sets.values())

    def _preprocessing(self, training: bool) -> Atari | None:
        return Atari(training) if self.atari else None

    def _rules(self, training: bool) -> Rules:
        return self.rules if training else dataclasses.replace(self.rules, clip_rewards=False)

    def _check_native(self) -> None:
        """Refuse a vector version that does not exist, or that is of another kind than the environment itself."""
        made = self._make_envs(self.num_envs, self.vector_env, True)
        found, wanted = (
            (made.single_observation_space, made.single_action_space),
            (frame_space(self.spaces), self.spaces.action),
        )
        made.close()
        if not all(map(_alike, found, wanted)):
            shown = [" and ".join(map(describe, both)) for both in (found, wanted)]
            assert self.env is not None
            raise UsageError(
                f"vector_env {self.vector_env} of {name_of(self.env)} has {shown[0]}, not {shown[1]}: choose sync or async"
            )

    @property
    def env_steps(self) -> int:
        """Env steps collected so far, over all envs and ranks; they count on through both stages."""
        return 0 if self.source is None else self.source.env_steps

    @property
    def _lit_policy(self) -> Any:
        """The LitPolicy under the trainer, or a wrapped one."""
        assert self.trainer is not None
        return self.trainer.lightning_module

    def setup(self, stage: str) -> None:
        """Make the source that the fitted algorithm's plan asks for; a buffer of the same kind is kept from the last fit.

        Raises:
            UsageError: the spaces differ from the policy's, or no iteration fits an epoch.
        """
        assert self.trainer is not None
        plan = self.check(self._lit_policy, self.trainer.world_size)
        if stage == "fit":
            if self.exact_resume and self.trainer.world_size > 1:
                raise UsageError(f"--exact_resume works on one device, not on {self.trainer.world_size}: leave it out")
            self._iterations = self.step_per_epoch // plan.steps_per_iteration
            made_by = plan, f"{self.input}, {self.mixed_in}"
            if self.source is None or made_by != self._plan:
                self._plan, self.source = made_by, self._make_source(plan)

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
            if getattr(self, name) < ranks and self.env is not None:
                raise UsageError(f"--{name} {getattr(self, name)} leaves some of the {ranks} ranks nothing to play")
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

    def _training_data(self) -> TrainingData | None:
        """This rank's share of the data set."""
        trainer = self.trainer
        assert trainer is not None
        given = self.input if self.input is not None else self.mixed_in
        if given is None:
            return None
        rank, ranks, stacking = trainer.global_rank, trainer.world_size, Stacking.of(self.spaces)
        return self.data_set(given).training(rank, ranks, self.window_mb, stacking)

    def _make_source(self, plan: Plan) -> Source:
        trainer = self.trainer
        assert trainer is not None
        world, rank = trainer.world_size, trainer.global_rank
        if self._collector is None and not isinstance(plan, OfflinePlan):
            self._collector = self._make_collector(rank, world)
        seed = env_seed(self.seed, "train", 1, rank)
        source = plan.make_source(self._collector, seed, world, self._training_data())
        if self.source is not None and not source.adopt(self.source) and self.source.kept:
            rank_zero_warn(f"{self.source.kept} is not carried over: the new settings collect another kind or amount")
        return source

    def _make_collector(self, rank: int, world: int) -> Collector:
        envs = self._make_envs(self.num_envs, self.vector_env, True, rank * self.num_envs)

        def seeds(restart: int) -> list[int]:
            return [env_seed(self.seed, "train", 0, restart, rank * self.num_envs + i) for i in range(self.num_envs)]

        generator = torch.Generator().manual_seed(env_seed(self.seed, "train", 2, rank))
        collector = Collector(envs, self.spaces, seeds, generator, self.num_envs * world, self.hooks)
        if self.output is not None:
            assert self.env is not None
            frames = Spaces(frame_space(self.spaces), self.spaces.action)
            writer = open_writer(of_rank(self.output, rank), frames, env_id=name_of(self.env), append=self.appends)
            collector.recorder = BlockRecorder(writer, self.spaces, self.num_envs)
        return collector

    def _make_envs(self, count: int, how: VectorEnvKind, training: bool, first_index: int = 0) -> gym.vector.VectorEnv:
        env = self.env if training else self.eval_env
        assert env is not None
        return make_vector_env(
            env,
            self.env_config if training else self.env_config | self.eval_env_config,
            count,
            how,
            autoreset="same_step" if training else "disabled",
            first_index=first_index,
            atari=self._preprocessing(training),
            rules=self._rules(training),
        )

    def train_dataloader(self) -> ExperienceLoader:
        assert self.source is not None
        return ExperienceLoader(self._iterations, self._next_experience)

    def _next_experience(self) -> Experience:
        assert self.source is not None
        return self.source.experience(self._lit_policy.policy)

    def val_dataloader(self) -> EpisodeLoader | list[EpisodeLoader]:
        """The episodes that are played, where there is an environment, and those that are held out of the data to learn from."""
        loaders = [] if self.env is None else [self.played_dataloader()]
        trainer = self.trainer
        assert trainer is not None
        if self.scores_data:
            assert self.input is not None
            data, plan = self.data_set(self.input), self._lit_policy.algorithm.plan.offline()
            rank, ranks, stacking = trainer.global_rank, trainer.world_size, Stacking.of(self.spaces)
            count = len(range(rank, data.held_out_episodes, ranks))
            loaders.append(EpisodeLoader(count, lambda: held_out_episodes(data, plan, rank, ranks, stacking)))
        return loaders[0] if len(loaders) == 1 else loaders

    def played_dataloader(self) -> EpisodeLoader:
        """The episodes of an evaluation that are played."""
        return self._episodes("eval", self.episode_per_test)

    @property
    def scores_data(self) -> bool:
        """Whether an evaluation scores the policy on held-out episodes."""
        return self.input is not None and self.data_set(self.input).held_out_episodes > 0

    def first_held_out(self, algorithm: Any) -> HeldOut | None:
        """One held-out episode, as this algorithm sees it; None where none is held out."""
        if self.input is None:
            return None
        data, plan = self.data_set(self.input), algorithm.plan.offline()
        return next(held_out_episodes(data, plan, 0, 1, Stacking.of(self.spaces)), None)

    def episodes_scored(self, metric: str) -> int:
        """The episodes of an evaluation that a metric rests on."""
        if self.input is not None and metric.rpartition("/")[2] not in STATISTICS:
            return self.data_set(self.input).held_out_episodes
        return self.episode_per_test

    def test_dataloader(self) -> EpisodeLoader:
        return self._episodes("test", self.test_episodes)

    def _episodes(self, domain: Literal["eval", "test"], count: int) -> EpisodeLoader:
        """This rank's share of a fixed set of episodes, split by their index."""
        trainer = self.trainer
        assert trainer is not None
        share = range(trainer.global_rank, count, trainer.world_size)
        seeds = [(i, env_seed(self.seed, domain, i)) for i in share]
        return EpisodeLoader(len(seeds), lambda: self._play(self._lit_policy.best_policy, seeds))

    def _play(self, policy: Policy, seeds: list[tuple[int, int]]) -> Iterator[Episode]:
        assert self.env is not None
        if self._test_envs is None:
            count = min(self.num_test_envs, max(self.episode_per_test, self.test_episodes))
            waits = self.vector_env in ("sync", "async") or (self.vector_env == "native" and self.atari)
            self._test_envs = self._make_envs(count, self.vector_env if waits else "sync", False)
        return play_episodes(policy, self._test_envs, self.spaces, seeds, self.evaluation_noise)

    def check_film(self) -> None:
        """Refuse in one line an environment that :meth:`film` could not show.

        Raises:
            UsageError: it cannot be rendered here, or the package that writes films is missing.
        """
        if self.eval_env is None:
            raise UsageError("--videos needs episodes that are played: add --env ID")
        check_rendering(self.eval_env, self.env_config | self.eval_env_config, "rgb_array", "--videos")

    def film(self, policy: Policy, folder: Path, prefix: str, episodes: int) -> None:
        """Play the first episodes of an evaluation again and write ``<prefix>-episode-<n>.mp4`` of each into ``folder``."""
        assert self.eval_env is not None
        config = self.env_config | self.eval_env_config | {"render_mode": "rgb_array"}
        made = make_env(self.eval_env, config, atari=self._preprocessing(False), rules=self._rules(False))
        seeds = [(i, env_seed(self.seed, "eval", i)) for i in range(min(episodes, self.episode_per_test))]
        envs = filmed(made, folder, prefix, len(seeds))
        try:
            for _ in play_episodes(policy, envs, self.spaces, seeds):
                pass
        finally:
            envs.close()

    def reports_success(self, policy: Policy) -> bool:
        """Whether the environment says of an episode if it succeeded, which only playing one shows."""
        (episode,) = self._play(policy, [(0, env_seed(self.seed, "eval", 0))])
        return episode.success is not None

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

    def close(self) -> None:
        """End all environments; a later fit makes new ones."""
        if self._collector is not None:
            self._collector.close()
            self._collector = None
        self.source = self._plan = None
        if self._test_envs is not None:
            self._test_envs.close()
            self._test_envs = None


def _alike(one: gym.Space[Any], other: gym.Space[Any]) -> bool:
    """Whether observations are kept, or actions taken, in the same way; bounds and precision may differ."""
    return (
        isinstance(one, type(other))
        and storage(one) == storage(other)
        and (isinstance(one, gym.spaces.Box) or describe(one) == describe(other))
    )


def saved_env(env: EnvName, env_config: dict[str, Any], atari: bool, rules: Rules) -> dict[str, Any]:
    """The environment as a checkpoint names it: by its id or import path, with a config of plain values; else without."""
    name = env if isinstance(env, str) else f"{getattr(env, '__module__', '')}:{getattr(env, '__qualname__', '')}"
    saved = {"env": name, "atari": atari, "max_episode_steps": rules.max_episode_steps}
    try:
        return saved | {"env_config": json.loads(json.dumps(env_config))}
    except (TypeError, ValueError):
        return saved | {"env_config": None}


class ExperienceLoader:
    """An epoch of iterations, made when they are asked for.

    It has a length, without which Lightning fetches one ahead and every update would be a policy behind.
    """

    def __init__(self, iterations: int, make: Callable[[], Experience]) -> None:
        self._iterations, self._make = iterations, make

    def __len__(self) -> int:
        return self._iterations

    def __iter__(self) -> Iterator[Experience]:
        for _ in range(self._iterations):
            yield self._make()


class EpisodeLoader:
    """A fixed set of episodes, played or read when it is iterated."""

    def __init__(self, episodes: int, play: Callable[[], Iterator[Any]]) -> None:
        self._episodes, self._play = episodes, play

    def __len__(self) -> int:
        return self._episodes

    def __iter__(self) -> Iterator[Any]:
        return self._play()
