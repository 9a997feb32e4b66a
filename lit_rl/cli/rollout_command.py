"""``lit-rl rollout CHECKPOINT``: play episodes with a trained policy, from its checkpoint alone."""

from __future__ import annotations

import contextlib
import itertools
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from lit_rl.cli.command import Command
from lit_rl.cli.settings import EPISODES, RolloutSettings
from lit_rl.errors import UsageError

if TYPE_CHECKING:
    import gymnasium as gym

    from lit_rl.data.record import Recorder
    from lit_rl.data.transitions import Episode, Trajectory
    from lit_rl.envs.wrappers import Wrappers
    from lit_rl.serving import LoadedPolicy


def main(argv: list[str]) -> int:
    """Play, and print the score."""
    settings = Command("rollout", RolloutSettings, ("checkpoint", "CHECKPOINT")).parse(argv)
    if settings is None:
        return 0
    if settings.algo is not None:
        from lit_rl.algorithms import find_algorithm

        find_algorithm(settings.algo)  # imports a user's own, which a checkpoint may not
    if settings.custom_model is not None:
        from lit_rl.algorithms import import_object

        import_object(settings.custom_model, "--custom_model")
    from lit_rl.serving import load_policy

    loaded = load_policy(settings.checkpoint)
    env, env_config = _env_of(settings, loaded)
    _check(settings, loaded, env, env_config)
    played = _play(settings, loaded, env, env_config)
    print(report(f"{loaded.algo} on {env}, {settings.checkpoint}", *played))
    return 0


def _env_of(settings: RolloutSettings, loaded: LoadedPolicy) -> tuple[str, dict[str, Any]]:
    """The environment that was typed, or else the one that the checkpoint names."""
    import gymnasium as gym

    from lit_rl.envs.make import register_package

    saved = loaded.env or {}
    name = saved.get("env") if settings.env is None else settings.env
    if name is None:
        raise UsageError(f"{settings.checkpoint} does not say what it was trained in: give --env ID")
    config = saved.get("env_config") if name == saved.get("env") else {}
    if settings.env is None:
        register_package(name)
        if name not in gym.registry:  # a file must not say what code runs
            raise UsageError(
                f"{settings.checkpoint} was trained in {name}, which is code of your own: give --env {name}"
            )
        if config is None and not settings.env_config:
            raise UsageError(f"{settings.checkpoint} does not say how {name} was made: give --env_config")
    return name, {**(config or {}), **settings.env_config}


def _check(settings: RolloutSettings, loaded: LoadedPolicy, env: str, env_config: dict[str, Any]) -> None:
    """Refuse another algorithm or space by name, and what cannot be shown, before anything is made."""
    from lit_rl.envs.frames import stack_spaces
    from lit_rl.envs.spaces import describe
    from lit_rl.envs.vector import probe
    from lit_rl.envs.video import check_rendering

    if settings.algo is not None and settings.algo.upper() != loaded.algo.upper():
        raise UsageError(f"{settings.checkpoint} holds a policy of {loaded.algo}, not of {settings.algo}")
    found = stack_spaces(probe(env, env_config, _wrappers(loaded, env)), loaded.spaces.frame_stack)
    for kind in ("observation", "action"):
        made_for, there = getattr(loaded.spaces, kind), getattr(found, kind)
        if made_for != there:
            raise UsageError(
                f"{settings.checkpoint} holds a policy for the {kind} space {describe(made_for)}, and {env} has "
                f"{describe(there)}{'' if describe(made_for) != describe(there) else ' with other bounds'}"
            )
    if settings.render:
        check_rendering(env, env_config, "human", "--render")
    if settings.video_dir is not None:
        check_rendering(env, env_config, "rgb_array", "--video_dir")


