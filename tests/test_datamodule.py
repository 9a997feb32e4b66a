from __future__ import annotations

import numpy as np
import pytest
import pytorch_lightning as pl
import torch
from threadpoolctl import threadpool_info, threadpool_limits
from tiny_runs import Signs, fit, make_data, make_policy, make_trainer

from lit_rl.datamodule import ExperienceDataModule
from lit_rl.errors import EnvError, UsageError
from lit_rl.lit_policy import LitPolicy


class Drawn(Signs):
    """The reset seed is how long the first episode is, modulo 5; every seed is noted."""

    seeds = []

    def reset(self, *, seed=None, options=None):
        if seed is not None:
            Drawn.seeds.append(seed)
            self.length = 1 + seed % 5
        return super().reset(seed=seed)


@pytest.fixture
def seeds():
    """The reset seeds since the last look, those of making envs (0) left out."""
    Drawn.seeds.clear()

    def look():
        found = [seed for seed in Drawn.seeds if seed]
        Drawn.seeds.clear()
        return found

    return look


def evaluate(data, policy, how="validate", **settings):
    trainer = make_trainer(1, **settings)
    (scores,) = getattr(trainer, how)(policy, datamodule=data, verbose=False)
    return scores


def test_an_evaluation_gives_the_same_numbers_for_any_number_of_test_envs():
    results = []
    for num_test_envs in (1, 3, 10):
        data = make_data(Drawn, num_test_envs=num_test_envs, episode_per_test=8)
        policy = make_policy(data, hidden_sizes=[64, 64])
        results.append(evaluate(data, policy))
        assert results[-1] == evaluate(data, policy)
    assert results[0] == results[1] == results[2]


def test_limit_val_batches_takes_the_first_episodes(seeds):
    data = make_data(Drawn, episode_per_test=8, num_test_envs=4)
    policy = make_policy(data)
    seeds()
    evaluate(data, policy)
    lengths = [1 + seed % 5 for seed in seeds()[:8]]  # one env or many: seeds are handed out in order
    for count in (1, 3, 7):
        scores = evaluate(data, policy, limit_val_batches=count)
        assert scores["Eval/episodes"] == count and scores["Eval/length"] == pytest.approx(np.mean(lengths[:count]))


def test_every_evaluation_plays_the_same_seeds_and_the_test_others(seeds):
    data = make_data(Drawn, num_test_envs=1, episode_per_test=6, test_episodes=9)
    policy = make_policy(data)
    seeds()
    evaluate(data, policy)
    first = seeds()
    fit(policy, data, 1, limit_val_batches=0)
    training = seeds()
    evaluate(data, policy)
    assert seeds() == first
    evaluate(data, policy, "test")
    tested = seeds()
    assert (len(set(first[:6])), len(training), len(set(tested[:9]))) == (6, 2, 9)
    assert not set(first) & set(tested) and not set(first + tested) & set(training)


def test_another_seed_means_other_episodes_everywhere(seeds):
    found = []
    for seed in (0, 1):
        data = make_data(Drawn, seed=seed)
        policy = make_policy(data)
        seeds()
        fit(policy, data, 1)
        evaluate(data, policy, "test")
        found.append(set(seeds()))
    assert len(found[0]) == len(found[1]) == 2 + 3 + 5 and not found[0] & found[1]


def weights(data, **settings):
    policy = make_policy(data, **settings)
    fit(policy, data, 2, limit_val_batches=0)
    data.close()
    return torch.cat([p.detach().reshape(-1) for p in policy.algorithm.parameters()])


def test_async_envs_give_the_weights_that_sync_ones_give():
    assert torch.equal(weights(make_data()), weights(make_data(vector_env="async")))


def test_native_envs_train():
    data = make_data("CartPole-v1", vector_env="native", num_envs=4)
    policy = make_policy(data)
    fit(policy, data, 2)
    assert policy.updates == 40 and data.env_steps == 80 and policy.reported["Eval/length"] >= 5
    data.close()


def test_collecting_goes_on_from_fit_to_fit():
    data = make_data(env_config={"length": 60}, num_envs=1)
    for _ in range(3):  # 40 steps each: an episode ends in the second and in the third
        policy = make_policy(data)
        fit(policy, data, 1, limit_val_batches=0)
    assert data.env_steps == data.source.collector.env_steps == 120
    assert data.source.collector.finished == 2


