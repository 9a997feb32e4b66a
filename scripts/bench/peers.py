"""The peers' own virtual environments, in the user's cache folder."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

# the environments' releases are those of constraints.txt: everybody steps the same ones
_ENVS = [
    "gymnasium==1.4.0",
    "mujoco==3.17.0",
    "ale-py==0.12.1",
    "imageio",
    "packaging",
    "opencv-python-headless==5.0.0.93",
]
PEERS = {
    "sb3": ("stable-baselines3", ["torch==2.13.0", "stable-baselines3==2.9.0", *_ENVS]),
    "sbx": ("SBX", ["torch==2.13.0", "stable-baselines3==2.9.0", "sbx-rl==0.28.0", "jax[cpu]==0.10.2", *_ENVS]),
}


def cache() -> Path:
    """Where the user's programs keep what they can make again."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "lit_rl"


def python_of(peer: str) -> Path:
    """The Python of a peer's virtual environment, which is made where it is missing (some minutes)."""
    home = cache() / "peers" / peer
    ready, python = home / "ready", home / "bin" / "python"
    _, packages = PEERS[peer]
    wanted = "\n".join(packages)
    if not ready.exists() or ready.read_text() != wanted:
        print(f"making {home} with {', '.join(packages)}", flush=True)
        shutil.rmtree(home, ignore_errors=True)
        subprocess.run([sys.executable, "-m", "venv", str(home)], check=True)
        subprocess.run([str(python), "-m", "pip", "install", "--quiet", *packages], check=True)
        ready.write_text(wanted)
    return python


def versions(peer: str) -> str:
    """The releases of what counts in a peer's virtual environment."""
    code = (
        "from importlib.metadata import version\n"
        f"for name in {['stable-baselines3', *(['sbx-rl', 'jax'] if peer == 'sbx' else ['torch'])]!r}:\n"
        "    print(name, version(name), end=', ')"
    )
    told = subprocess.run([str(python_of(peer)), "-c", code], check=True, capture_output=True, text=True).stdout
    return told.rstrip(", ")
