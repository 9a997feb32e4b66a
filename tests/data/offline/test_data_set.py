"""A data set is split by episode, mixed by probability, and drawn from in bounded memory."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from recorded_episodes import episodes, record, spaces_of
from tiny_envs import Counting

from lit_rl.data.offline.data_set import DataSet
from lit_rl.data.offline.source import OfflineSource
from lit_rl.data.offline.window import Rows, returns_to_go
from lit_rl.data.plans import OfflinePlan, ReplayPlan
from lit_rl.envs.frames import Stacking
from lit_rl.errors import UsageError

PLAN = OfflinePlan(steps_per_iteration=4, batch_size=8, gamma=0.5)


def counted(path, count, **config):
    """Episodes of :class:`Counting`, which observes (episode, step); episode 0 shows a 2, as making the env resets it too."""
    return record(path, count, Counting, act=lambda obs, env, rng: int(rng.integers(2)), **config)


def make_source(path, plan=PLAN, window_mb=1.0, rank=0, ranks=1, seed=0):
    data = DataSet(path, validation_fraction=0.0)
    return OfflineSource(plan, data.training(rank, ranks, window_mb), seed)


def test_whole_episodes_are_held_out_and_the_seed_says_which(tmp_path):
    path = counted(tmp_path / "a.jsonl", 20)

    def split(seed, ranks=1):
        data = DataSet(path, validation_fraction=0.25, seed=seed)
        training = [
            {int(part.read(i).obs[0, 0]) for i in range(len(part))}
            for rank in range(ranks)
            for part in data.training(rank, ranks, 1.0).parts
        ]
        held_out = [{int(e.obs[0, 0]) for _, e in data.held_out(rank, ranks)} for rank in range(ranks)]
        return training, held_out

    (training,), (held_out,) = split(1)
    assert (len(training), len(held_out)) == (15, 5) and not training & held_out
    assert split(1) == split(1) != split(2)
    training_of, held_out_of = split(1, ranks=2)
    assert training_of[0] | training_of[1] == training and not training_of[0] & training_of[1]
    assert held_out_of[0] | held_out_of[1] == held_out and not held_out_of[0] & held_out_of[1]
    assert DataSet(path, validation_fraction=0.001).held_out_episodes == 1
    assert DataSet(path, validation_fraction=0.0).held_out_episodes == 0


def test_too_little_data_is_refused(tmp_path):
    path = counted(tmp_path / "a.jsonl", 1)
    with pytest.raises(UsageError, match="holds one episode, which cannot be split"):
        DataSet(path)
    with pytest.raises(UsageError, match="1 episodes to learn from leave some of the 2 ranks nothing"):
        make_source(path, ranks=2)


def test_a_minibatch_is_what_replay_would_hand_out(tmp_path):
    source = make_source(counted(tmp_path / "a.jsonl", 4), ReplayPlan(4, 4, 1.0, 8, 100, 0, 0.5, n_step=2).offline())
    for batch in source.sample(5):
        t, ended = batch.obs[:, 1], batch.next_obs[:, 1] == 3
        torch.testing.assert_close(batch.next_obs[:, 1], (t + 2).clamp(max=3))
        torch.testing.assert_close(batch.reward, torch.where(t == 2, 1.0, 1.5))
        torch.testing.assert_close(batch.discount, torch.where(ended, 0.0, 0.25))  # it terminates after three steps
        torch.testing.assert_close(batch.return_, torch.tensor([1.75, 1.5, 1.0])[t.long()])
        torch.testing.assert_close(batch.obs[:, 0], batch.next_obs[:, 0])  # of the same episode
        assert len(batch.weight) == 8 and (batch.weight == 1).all()


def test_to_the_episodes_end_a_truncated_episode_bootstraps_and_a_terminated_one_does_not():
    for truncates in (False, True):
        (episode,) = episodes(1, Counting, lambda obs, env, rng: 0, truncates=truncates)
        rows = Rows(6, spaces_of(Counting).action, 0.5, Stacking())
        batch = rows.gather(rows.add(episode), None)
        torch.testing.assert_close(batch.reward, torch.tensor([1.75, 1.5, 1.0]))
        discount = torch.tensor([0.125, 0.25, 0.5]) if truncates else torch.zeros(3)
        torch.testing.assert_close(batch.discount, discount)
        torch.testing.assert_close(batch.next_obs, torch.from_numpy(episode.obs[-1:]).repeat(3, 1))


def test_returns_to_go_are_discounted_sums():
    np.testing.assert_allclose(returns_to_go(np.array([1.0, 2.0, 4.0]), 0.5), [3.0, 4.0, 4.0])


def test_a_data_set_larger_than_the_window_streams_through_it(tmp_path):
    source = make_source(counted(tmp_path / "a.jsonl", 3000), window_mb=0.02)
    rows = source.windows[0].rows.buffer.rows
    assert rows < 700
    seen = torch.zeros(3100)
    for _ in range(1500):  # of 12,000 rows a good ninth each time: each is drawn once a pass, on average
        for batch in source.sample(1):
            seen[batch.obs[:, 0].long()] += 1
    assert len(source.windows[0].rows.buffer.reward) == rows
    drawn = seen[seen > 0]
    assert len(drawn) > 2500 and seen.max() < 25


def test_each_source_is_drawn_from_by_its_probability(tmp_path):
    few, many = counted(tmp_path / "few.jsonl", 3, reward=5.0), counted(tmp_path / "many.jsonl", 300)
    source = make_source({few: 3, many: 1.0})
    share = torch.cat([batch.reward == 5 for batch in source.sample(200)]).float().mean()
    assert share == pytest.approx(0.75, abs=0.04)
    for batch in source.sample(3):
        assert (batch.obs[:, 1] + 1 == batch.next_obs[:, 1]).all()  # rows stay together
    with pytest.raises(UsageError, match="few.jsonl has the probability -1; give numbers above 0"):
        DataSet({few: -1})


@pytest.mark.parametrize("window_mb", [1.0, 0.01], ids=["all of it", "streaming"])
def test_a_source_goes_on_where_it_stood(tmp_path, window_mb):
    paths = {counted(tmp_path / f"{i}.jsonl", 500): 0.5 for i in range(2)}
    source, again = (make_source(paths, window_mb=window_mb) for _ in range(2))
    for _ in source.sample(500):
        pass
    assert (source.windows[0].read > 500) == (window_mb == 0.01)
    again.load_state_dict(source.state_dict())
    for one, other in zip(source.sample(200), again.sample(200), strict=True):
        for x, y in zip(one, other, strict=True):
            assert torch.equal(x, y)


def test_a_window_without_room_for_an_episode_is_refused(tmp_path):
    path = counted(tmp_path / "a.jsonl", 3, length=1000)
    with pytest.raises(
        UsageError, match="--window_mb 0.01 has no room for an episode of 1000 steps: give at least 0.03"
    ):
        make_source(path, window_mb=0.01)


@pytest.mark.parametrize("window_mb", [1.0, 0.0006])
def test_a_rank_goes_on_in_its_own_share_from_the_state_of_the_first(tmp_path, window_mb):
    path = counted(tmp_path / "a.jsonl", 7)
    first = make_source(path, window_mb=window_mb, ranks=2)
    for _ in range(3):
        first.draw(8)
    other = make_source(path, window_mb=window_mb, rank=1, ranks=2)
    other.load_state_dict(first.state_dict())
    own = {int(part.read(i).obs[0, 0]) for part in (other.windows[0].part,) for i in range(len(part))}
    batch = other.draw(200)
    assert set(batch.obs[:, 0].int().tolist()) <= own
    assert len(batch.obs[:, 0].unique()) > 1