def _play(
    settings: RolloutSettings, loaded: LoadedPolicy, env: str, env_config: dict[str, Any]
) -> tuple[list[Episode], int, float]:
    """The episodes that were finished, all env steps, and the seconds that they took."""
    import torch
    from threadpoolctl import threadpool_limits

    from lit_rl.data.evaluation import play_episodes
    from lit_rl.envs.seeds import env_seed

    torch.set_num_threads(1)
    threadpool_limits(1, user_api="blas")
    count = None if settings.steps is not None else settings.episodes or EPISODES
    seeds = ((i, env_seed(settings.seed, "test", i)) for i in itertools.count())
    explore = torch.Generator().manual_seed(settings.seed) if settings.explore else None
    with _recording(settings, loaded, env) as recorder:
        envs = _make_envs(settings, loaded, env, env_config, count)
        began = time.perf_counter()
        try:
            found = list(
                play_episodes(
                    loaded.policy,
                    envs,
                    loaded.spaces,
                    itertools.islice(seeds, count),
                    explore,
                    recorder,
                    settings.steps,
                )
            )
        finally:
            envs.close()
        recorder.cut()
    return found, recorder.steps, time.perf_counter() - began


def _wrappers(loaded: LoadedPolicy, env: str) -> Wrappers:
    """What is put around an environment: what was in evaluations."""
    from lit_rl.envs.atari import Atari
    from lit_rl.envs.rules import Rules
    from lit_rl.envs.wrappers import Wrappers

    saved = loaded.env or {}
    limit = saved.get("max_episode_steps") if env == saved.get("env") else None
    return Wrappers(Atari(training=False) if saved.get("atari") else None, Rules(max_episode_steps=limit))


@contextlib.contextmanager
def _recording(settings: RolloutSettings, loaded: LoadedPolicy, env: str) -> Iterator[Recorder]:
    """What sees the episodes; with --out it writes them, with the log-probabilities of actions that were explored."""
    from lit_rl.data.offline.writers import writing
    from lit_rl.data.record import Recorder
    from lit_rl.data.stacks import stacked_episode
    from lit_rl.envs.frames import Stacking, frame_space
    from lit_rl.envs.spaces import Spaces
    from lit_rl.functional.tree import tree_map

    if settings.out is None:
        yield Recorder()
        return
    about = {"algo": loaded.algo, "checkpoint": settings.checkpoint, "explore": settings.explore, "seed": settings.seed}
    stacking, frames = Stacking.of(loaded.spaces), Spaces(frame_space(loaded.spaces), loaded.spaces.action)
    with writing(settings.out, frames, env, about) as writer:

        def keep(trajectory: Trajectory) -> None:
            seen = tree_map(lambda x: x[:-1], stacked_episode(trajectory.obs, stacking))
            log_prob = loaded.log_prob(seen, trajectory.action) if settings.explore else None
            writer.write(trajectory._replace(log_prob=log_prob))

        yield Recorder(keep)


def _make_envs(
    settings: RolloutSettings, loaded: LoadedPolicy, env: str, env_config: dict[str, Any], episodes: int | None
) -> gym.vector.VectorEnv:
    from lit_rl.envs.make import make_env
    from lit_rl.envs.vector import make_vector_env
    from lit_rl.envs.video import filmed

    wrappers = _wrappers(loaded, env)
    if settings.video_dir is None:
        config = {**env_config, "render_mode": "human"} if settings.render else env_config
        return make_vector_env(env, config, settings.num_envs, "sync", autoreset="disabled", wrappers=wrappers)
    made = make_env(env, {**env_config, "render_mode": "rgb_array"}, wrappers)
    return filmed(made, settings.video_dir, "rollout", episodes)


def report(title: str, episodes: list[Episode], steps: int, seconds: float) -> str:
    """What was played, for people."""
    import numpy as np

    from lit_rl.functional.bootstrap import bootstrap_interval

    speed = f"env steps  {steps:,} in {seconds:.1f} s, {steps / max(seconds, 1e-9):,.0f} a second"
    if not episodes:
        return f"{title}\nreturn     - (no episode has ended)\n{speed}"
    returns = np.array([episode.return_ for episode in episodes])
    lengths = np.array([episode.length for episode in episodes])
    success = [episode.success for episode in episodes if episode.success is not None]
    low, high = bootstrap_interval(returns)
    ended = "1 episode" if len(episodes) == 1 else f"{len(episodes)} episodes"
    lines = [
        title,
        f"return     {returns.mean():.2f} ± {returns.std():.2f}  (95%: {low:.2f} to {high:.2f}; {ended})",
        f"length     {lengths.mean():.1f}",
        f"success    {np.mean(success):.1%}" if len(success) == len(episodes) else "success    - (not reported)",
        speed,
    ]
    return "\n".join(lines)
