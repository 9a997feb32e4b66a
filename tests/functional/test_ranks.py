from __future__ import annotations

import torch

from lit_rl.functional.ranks import centered_ranks


def test_ranks_by_hand():
    found = centered_ranks(torch.tensor([[9.0, -3.0], [1e6, 0.5], [0.0, 7.0]]))
    torch.testing.assert_close(found, torch.tensor([[0.3, -0.5], [0.5, -0.1], [-0.3, 0.1]]))


def test_equals_share_their_ranks_and_the_scale_does_not_count():
    assert centered_ranks(torch.full((4, 2), 3.0)).tolist() == [[0.0, 0.0]] * 4
    x = torch.tensor([1.0, 1.0, 0.0, 5.0, 5.0])
    assert centered_ranks(x).tolist() == [-0.125, -0.125, -0.5, 0.375, 0.375]
    assert torch.equal(centered_ranks(x), centered_ranks(1000 * x - 7))
    assert centered_ranks(torch.zeros(1)).tolist() == [-0.5]
