import numpy as np
import pytest
import torch
from gymnasium import spaces

from lit_rl.networks.normalize import ObservationNorm, RunningNorm


def test_moments_are_those_of_all_rows_seen():
    norm = RunningNorm((1,))
    norm.update(torch.tensor([[1.0], [3.0]]))
    norm.update(torch.tensor([[8.0]]))
    # rows 1, 3, 8: mean 4; variance (9 + 1 + 16) / 3
    assert norm.count.item() == 3
    assert norm.mean.item() == pytest.approx(4.0)
    assert norm.var.item() == pytest.approx(26 / 3)
    # (8 - 4) / sqrt(26 / 3)
    assert norm(torch.tensor([[8.0]])).item() == pytest.approx(4 / (26 / 3) ** 0.5)


def test_merging_two_ranks_is_seeing_the_rows_of_both():
    rows = torch.randn(7, 2, 3, generator=torch.Generator().manual_seed(0)) * 5 + 100
    one, other, both = RunningNorm((2, 3)), RunningNorm((2, 3)), RunningNorm((2, 3))
    one.update(rows[:3])
    other.update(rows[3:])
    one.merge(other.mean, other.var, other.count)
    both.update(rows)
    for name, statistic in both.state_dict().items():
        torch.testing.assert_close(one.state_dict()[name], statistic)


def test_a_large_offset_does_not_drown_the_variance():
    norm = RunningNorm(())
    for _ in range(100):
        norm.update(torch.tensor([9999.0, 10001.0]))
    assert norm.var.item() == pytest.approx(1.0, rel=1e-3)


def test_before_any_row_only_the_cut_changes_x():
    assert RunningNorm((2,), clip=5.0)(torch.tensor([[0.5, -100.0]])).tolist() == [[0.5, -5.0]]
    norm = RunningNorm((2,))
    norm.update(torch.zeros(0, 2))
    assert norm.mean.tolist() == [0.0, 0.0]


def test_a_constant_dimension_becomes_0():
    norm = RunningNorm((1,))
    norm.update(torch.full((4, 1), 7.0))
    assert norm(torch.full((1, 1), 7.0)).item() == 0.0


def test_statistics_travel_with_the_weights_and_change_in_place():
    norm, loaded = RunningNorm((1,)), RunningNorm((1,))
    storage = norm.mean.data_ptr()
    norm.update(torch.tensor([[1.0], [3.0]]))
    assert norm.mean.data_ptr() == storage
    loaded.load_state_dict(norm.state_dict())
    assert torch.equal(loaded(torch.ones(1, 1)), norm(torch.ones(1, 1)))


def test_low_precision_does_not_stop_the_count():
    norm = RunningNorm((1,)).bfloat16()
    for _ in range(600):
        norm.update(torch.ones(1, 1, dtype=torch.bfloat16))
    assert norm.count.item() == 600
    assert norm(torch.ones(1, 1, dtype=torch.bfloat16)).dtype == torch.bfloat16


def test_float_boxes_of_a_tree_are_normalised_and_the_rest_passes():
    space = spaces.Dict(
        {
            "image": spaces.Box(0, 255, (4,), np.uint8),
            "parts": spaces.Tuple((spaces.Discrete(3), spaces.Box(-1, 1, (2,), np.float64))),
            "number": spaces.Box(-1, 1, (), np.float32),
        }
    )
    norm = ObservationNorm(space)
    obs = {
        "image": torch.randint(0, 255, (50, 4), dtype=torch.uint8),
        "parts": (torch.randint(0, 3, (50,)), torch.randn(50, 2) * 4 + 1),
        "number": torch.randn(50) - 7,
    }
    norm.update(obs)
    seen = norm(obs)
    assert seen["image"] is obs["image"] and seen["parts"][0] is obs["parts"][0]
    for x in (seen["parts"][1], seen["number"]):
        torch.testing.assert_close(x.mean(0), torch.zeros(x.shape[1:]), rtol=0, atol=1e-5)
        torch.testing.assert_close(x.std(0, correction=0), torch.ones(x.shape[1:]), rtol=0, atol=1e-4)
    assert norm.host() is None
    assert len(norm.state_dict()) == 6