def test_a_second_policy_keeps_the_buffer_of_the_first():
    data = make_data()
    fit(make_policy(data), data, 1, limit_val_batches=0)
    buffer = data.source.buffer
    fit(make_policy(data, lr=1e-4, stage=2), data, 1, limit_val_batches=0)
    assert data.source.buffer is buffer and len(buffer) == 80
    fit(make_policy(data, n_step=3), data, 1, limit_val_batches=0)  # another plan, the same rows
    assert data.source.buffer is buffer and data.source.plan.n_step == 3 and len(buffer) == 120
    fit(make_policy(data, buffer_size=100), data, 1, limit_val_batches=0)
    assert data.source.buffer is not buffer and len(data.source.buffer) < 50 and data.env_steps == 160


def test_an_epoch_has_the_length_that_was_set_last():
    data = make_data()
    fit(make_policy(data), data, 1, limit_val_batches=0)
    data.step_per_epoch = 100
    policy = make_policy(data, stage=2)
    fit(policy, data, 1, limit_val_batches=0)
    assert data.env_steps == 140 and policy.updates == 50


def test_an_iteration_that_does_not_fit_becomes_the_largest_that_does():
    data = make_data(step_per_epoch=48, num_envs=3)
    policy = make_policy(data)  # asks for 20 at a time
    fit(policy, data, 1, limit_val_batches=0)
    assert data.source.plan.steps_per_iteration == 12 and data.env_steps == 48


def test_envs_that_do_not_divide_a_collect_make_exactly_the_steps_of_an_epoch():
    data = make_data(step_per_epoch=60, num_envs=3)
    policy = make_policy(data, steps_per_iteration=12, collect_per_step=4)
    fit(policy, data, 2, limit_val_batches=0)
    assert data.env_steps == data.source.collector.env_steps == 120 and policy.updates == 60


def test_numbers_that_cannot_work_are_refused_by_name():
    cases = {"num_envs": 0, "step_per_epoch": 0, "episode_per_test": 0, "num_test_envs": -1, "test_episodes": 0}
    for name, value in cases.items():
        with pytest.raises(UsageError, match=name):
            make_data(**{name: value})
    with pytest.raises(UsageError, match="CartPole-v1"):
        ExperienceDataModule("CartPool-v1")
    with pytest.raises(UsageError, match="ExperienceDataModule has no setting num_env; nearest: num_envs"):
        ExperienceDataModule("CartPole-v1", num_env=8)
    data = make_data(num_envs=3)
    with pytest.raises(UsageError, match="step_per_epoch 40 is not a multiple of the 3 env steps"):
        fit(make_policy(data), data, 1)


def test_a_buffer_that_is_too_small_is_refused_by_name():
    data = make_data(num_envs=4, step_per_epoch=40)
    with pytest.raises(UsageError, match="--buffer_size 11 .* at least 12"):
        fit(make_policy(data, buffer_size=11), data, 1)


def test_an_env_that_raises_says_which_and_keeps_its_traceback():
    class Raising(Signs):
        def step(self, action):
            if self.t == 2 and self.armed:
                raise StopIteration("no more")
            return super().step(action)

        armed = False

    data = make_data(Raising)
    Raising.armed = True
    with pytest.raises(EnvError, match=r"env 0, step 3 .*StopIteration: no more"):
        fit(make_policy(data), data, 1)


def test_close_ends_the_environments():
    data = make_data(vector_env="async")
    policy = make_policy(data)
    fit(policy, data, 1)
    processes = data.source.collector.envs.processes + data.played.envs.processes
    data.close()
    assert len(processes) == 4 and not any(process.is_alive() for process in processes)
    data.close()


def test_the_names_of_the_package_are_these_classes():
    import lit_rl

    assert lit_rl.ExperienceDataModule is ExperienceDataModule and lit_rl.LitPolicy is LitPolicy


def test_envs_whose_spaces_differ_between_instances_are_refused():
    made = []

    def changing():
        made.append(None)
        return Signs(start=len(made))

    with pytest.raises(UsageError, match="changing makes envs with different spaces"):
        make_data(changing)


def test_numpy_has_one_thread_while_a_trainer_runs_and_what_it_had_afterwards():
    seen = []

    def threads():
        return {found["num_threads"] for found in threadpool_info() if found["user_api"] == "blas"}

    class Look(pl.Callback):
        def on_train_batch_end(self, *_):
            seen.append(threads())

        def on_validation_end(self, *_):
            seen.append(threads())

    with threadpool_limits(2, user_api="blas"):
        before = threads()
        data = make_data(Signs)
        policy = make_policy(data)
        make_trainer(1, callbacks=[Look()]).fit(policy, datamodule=data)
        evaluate(data, policy)
        assert threads() == before
    assert len(seen) > 1 and all(found == {1} for found in seen)
