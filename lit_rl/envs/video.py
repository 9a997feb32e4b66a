"""Films of episodes."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import sys
import tempfile
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

import gymnasium as gym
import numpy as np
from gymnasium.vector import AutoresetMode
from gymnasium.wrappers import RecordVideo

from lit_rl.envs.make import EnvName, make_env, name_of
from lit_rl.errors import UsageError

if TYPE_CHECKING:
    _RecordVideo = RecordVideo[Any, Any]
else:
    _RecordVideo = RecordVideo


def check_rendering(env: EnvName, env_config: dict[str, Any], mode: str, flag: str) -> None:
    """Refuse in one line what could not be rendered, before anything is made.

    Args:
        env, env_config: as for ``make_env``.
        mode: human (a window) or rgb_array (what films are made of).
        flag: what asked for it.

    Raises:
        UsageError: the environment has no such mode or fails in it, there is no display, or nothing that encodes films.
    """
    if mode == "rgb_array" and importlib.util.find_spec("moviepy") is None:
        raise UsageError(f"{flag} needs the package moviepy: install it with: pip install -e '.[video]'")
    screens = ("DISPLAY", "WAYLAND_DISPLAY", "SDL_VIDEODRIVER")
    if mode == "human" and sys.platform == "linux" and not any(os.environ.get(name) for name in screens):
        raise UsageError(f"{flag} needs a display, and there is none here: use --video_dir DIR")
    plain = make_env(env, env_config)
    modes = plain.metadata.get("render_modes") or []
    plain.close()
    if mode not in modes:
        can = f"it can {', '.join(map(str, modes))}" if modes else "it cannot render at all"
        raise UsageError(f"{flag}: {name_of(env)} has no render mode {mode}; {can}")
    if mode == "human":
        return
    tried = make_env(env, {**env_config, "render_mode": mode})
    try:
        tried.reset(seed=0)
        frame = tried.render()
    except Exception as error:  # drivers fail in many ways
        said = str(error).splitlines()[0]
        raise UsageError(f"{flag}: {name_of(env)} cannot be rendered here: {said}") from None
    finally:
        tried.close()
    if not (isinstance(frame, np.ndarray) and frame.ndim == 3):
        raise UsageError(f"{flag}: {name_of(env)} renders a {type(frame).__name__}, not an image (height, width, 3)")
    _check_encoder(frame, flag)


def _check_encoder(frame: np.ndarray, flag: str) -> None:
    """Refuse to film where a film of this image (height, width, 3) cannot be encoded: without ffmpeg, or without its codec."""
    with tempfile.TemporaryDirectory() as folder:
        try:
            from moviepy.video.io.ImageSequenceClip import ImageSequenceClip  # which looks for ffmpeg itself

            ImageSequenceClip([frame, frame], fps=30).write_videofile(os.path.join(folder, "film.mp4"), logger=None)
        except Exception as error:  # the encoder is a program of its own, which fails in many ways
            raise UsageError(f"{flag}: films cannot be encoded here: {str(error).strip().splitlines()[0]}") from None


class Film(_RecordVideo):
    """RecordVideo that leaves no film behind that is not whole.

    Args:
        env: renders images.
        folder: that the films go to, ``<prefix>-episode-<n>.mp4``.
        prefix: of their names.
        episodes: that are filmed; None films all.
    """

    def __init__(self, env: gym.Env[Any, Any], folder: str | Path, prefix: str, episodes: int | None) -> None:
        try:
            with warnings.catch_warnings():
                warnings.filterwarnings("ignore", ".*Overwriting existing videos")
                super().__init__(
                    env, str(folder), episode_trigger=lambda n: episodes is None or n < episodes, name_prefix=prefix
                )
        except (OSError, ValueError) as error:  # a path may hold what none can
            reason = getattr(error, "strerror", None) or error
            raise UsageError(f"films cannot be written into {folder}: {reason}") from None

    def stop_recording(self) -> None:
        path = Path(self.video_folder) / f"{self._video_name}.mp4"
        try:
            super().stop_recording()  # type: ignore[no-untyped-call]
        except BaseException as error:
            self.recording, self.recorded_frames = False, []
            with contextlib.suppress(OSError):
                path.unlink()
            if not isinstance(error, Exception):
                raise
            raise UsageError(f"cannot write {path}: {str(error).splitlines()[0]}") from None


def filmed(env: gym.Env[Any, Any], folder: str | Path, prefix: str, episodes: int | None) -> gym.vector.VectorEnv:
    """One environment before a camera, as a vector env that does not reset itself; see :class:`Film`."""
    film = Film(env, folder, prefix, episodes)
    return gym.vector.SyncVectorEnv([lambda: film], copy=False, autoreset_mode=AutoresetMode.DISABLED)
