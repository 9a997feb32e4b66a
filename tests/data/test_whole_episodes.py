"""Learning from whole episodes alone."""

from __future__ import annotations

import numpy as np
import pytest
from tiny_runs import fit, make_data

from lit_rl.data.transitions import Steps
from lit_rl.data.whole_episodes import WholeEpisodes
from lit_rl.errors import UsageError
from lit_rl.lit_policy import LitPolicy


def block(first: int, ends: list[list[int]]) -> Steps:
    """Three vector steps of two envs, numbered on from ``first``; ``ends`` are the (t, n) where an episode ends."""
    number = np.arange(first, first + 4, dtype=np.float32)
    truncated = np.zeros((3, 2), bool)
    for t, n in ends:
        truncated[t, n] = True
    index = np.array(ends, np.int64).reshape(-1, 2)
    return Steps(
        obs=np.stack([number, 100 + number], 1)[..., None],
        action=np.zeros((3, 2), np.int64),
        reward=np.stack([number[:3], 100 + number[:3]], 1),
        terminated=np.zeros((3, 2), bool),
        truncated=truncated,
        valid=np.ones((3, 2), bool),
        final_index=index,
        final_obs=np.full((len(index), 1), -1.0 - first, np.float32),
    )


def rewards(steps: Steps) -> list[list[float]]:
    """The rewards that each env teaches by."""
    return [steps.reward[steps.valid[:, n], n].tolist() for n in range(2)]


def test_what_a_rollout_cuts_off_waits_for_the_next_one():
    whole = WholeEpisodes()
    first = whole.release(block(0, [[1, 0]]))
    assert rewards(first) == [[0, 1], []]
    second_block = block(3, [[0, 1], [2, 0]])
    second = whole.release(second_block)
    assert rewards(second) == [[2, 3, 4, 5], [100, 101, 102, 103]]
    t, n = second.final_index.T
    assert second.truncated[t, n].all() and second.final_obs[:, 0].tolist() == [-1.0, -4.0, -4.0]
    np.testing.assert_array_equal(second.obs[:, 1, 0], 100 + np.arange(7))
    second_block.reward[:] = 0  # the block's memory is used again
    third = whole.release(block(6, [[0, 0], [2, 1]]))
    assert rewards(third) == [[6], [104, 105, 106, 107, 108]]


def test_a_cut_forgets_what_was_held_back():
    whole = WholeEpisodes()
    whole.release(block(0, [[1, 0]]))
    whole.cut()
    assert rewards(whole.release(block(3, [[2, 1]]))) == [[], [103, 104, 105]]


def test_a_rollout_without_an_end_is_refused():
    with pytest.raises(
        UsageError, match="no episode has ended in 3 env steps of each env: give a longer --rollout_length"
    ):
        WholeEpisodes().release(block(0, []))


def test_a_policy_learns_from_whole_episodes():
    data = make_data()
    policy = LitPolicy(
        "PPO",
        data.spaces,
        rollout_length=5,
        steps_per_iteration=10,
        complete_episodes=True,
        batch_size=5,
        hidden_sizes=[8],
    )
    fit(policy, data, 2)
    assert policy.updates == 8 * 2 * 10 and data.env_steps == 80  # as many as ever


def test_an_end_that_was_released_with_an_earlier_rollout_ends_nothing_again():
    whole = WholeEpisodes()
    assert rewards(whole.release(block(0, [[0, 0], [2, 1]]))) == [[0], [100, 101, 102]]
    with pytest.raises(UsageError, match="no episode has ended"):
        whole.release(block(3, []))


def test_every_released_step_is_learned_from_once_in_an_epoch_whatever_their_number():
    data = make_data()
    policy = LitPolicy(
        "A2C", data.spaces, hidden_sizes=[4], rollout_length=6, steps_per_iteration=12, complete_episodes=True
    )
    seen = []
    learn = policy.algorithm.update
    policy.algorithm.update = lambda batch, *rest: (seen.append(batch), learn(batch, *rest))[1]
    fit(policy, data, 1)
    source = data.source
    assert len({len(batch.action) for batch in seen}) > 1, "episodes of 4 steps do not fit into rollouts of 6"
    released = sum(len(batch.action) for batch in seen)
    held = 0 if source.whole._held is None else int(source.whole._held.valid.sum())
    assert released + held == data.env_steps
    data.close()
