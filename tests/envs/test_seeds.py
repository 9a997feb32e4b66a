from __future__ import annotations

import itertools

import pytest

from lit_rl.envs.seeds import env_seed


def test_training_evaluation_and_test_draw_from_ranges_that_cannot_meet():
    for code, domain in enumerate(("train", "eval", "test")):
        seeds = [env_seed(seed, domain, i) for seed in range(5) for i in range(200)]
        assert {seed >> 29 for seed in seeds} == {code}
        assert len(set(seeds)) == 1000


def test_the_same_key_gives_the_same_seed_in_every_process():
    assert env_seed(0, "train", 0) == 155863186
    assert env_seed(3, "test", 7) >> 29 == 2


def test_keys_that_differ_only_in_length_differ():
    keys = [(), (0,), (0, 0), (1,), (1, 0), (0, 1)]
    assert all(env_seed(0, "eval", *a) != env_seed(0, "eval", *b) for a, b in itertools.combinations(keys, 2))
    assert env_seed(0, "train", 1) != env_seed(1, "train", 0)


def test_large_seeds_are_taken_and_negative_ones_refused():
    assert 0 <= env_seed(2**64, "test", 2**40) < 2**31
    with pytest.raises(ValueError, match="at least 0"):
        env_seed(-1, "train")
    with pytest.raises(ValueError, match="train, eval or test"):
        env_seed(0, "validation")
