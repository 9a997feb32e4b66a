"""What is put around an environment."""

from __future__ import annotations

from dataclasses import dataclass

from lit_rl.envs.atari import Atari
from lit_rl.envs.rules import Rules


@dataclass(frozen=True)
class Wrappers:
    """The preprocessing of an Atari game, and where episodes end and what is paid, whatever the environment says."""

    atari: Atari | None = None
    rules: Rules = Rules()


PLAIN = Wrappers()
