"""Environments side by side: in this process, in workers of their own, or vectorised by themselves; their spaces."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import threading
import time
import warnings
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import gymnasium as gym
import torch
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, VectorEnv
from gymnasium.vector.async_vector_env import AsyncState

from lit_rl.envs.config import VectorEnvKind
from lit_rl.envs.make import EnvName, make_env, name_of
from lit_rl.envs.native import Autoreset, make_native
from lit_rl.envs.spaces import Spaces, check_observation, describe, storage
from lit_rl.envs.sync import SyncEnvs
from lit_rl.envs.wrappers import PLAIN, Wrappers
from lit_rl.errors import EnvError, UsageError

if TYPE_CHECKING:  # they take parameters only from Gymnasium 1.3 on
    _AsyncVectorEnv = AsyncVectorEnv[Any, Any]
else:
    _AsyncVectorEnv = AsyncVectorEnv

_AUTORESET = {"same_step": AutoresetMode.SAME_STEP, "disabled": AutoresetMode.DISABLED}


def make_vector_env(
    env: EnvName,
    env_config: dict[str, Any],
    num_envs: int,
    vector_env: VectorEnvKind,
    *,
    autoreset: Autoreset,
    first_index: int = 0,
    wrappers: Wrappers = PLAIN,
) -> VectorEnv[Any, Any, Any]:
    """``num_envs`` environments that step together; ``metadata["autoreset_mode"]`` of the result says how they reset.

    Every step may write into the same arrays: copy what is to be kept. Infos are those of the steps that end an episode.

    Args:
        env, env_config: as for ``make_env``.
        num_envs: how many, at least 1.
        vector_env: sync (this process), async (a worker process each), native (the env's own) or envpool (EnvPool's
            version of it): these two have their own way of resetting, and know no wrappers.
        autoreset: what happens where an episode ends.
        first_index: the number of the first env, for messages (ranks count on).
        wrappers: what else is put around each; of these, native and envpool know the preprocessing of Atari games alone.

    Raises:
        UsageError: as ``make_env``; or native or envpool where the env has no such version, or with autoreset disabled,
            which of these only Atari games of native know.
        EnvError: the env itself raised, or its worker died.
    """
    if vector_env in ("native", "envpool"):
        return make_native(env, env_config, num_envs, vector_env, autoreset, wrappers.atari)
    mode = _AUTORESET[autoreset]
    isolate = vector_env == "async" and hasattr(os, "fork")
    parent = os.getpid() if isolate else None
    main_thread = threading.current_thread() is threading.main_thread()
    makers = [_Maker(env, env_config, wrappers, first_index + i, parent, main_thread) for i in range(num_envs)]
    try:
        if vector_env == "sync":
            return SyncEnvs(makers, mode)
        return _Workers(makers, first_index, context="fork" if isolate else None, autoreset_mode=mode)
    except RuntimeError as error:
        if isinstance(error, EnvError):
            raise
        raise UsageError(f"{name_of(env)} cannot be vectorised: {error}") from None


def probe(env: EnvName, env_config: dict[str, Any], wrappers: Wrappers = PLAIN) -> Spaces:
    """The spaces of an environment that shows single frames, from making one, resetting and closing it.

    Raises UsageError for a kind of space that is not supported or a reset that contradicts it, and as ``make_env``.
    """
    made = make_env(env, env_config, wrappers)
    try:
        spaces = Spaces(made.observation_space, made.action_space)
        for space in (spaces.observation, spaces.action):
            storage(space)
        if isinstance(spaces.action, gym.spaces.Box) and 0 in spaces.action.shape:
            raise UsageError(f"the action_space {describe(spaces.action)} holds no action; give it at least one number")
        check_observation(spaces.observation, made.reset(seed=0)[0])
    except UsageError as error:
        raise UsageError(f"{name_of(env)}: {error}") from None
    finally:
        made.close()
    return spaces


@dataclass
class _Maker:
    """Makes one environment; in a worker it first cuts the worker loose from the terminal and ties it to the run."""

    env: EnvName
    env_config: dict[str, Any]
    wrappers: Wrappers
    index: int
    parent: int | None
    main_thread: bool

    def __call__(self) -> gym.Env[Any, Any]:
        if self.parent is not None and os.getpid() != self.parent:
            _settle_worker(self.parent, self.main_thread)
        return make_env(self.env, self.env_config, self.wrappers, self.index)


def _settle_worker(parent: int, main_thread: bool) -> None:
    """Ctrl-C and the group's signals are for the run alone, which ends its workers; without the run they end too."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)  # the run's own handler, inherited, would swallow it
    with suppress(PermissionError):  # leads its session already
        os.setsid()
    torch.set_num_threads(1)  # workers share the cores, and the thread pool does not survive a fork
    # The kernel's signal comes when the thread that forked ends, which is the run's end only for its main thread.
    if sys.platform == "linux" and main_thread:
        pr_set_pdeathsig = 1
        ctypes.CDLL(None).prctl(pr_set_pdeathsig, signal.SIGKILL)
    else:
        threading.Thread(target=_watch, args=(parent,), daemon=True).start()
    if os.getppid() != parent:  # it died before the line above
        os._exit(1)


