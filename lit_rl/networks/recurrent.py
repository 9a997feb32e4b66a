"""A torso that remembers."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from lit_rl.functional.sequences import Sequences, to_rows, to_steps
from lit_rl.functional.tree import Tree
from lit_rl.networks.torso import Torso


class RecurrentTorso(nn.Module):
    """A torso and an LSTM (Hochreiter & Schmidhuber 1997) on its features: observations → (B, features).

    Its state (B, 2, features) is what the cells put out and what they hold, 0 where an episode begins.
    """

    layers = None  # it is more than its layers one after the other

    def __init__(self, torso: Torso, cells: int) -> None:
        super().__init__()
        self.torso = torso
        self.lstm = nn.LSTM(torso.features, cells)
        self.features = cells

    def initial_state(self, rows: int) -> Tensor:
        """The state (B, 2, features) where an episode begins."""
        return self.lstm.all_weights[0][0].new_zeros(rows, 2, self.features)

    def forward(self, obs: Tree, state: Tensor) -> tuple[Tensor, Tensor]:
        """The features (B, features) of one step, and the state after it."""
        x = self.torso(obs)
        before = state.to(x.dtype)
        # the cell alone: half the time of the layer, whose own kernels pay off from several steps on
        out, cell = torch.lstm_cell(x, (before[:, 0], before[:, 1]), *self.lstm.all_weights[0])
        return out, torch.stack([out, cell], 1).to(state.dtype)

    def unroll(self, obs: Tree, state: Tensor, sequences: Sequences) -> Tensor:
        """The features (B, features) of all steps of some sequences, in one pass.

        Args:
            obs: B rows.
            state: (S, 2, features) before the first step of each sequence.
            sequences: how the rows follow one another.
        """
        steps = to_steps(self.torso(obs), sequences)
        before = state.to(steps.dtype).transpose(0, 1).unsqueeze(1).contiguous()
        features, _ = self.lstm(steps, (before[0], before[1]))
        return to_rows(features, sequences)
