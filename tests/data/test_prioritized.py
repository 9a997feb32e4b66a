from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from recorded_env import make_collector

from lit_rl.data.plans import Prioritized, ReplayPlan
from lit_rl.data.prioritized import Priorities, SumTree
from lit_rl.data.replay import ReplaySource

PLAN = ReplayPlan(
    steps_per_iteration=12,
    collect_per_step=4,
    update_per_step=0.5,
    batch_size=8,
    buffer_size=200,
    learning_starts=0,
    gamma=0.5,
    prioritized=Prioritized(alpha=1.0, beta=[[0, 0.0], [100, 1.0]], eps=0.5),
)


def make_tree(numbers):
    tree = SumTree(len(numbers))
    tree.set(np.arange(len(numbers)), np.array(numbers, float))
    return tree


@pytest.mark.parametrize("size", [1, 2, 3, 7, 8, 9, 100])
def test_the_total_is_the_sum_whatever_was_written_in_what_order(size):
    random = np.random.default_rng(size)
    tree, numbers = SumTree(size), np.zeros(size)
    for _ in range(20):
        index, value = random.integers(0, size, 5), random.random(5)
        tree.set(index, value)
        for i, x in zip(index, value, strict=True):
            numbers[i] = x
        assert tree.leaves.tolist() == numbers.tolist()
        assert tree.total == pytest.approx(numbers.sum(), rel=1e-12)
    tree.leaves[:] = 1.0
    tree.refresh()
    assert tree.total == size


def test_a_prefix_is_found_where_the_running_sum_passes_it():
    tree = make_tree([1.0, 0.0, 2.0, 3.0, 0.0])  # running sums 1, 1, 3, 6, 6
    found = tree.find(np.array([0.0, 0.99, 1.0, 2.99, 3.0, 5.99]))
    assert found.tolist() == [0, 0, 2, 2, 3, 3]


def test_a_number_that_is_0_is_never_found_even_beyond_the_end():
    tree = make_tree([0.0, 0.1, 0.2, 0.0, 0.3, 0.0])
    assert tree.find(np.array([0.0, tree.total, tree.total * 2])).tolist() == [1, 4, 4]


def test_rows_are_drawn_in_proportion_to_their_priority_with_the_weights_that_undo_it():
    priorities = Priorities(Prioritized(alpha=0.5, beta=1.0, eps=0.0), 5)
    priorities.renew(np.arange(4), np.array([True, True, True, False]))
    priorities.update(np.arange(3), torch.tensor([-1.0, 4.0, 9.0]))  # p^alpha: 1, 2, 3
    rows, weight = priorities.draw(6000, 1.0, torch.Generator().manual_seed(0))
    assert np.bincount(rows, minlength=5).tolist() == pytest.approx([1000, 2000, 3000, 0, 0], abs=2)  # stratified
    for row, expected in enumerate([1.0, 1 / 2, 1 / 3]):
        assert (weight[rows == row] == np.float32(expected)).all()
    _, weight = priorities.draw(60, 0.0, torch.Generator().manual_seed(0))
    assert (weight == 1).all()


def test_what_is_new_gets_the_largest_priority_so_far():
    priorities = Priorities(Prioritized(alpha=1.0, beta=1.0, eps=1.0), 4)
    priorities.renew(np.array([0, 1]), np.array([True, True]))
    priorities.update(np.array([0]), torch.tensor([6.0]))
    priorities.renew(np.array([2]), np.array([True]))
    priorities.renew(np.array([1]), np.array([False]))
    assert priorities.state_dict()["priority"].tolist() == [7.0, 0.0, 7.0, 0.0]


def test_only_transitions_have_a_priority_while_the_ring_wraps():
    collector, policy = make_collector(2)
    source = ReplaySource(PLAN, collector, 0, 1)
    generator = torch.Generator().manual_seed(0)
    for round in range(120):
        source.collect(policy)
        for batch in source.sample(1):
            assert batch.weight.max() == 1 and batch.weight.min() > 0
            source.feedback(torch.rand(8, generator=generator))
        if round % 50 == 49:
            source.cut()
        priority = source.priorities.state_dict()["priority"]
        assert torch.equal(priority > 0, source.buffer.is_transition)


def test_errors_count_from_the_next_minibatch_on():
    collector, policy = make_collector(1)
    source = ReplaySource(PLAN, collector, 0, 1)
    for _ in range(10):
        source.collect(policy)
    one = -1
    for number, _ in enumerate(source.sample(4)):
        rows = source._drawn
        one = one if number else int(rows[0])
        assert number == 0 or (rows == one).sum() >= 7  # of 8: it has nearly all of the priority
        source.feedback(torch.from_numpy(np.where(rows == one, 1e6, 0.0)))


def test_the_importance_weights_follow_beta_over_env_steps():
    collector, policy = make_collector(1)
    source = ReplaySource(PLAN, collector, 0, 1)
    source.collect(policy)
    next(source.sample(1))
    source.feedback(torch.arange(8.0))
    at = {}
    for steps in (0, 50, 100):
        source.env_steps = steps
        state = source.generator.get_state()
        at[steps] = next(source.sample(1)).weight
        source.generator.set_state(state)
    assert (at[0] == 1).all() and at[100].min() < 1
    torch.testing.assert_close(at[50], at[100].sqrt())


def test_a_saved_source_draws_what_the_one_it_was_saved_from_would():
    collector, policy = make_collector(2)
    one = ReplaySource(PLAN, collector, 0, 1)
    for _ in range(30):
        one.collect(policy)
        for _ in one.sample(1):
            one.feedback(torch.rand(8))
    two = ReplaySource(PLAN, make_collector(2)[0], 1, 1)
    two.load_state_dict(one.state_dict())
    one.cut()  # as the resumed one has
    for mine, theirs in zip(one.sample(2), two.sample(2), strict=True):
        assert all(torch.equal(a, b) for a, b in zip(mine, theirs, strict=True))
        one.feedback(mine.reward)
        two.feedback(mine.reward)


def test_a_second_stage_keeps_the_priorities():
    collector, policy = make_collector(2)
    one = ReplaySource(PLAN, collector, 0, 1)
    for _ in range(9):
        one.collect(policy)
        for _ in one.sample(1):
            one.feedback(torch.rand(8))
    two = ReplaySource(PLAN, collector, 1, 1)
    assert two.adopt(one)
    assert torch.equal(two.priorities.state_dict()["priority"], one.priorities.state_dict()["priority"])


@pytest.mark.parametrize("prioritized", [None, PLAN.prioritized], ids=["uniform", "prioritized"])
def test_minibatches_carry_the_noise_that_the_plan_asks_for(prioritized):
    collector, policy = make_collector(1)
    source = ReplaySource(replace(PLAN, noise=(2, 8, 3), prioritized=prioritized), collector, 0, 1)
    source.collect(policy)
    one, two = source.sample(2)
    assert one.noise.shape == two.noise.shape == (2, 8, 3) and not torch.equal(one.noise, two.noise)
    assert next(iter(ReplaySource(PLAN, collector, 0, 1).sample(0)), None) is None