def _watch(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(0.5)
    os._exit(1)


class _Workers(_AsyncVectorEnv):
    """An AsyncVectorEnv where a dead worker is an EnvError, and that leaves no process behind however it is closed."""

    def __init__(self, makers: list[_Maker], first_index: int, **settings: Any) -> None:
        self.first_index = first_index
        self.steps = 0
        try:
            super().__init__(makers, copy=False, **settings)
        except BaseException as error:
            lost = self._lost() if isinstance(error, (EOFError, ConnectionError)) else None
            if hasattr(self, "processes"):
                self.close_extras(terminate=True)
            self.closed = True
            raise lost or error from None

    def reset(self, *, seed: Any = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        try:
            return super().reset(seed=seed, options=options)
        except (EOFError, ConnectionError):
            raise self._lost() from None

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        self.steps += 1
        try:
            return super().step(actions)
        except (EOFError, ConnectionError):
            raise self._lost() from None

    def close_extras(self, timeout: float | None = None, terminate: bool = False) -> None:
        """End all workers: asked first, killed after ``timeout`` seconds (5 if None), or at once with ``terminate``.

        Gymnasium's own waits without end for a step that was interrupted (by Ctrl-C, or by a worker that died).
        """
        if not terminate and self._state is AsyncState.DEFAULT:
            for pipe in self.parent_pipes:
                with suppress(OSError, AttributeError):  # closed, or None where a worker failed
                    pipe.send(("close", None))
            deadline = time.monotonic() + (5.0 if timeout is None else timeout)
            for process in self.processes:
                process.join(max(0.0, deadline - time.monotonic()))
        for process in self.processes:
            if process.is_alive():
                process.kill()
        for process in self.processes:
            process.join()
        for pipe in self.parent_pipes:
            with suppress(OSError, AttributeError):
                pipe.close()
        with suppress(AttributeError):
            self.error_queue.close()

    def _raise_if_errors(self, successes: Iterable[bool]) -> None:
        if not all(successes):
            with warnings.catch_warnings():  # the error that follows holds all that Gymnasium warns of first
                warnings.simplefilter("ignore")
                super()._raise_if_errors(successes)

    def _lost(self) -> EnvError:
        for index, process in enumerate(getattr(self, "processes", [])):
            process.join(0.2)  # the pipe closes a moment before the process has ended
            if process.exitcode is not None:
                code = process.exitcode
                how = f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
                where = f"env {self.first_index + index}, step {self.steps}"
                return EnvError(f"{where}: its worker process ended by itself ({how}); its messages are above")
        return EnvError(f"a worker process of the environments closed its pipe at step {self.steps}")
