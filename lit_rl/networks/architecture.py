"""What the networks of an algorithm have in common."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from lit_rl.networks.custom import MakeEncoder
from lit_rl.networks.encoder import Encoder


@dataclass(frozen=True)
class Architecture:
    """Encoder and hidden layers of each network.

    Args:
        hidden_sizes: widths of the hidden layers; without any, heads read what the encoder says.
        activation: after each of them, a name in :data:`lit_rl.networks.mlp.ACTIVATIONS`.
        encoder: makes what encodes an observation, once for each network.
        lstm: cells of an LSTM behind the hidden layers, of policies that can remember; None for none.
    """

    hidden_sizes: Sequence[int]
    activation: str
    encoder: MakeEncoder = Encoder
    lstm: int | None = None
