from __future__ import annotations

import copy
import math
from csv import DictReader

import numpy as np
import pytest
import pytorch_lightning as pl
import torch
from pytorch_lightning.callbacks import EarlyStopping, ModelCheckpoint
from pytorch_lightning.loggers import CSVLogger
from pytorch_lightning.loggers.logger import DummyLogger
from tiny_runs import Signs, fit, make_data, make_policy, make_trainer

from lit_rl import load_policy
from lit_rl.algorithms.base import Loss
from lit_rl.algorithms.dqn import DQN, DQNConfig
from lit_rl.callbacks.last import LastCheckpoint
from lit_rl.checkpoint import load
from lit_rl.errors import NumericsError, UsageError
from lit_rl.lit_policy import LitPolicy


class Watch(pl.Callback):
    """Notes the counters whenever something happens."""

    def __init__(self):
        self.evaluations, self.batches, self.epochs, self.returns = [], [], [], []

    def on_train_batch_start(self, trainer, pl_module, batch, batch_idx):
        self.batches.append((pl_module.updates, pl_module.env_steps))

    def on_validation_end(self, trainer, pl_module):
        if not trainer.sanity_checking:
            self.evaluations.append(pl_module.updates)
            self.returns.append(float(trainer.callback_metrics["Eval/return"]))

    def on_train_epoch_end(self, trainer, pl_module):
        self.epochs.append((trainer.global_step, pl_module.updates, pl_module.env_steps))


class Scores(DummyLogger):
    """A logger that keeps what it is told."""

    def __init__(self):
        super().__init__()
        self.rows = []

    def log_metrics(self, metrics, step=None):
        self.rows.append((step, dict(metrics)))


def everything(policy, data):
    """All tensors that a next update depends on."""
    optimizer = policy.optimize.optimizer.state_dict()["state"]
    found = dict(policy.state_dict())
    found |= {f"adam {i} {name}": x for i, state in optimizer.items() for name, x in state.items()}
    buffer = data.source.buffer
    return found | {"reward": buffer.reward, "obs": buffer.obs, "head": torch.as_tensor(buffer.head)}


def assert_same(one, two):
    assert one.keys() == two.keys()
    for name, x in one.items():
        assert torch.equal(x, two[name]), name


# ---- counting ----


@pytest.mark.parametrize("update_per_step, updates", [(0.5, 20), (0.3, 12), (0.0, 0), (2.0, 80)])
def test_global_step_is_the_number_of_updates(update_per_step, updates):
    data, watch = make_data(), Watch()
    policy = make_policy(data, update_per_step=update_per_step)
    trainer = fit(policy, data, 3, [watch])
    assert watch.epochs == [(updates * k, updates * k, 40 * k) for k in (1, 2, 3)]
    assert trainer.global_step == policy.updates and policy.env_steps == data.env_steps == 120


def test_nothing_is_collected_ahead_of_the_policy_that_should_collect_it():
    class Noting(DQN):
        def update(self, batch, optimize, progress):
            seen.append((progress.updates, progress.env_steps, data.source.collector.env_steps))
            return super().update(batch, optimize, progress)

    seen = []
    data, watch = make_data(), Watch()
    fit(make_policy(data, Noting), data, 2, [watch])
    assert watch.batches == [(0, 0), (10, 20), (20, 40), (30, 60)]
    assert seen == [(u, 4 * (u // 2 + 1), 4 * (u // 2 + 1)) for u in range(40)]


@pytest.mark.parametrize(
    "updates, trainer_settings",
    [(1, {}), (10, {}), (20, {}), (27, {}), (27, {"check_val_every_n_epoch": 3}), (13, {"min_epochs": 9})],
)
def test_max_updates_is_exact_and_ends_with_an_evaluation(updates, trainer_settings):
    data, watch = make_data(), Watch()
    policy = make_policy(data, max_updates=updates)
    trainer = fit(policy, data, 9, [watch], **trainer_settings)
    assert policy.updates == trainer.global_step == updates
    assert watch.evaluations[-1] == updates


@pytest.mark.parametrize("steps, made", [(1, 20), (20, 20), (21, 40), (50, 60)])
def test_max_env_steps_ends_the_iteration_that_reaches_it_with_an_evaluation(steps, made):
    data, watch = make_data(), Watch()
    policy = make_policy(data, max_env_steps=steps)
    fit(policy, data, 9, [watch])
    assert policy.env_steps == made and watch.evaluations[-1] == policy.updates == made // 2


@pytest.mark.parametrize("limit", [{"max_updates": 15}, {"max_env_steps": 40}])
def test_a_limit_that_is_reached_already_leaves_nothing_to_do(limit):
    data = make_data()
    policy = make_policy(data, **limit)
    fit(policy, data, 9)
    before = policy.updates, data.env_steps
    trainer = fit(policy, data, 9)
    assert (policy.updates, data.env_steps) == before and trainer.global_step == policy.updates


def test_a_stage_counts_its_own_env_steps():
    data = make_data()
    fit(make_policy(data), data, 1)
    second = make_policy(data, stage=2, max_env_steps=40)
    fit(second, data, 9)
    assert second.first_env_step == 40 and second.env_steps == 80 and second.updates == 20


@pytest.mark.parametrize("same_trainer", [False, True])
@pytest.mark.parametrize("settings", [{}, {"average_weights": 0.9, "n_step": 3, "dueling": True}])
def test_several_fits_equal_a_long_one(same_trainer, settings):
    data, other_data = make_data(), make_data()
    policy, other = make_policy(data, **settings), make_policy(other_data, **settings)
    fit(policy, data, 3)
    if same_trainer:
        trainer = make_trainer(1)
        trainer.fit(other, datamodule=other_data)
        trainer.fit_loop.max_epochs = 3
        trainer.fit(other, datamodule=other_data)
    else:
        for epochs in (1, 2):
            trainer = fit(other, other_data, epochs)
    assert trainer.global_step == other.updates == policy.updates == 60
    assert_same(everything(policy, data), everything(other, other_data))


def test_the_sanity_check_counts_nothing():
    data, watch = make_data(), Watch()
    policy = make_policy(data)
    fit(policy, data, 2, [watch], num_sanity_val_steps=2)
    other_data, without = make_data(), make_policy(make_data())
    logger = Scores()
    fit(without, other_data, 2, num_sanity_val_steps=0, logger=logger)
    assert_same(everything(policy, data), everything(without, other_data))
    assert policy.reported == without.reported
    assert watch.evaluations == [20, 40]
    assert [step for step, row in logger.rows if "Eval/return" in row] == [40, 80]


def test_the_sanity_check_is_told_to_no_logger():
    logger, data = Scores(), make_data()
    fit(make_policy(data), data, 1, num_sanity_val_steps=-1, logger=logger)
    assert [step for step, row in logger.rows if "Eval/return" in row] == [40]


def test_fitting_and_evaluating_warn_of_nothing_that_is_ours(recwarn, tmp_path):
    data = make_data()
    trainer = fit(make_policy(data), data, 1)
    trainer.test(ckpt_path=None, datamodule=data, model=trainer.lightning_module, verbose=False)
    told = [str(warning.message) for warning in recwarn.list]
    assert not [text for text in told if "overridden" in text or "logger" in text or "self.log" in text]


def test_a_fast_dev_run_and_a_barebones_one_work():
    for settings in ({"fast_dev_run": True}, {"barebones": True}):
        data = make_data()
        quiet = {"logger": None, "enable_model_summary": None, "enable_progress_bar": None}
        policy = make_policy(data)
        fit(policy, data, 1, **(quiet | {"enable_checkpointing": None} | settings))
        assert policy.updates == (10 if "fast_dev_run" in settings else 20)


def test_double_precision_stays_double_over_several_fits():
    data = make_data()
    policy = make_policy(data, average_weights=0.9)
    for _ in range(2):
        fit(policy, data, 1, precision="64-true")
        assert {p.dtype for p in policy.parameters()} == {torch.float64}
    assert policy.updates == 40 and all(g.attached for g in policy.optimize.groups.values())


# ---- evaluation and logging ----


def test_validate_and_test_return_the_metrics():
    data = make_data()
    policy = make_policy(data)
    trainer = make_trainer(1)
    names = {"return", "return_std", "return_min", "return_max", "length", "episodes"}
    (scores,) = trainer.validate(policy, datamodule=data, verbose=False)
    assert scores.keys() - {"step"} == {f"Eval/{name}" for name in names}
    assert scores["Eval/episodes"] == 3 and scores["Eval/length"] == 4
    trainer.fit(policy, datamodule=data)
    (tested,) = trainer.test(policy, datamodule=data, verbose=False)
    assert tested.keys() - {"step"} == {f"Test/{name}" for name in names} and tested["Test/episodes"] == 5
    (second,) = trainer.validate(make_policy(data, stage=2), datamodule=data, verbose=False)
    assert second.keys() - {"step"} == {f"Step2Eval/{name}" for name in names}
    assert policy.updates == 20 and data.env_steps == 40


def test_evaluating_changes_nothing_of_the_training():
    data, other_data = make_data(), make_data()
    policy, other = make_policy(data), make_policy(other_data)
    fit(policy, data, 2)
    fit(other, other_data, 1, limit_val_batches=0)
    make_trainer(1).validate(other, datamodule=other_data, verbose=False)
    make_trainer(1).test(other, datamodule=other_data, verbose=False)
    fit(other, other_data, 1, limit_val_batches=0)
    assert_same(everything(policy, data), everything(other, other_data))


def test_curves_are_over_env_steps_exactly(tmp_path):
    logger, data = Scores(), make_data()
    policy = make_policy(data)
    fit(policy, data, 3, logger=logger)
    train = [step for step, row in logger.rows if "Train/loss" in row]
    evaluation = [step for step, row in logger.rows if "Eval/return" in row]
    assert train == evaluation == [40, 80, 120]
    make_trainer(1, logger=logger).validate(policy, datamodule=data, verbose=False)
    assert logger.rows[-1][0] == 120 and "Eval/return" in logger.rows[-1][1]
    data.source.env_steps = 2**24 + 1  # no float32
    fit(policy, data, 1, logger=logger)
    assert {step for step, _ in logger.rows[-2:]} == {2**24 + 41}
    data.source.env_steps = 120
    csv = CSVLogger(tmp_path, "x", "y")
    fit(policy, data, 1, logger=csv)
    csv.save()
    rows = list(DictReader((tmp_path / "x" / "y" / "metrics.csv").open()))
    assert {row["step"] for row in rows} == {"160"} and any(row["Eval/return"] for row in rows)


def test_training_metrics_are_means_over_the_epoch():
    class Counting(DQN):
        def update(self, batch, optimize, progress):
            updated = super().update(batch, optimize, progress)
            extra = {"number": torch.tensor(float(progress.updates))}
            return updated._replace(metrics=extra | ({"rare": torch.tensor(3.0)} if progress.updates == 4 else {}))

    logger, data = Scores(), make_data(env_config={"length": 8})
    trainer = fit(make_policy(data, Counting, collect_per_step=20), data, 2, logger=logger)
    rows = [row for _, row in logger.rows if "Train/number" in row]
    assert [row["Train/number"] for row in rows] == [9.5, 29.5]
    assert rows[0]["Train/rare"] == 3.0 and "Train/rare" not in rows[1]
    assert [row["Train/episodes"] for row in rows] == [4, 6]  # of 8 steps in 2 envs: 32 of 40 steps, then 80 of 80
    assert [row["Train/length"] for row in rows] == [8, 8]
    assert float(trainer.callback_metrics["Train/number"]) == 29.5


def test_an_epoch_without_updates_or_finished_episodes_is_no_error():
    data = make_data(env_config={"length": 100}, episode_per_test=1)
    policy = make_policy(data, learning_starts=60)
    trainer = fit(policy, data, 2)
    assert policy.updates == 12 and "Train/return" not in trainer.callback_metrics  # from env step 60 on


def test_early_stopping_by_any_user():
    data, watch = make_data(), Watch()
    policy = make_policy(data, lr=0.0)  # the same return each time
    stop = EarlyStopping("Eval/return", mode="max", patience=2, check_on_train_epoch_end=False)
    fit(policy, data, 9, [watch, stop])
    assert len(watch.evaluations) == 3 and stop.stopped_epoch == 2
    # and with Lightning's own default place
    fit(make_policy(data, lr=0.0), data, 9, [stop := EarlyStopping("Eval/return", mode="max", patience=1)])
    assert stop.stopped_epoch == 1


@pytest.mark.parametrize("weights_only", [False, True])
def test_model_checkpoint_by_any_user_keeps_the_best(weights_only, tmp_path):
    data, watch = make_data(), Watch()
    policy = make_policy(data)
    best = ModelCheckpoint(tmp_path, "{epoch}", "Eval/return", mode="max", save_top_k=2, save_weights_only=weights_only)
    fit(policy, data, 5, [watch, best])
    assert float(best.best_model_score) == max(watch.returns)
    assert 1 <= len(list(tmp_path.glob("*.ckpt"))) <= 2
    for path in tmp_path.glob("*.ckpt"):
        checkpoint = torch.load(path, weights_only=True)
        assert ("experience" in checkpoint) != weights_only
    (scores,) = make_trainer(1).validate(
        LitPolicy.load_from_checkpoint(best.best_model_path), datamodule=data, verbose=False
    )
    assert scores["Eval/return"] == float(best.best_model_score)


def test_the_trainer_tests_the_best_of_a_users_own_checkpoints(tmp_path):
    data = make_data()
    policy = make_policy(data)
    best = ModelCheckpoint(tmp_path, monitor="Eval/return", mode="max")
    trainer = fit(policy, data, 3, [best])
    before = policy.updates, data.env_steps, len(data.source.buffer), data.source.generator.get_state()
    (tested,) = trainer.test(datamodule=data, ckpt_path="best", weights_only=True, verbose=False)
    assert "Test/return" in tested
    after = policy.updates, data.env_steps, len(data.source.buffer), data.source.generator.get_state()
    assert before[:3] == after[:3] and torch.equal(before[3], after[3])  # a test winds nothing back


# ---- the running average ----


def test_the_average_is_moved_at_each_update():
    class Noting(DQN):
        def update(self, batch, optimize, progress):
            if progress.updates:
                follow(self)
            return super().update(batch, optimize, progress)

    def follow(algorithm):
        for mine, theirs in zip(expected, algorithm.policy.parameters(), strict=True):
            mine.mul_(0.75).add_(theirs.detach(), alpha=0.25)

    data = make_data()
    policy = make_policy(data, Noting, average_weights=0.75)
    expected = [p.detach().clone() for p in policy.policy.parameters()]
    fit(policy, data, 1)
    follow(policy.algorithm)
    for mine, average, raw in zip(expected, policy.average.parameters(), policy.policy.parameters(), strict=True):
        torch.testing.assert_close(mine, average.detach())
        assert not torch.equal(average, raw)


def test_the_average_is_what_counts_and_the_raw_weights_are_what_learns(tmp_path):
    data, plain_data = make_data(), make_data()
    policy, plain = make_policy(data, average_weights=0.9), make_policy(plain_data)
    trainer = fit(policy, data, 2)
    fit(plain, plain_data, 2)
    assert_same(dict(plain.algorithm.state_dict()), dict(policy.algorithm.state_dict()))
    trainer.save_checkpoint(tmp_path / "full.ckpt")
    trainer.save_checkpoint(tmp_path / "weights.ckpt", weights_only=True)
    obs = np.random.default_rng(0).normal(size=(30, 2)).astype(np.float32)
    expected = policy.average.q_values(torch.from_numpy(obs))
    assert not torch.equal(expected, policy.policy.q_values(torch.from_numpy(obs)))
    for name in ("full", "weights"):
        found = load_policy(tmp_path / f"{name}.ckpt").q_values(obs)
        np.testing.assert_allclose(found, expected.numpy(), rtol=1e-6)
    # a run without an average goes on from the average, which is what was evaluated and won
    without = LitPolicy.load_from_checkpoint(tmp_path / "weights.ckpt", average_weights=None)
    torch.testing.assert_close(without.policy.q_values(torch.from_numpy(obs)), expected)
    # one with an average from a file without one begins with those weights twice
    torch.save(copy.deepcopy(load_raw(plain, tmp_path)), tmp_path / "plain.ckpt")
    both = LitPolicy.load_from_checkpoint(tmp_path / "plain.ckpt", average_weights=0.5)
    assert_same(dict(both.average.state_dict()), dict(plain.policy.state_dict()))


def load_raw(policy, folder):
    policy.trainer.save_checkpoint(folder / "raw.ckpt", weights_only=True)
    return load(folder / "raw.ckpt")


def test_evaluation_plays_the_average():
    data = make_data()
    policy = make_policy(data, average_weights=0.5)
    with torch.no_grad():  # the average says the sign, the raw weights always the other one
        for part, good in ((policy.average, 1.0), (policy.policy, -1.0)):
            for p in part.parameters():
                p.zero_()
            part.actor.torso.mlp[0].weight[0, 0], part.actor.torso.mlp[0].weight[1, 0] = 1.0, -1.0
            part.actor.head.linear.weight[1, 0], part.actor.head.linear.weight[0, 1] = good, good
    (scores,) = make_trainer(1).validate(policy, datamodule=data, verbose=False)
    assert scores["Eval/return"] == 4.0
    with torch.no_grad():
        policy.average.load_state_dict(policy.policy.state_dict())
    (scores,) = make_trainer(1).validate(policy, datamodule=data, verbose=False)
    assert scores["Eval/return"] == 0.0


# ---- checkpoints ----


@pytest.mark.parametrize("explicit", [None, True])
def test_a_full_checkpoint_resumes_counters_weights_and_experience(explicit, tmp_path):
    data = make_data()
    policy = make_policy(data, average_weights=0.9)
    trainer = fit(policy, data, 2)
    trainer.save_checkpoint(tmp_path / "last.ckpt")
    saved = {name: x.clone() for name, x in everything(policy, data).items()}

    class Begin(pl.Callback):
        def on_train_epoch_start(self, trainer, pl_module):
            at.append((trainer.current_epoch, trainer.global_step, pl_module.updates, pl_module.env_steps))
            if len(at) == 1:
                found = everything(pl_module, trainer.datamodule)
                del found["head"], saved["head"]  # the episodes under way are cut
                assert_same(
                    {k: v for k, v in found.items() if k != "obs"}, {k: v for k, v in saved.items() if k != "obs"}
                )

    at = []
    other_data = make_data()
    other = make_policy(other_data, seed=5, average_weights=0.9)
    trainer = make_trainer(4, [Begin()])
    trainer.fit(other, datamodule=other_data, ckpt_path=tmp_path / "last.ckpt", weights_only=explicit)
    assert at == [(2, 40, 40, 80), (3, 60, 60, 120)]
    assert other.first_env_step == 0 and other.updates == trainer.global_step == 80 and other.env_steps == 160


def test_resuming_twice_gives_the_same_weights(tmp_path):
    data = make_data()
    trainer = fit(make_policy(data), data, 2)
    trainer.save_checkpoint(tmp_path / "last.ckpt")
    results = []
    for seed in (1, 2):
        data = make_data()
        policy = make_policy(data, seed=seed)
        fit(policy, data, 4, ckpt_path=tmp_path / "last.ckpt")
        results.append(everything(policy, data))
    assert_same(*results)


def test_a_resumed_policy_can_fall_back_into_a_used_datamodule(tmp_path):
    data = make_data()
    trainer = fit(make_policy(data), data, 1)
    trainer.save_checkpoint(tmp_path / "early.ckpt")
    policy = make_policy(data)
    fit(policy, data, 3)
    fit(policy, data, 2, ckpt_path=tmp_path / "early.ckpt")
    fresh_data = make_data()
    fresh = make_policy(fresh_data, seed=3)
    fit(fresh, fresh_data, 2, ckpt_path=tmp_path / "early.ckpt")
    used, new = everything(policy, data), everything(fresh, fresh_data)
    assert policy.updates == fresh.updates == 40 and data.env_steps == fresh_data.env_steps == 80
    assert_same({k: v for k, v in used.items() if "algorithm" in k}, {k: v for k, v in new.items() if "algorithm" in k})


@pytest.mark.parametrize("weights_only", [False, True])
def test_checkpoints_rebuild_the_policy_with_no_other_file(weights_only, tmp_path):
    data = make_data(env_config={"start": -3})
    policy = make_policy(data, dueling=True, hidden_sizes=[5, 6])
    trainer = fit(policy, data, 1)
    trainer.save_checkpoint(tmp_path / "x.ckpt", weights_only=weights_only)
    assert load(tmp_path / "x.ckpt")["hyper_parameters"]["lit_rl"]["algo"] == "DQN"
    again = LitPolicy.load_from_checkpoint(tmp_path / "x.ckpt")
    assert again.updates == 0 and again.algorithm.config == policy.algorithm.config
    assert again.algorithm.spaces == policy.algorithm.spaces == data.spaces
    assert_same(dict(again.state_dict()), dict(policy.state_dict()))
    changed = LitPolicy.load_from_checkpoint(tmp_path / "x.ckpt", lr=0.5, stage=2)
    assert changed.algorithm.config.lr == 0.5 and changed.prefix == "Step2Eval"


@pytest.mark.parametrize("other", [{"hidden_sizes": [9]}, {"hidden_sizes": [8, 8]}, {"dueling": True}], ids=str)
@pytest.mark.parametrize("way", ["into", "from"])
def test_weights_of_another_network_are_refused(other, way):
    data = make_data()
    one, two = make_policy(data), make_policy(data, **other)
    target, source = (two, one) if way == "into" else (one, two)
    before = {name: x.clone() for name, x in target.state_dict().items()}
    with pytest.raises(
        UsageError, match=r"does not fit: algorithm\S+ is .* in the checkpoint and is .* in this network"
    ):
        target.load_weights(source.state_dict())
    with pytest.raises(UsageError, match="policies of the two stages do not match"):
        target.start_from(source)
    if other != {"hidden_sizes": [9]}:
        assert len(before) == len(target.state_dict())


def test_a_stage_starts_from_a_policy_with_target_and_average():
    data = make_data()
    first = make_policy(data)
    fit(first, data, 1)
    second = make_policy(data, seed=4, stage=2, average_weights=0.9)
    second.start_from(first)
    for part in (second.policy.actor, second.average.actor, second.algorithm.target):
        assert_same(dict(part.state_dict()), dict(first.policy.actor.state_dict()))
    fit(second, data, 1)
    assert second.updates == 20 and data.env_steps == 80


class Halved(DQN):
    """A user's own algorithm."""


def test_a_users_own_algorithm_is_found_again_by_its_import_path(tmp_path, monkeypatch):
    import sys

    monkeypatch.setitem(sys.modules, "my_algos", sys.modules[__name__])
    monkeypatch.setattr(Halved, "__module__", "my_algos")
    data = make_data()
    policy = make_policy(data, "my_algos:Halved")
    trainer = fit(policy, data, 1)
    trainer.save_checkpoint(tmp_path / "x.ckpt", weights_only=True)
    again = LitPolicy.load_from_checkpoint(tmp_path / "x.ckpt")
    assert type(again.algorithm) is Halved
    assert load_policy(tmp_path / "x.ckpt").algo == "my_algos:Halved"


# ---- what stops a run ----


class BadLoss(DQN):
    """Its loss is bad after ten updates."""

    bad = math.nan

    def update(self, batch, optimize, progress):
        self.number = progress.updates
        return super().update(batch, optimize, progress)

    def q_loss(self, batch):
        loss = super().q_loss(batch)
        return Loss(loss.value * self.bad, loss.metrics, loss.aux) if self.number >= 10 else loss


class InfiniteLoss(BadLoss):
    bad = math.inf


class BadMetric(DQN):
    """Reports what is no number, with weights that are."""

    def q_loss(self, batch):
        loss = super().q_loss(batch)
        return loss._replace(metrics={"loss": loss.value * math.nan})


@pytest.mark.parametrize("algo", [BadLoss, InfiniteLoss])
def test_a_bad_loss_stops_before_the_weights_are_touched(algo):
    data = make_data()
    policy = make_policy(data, algo)
    with pytest.raises(NumericsError, match=r"gradient of the q loss is \w+ in update 11, env step 24"):
        fit(policy, data, 2)
    assert policy.updates == 10 and all(torch.isfinite(p).all() for p in policy.parameters())


def test_a_metric_that_is_no_number_stops_the_run():
    data = make_data()
    with pytest.raises(NumericsError, match=r"Train/loss is nan in epoch 0, after update 20"):
        fit(make_policy(data, BadMetric), data, 2)


def test_weights_that_are_no_numbers_stop_the_run():
    class Spoiling(DQN):
        def update(self, batch, optimize, progress):
            updated = super().update(batch, optimize, progress)
            with torch.no_grad():
                next(self.policy.parameters()).view(-1)[0] = math.nan
            return updated

    data = make_data()
    with pytest.raises(NumericsError, match="weights of the q group .* after update|gradient of the q loss is NaN"):
        fit(make_policy(data, Spoiling), data, 2)


class Poisoned(Signs):
    """Shows or pays infinity at its 60th step."""

    made = 0

    def __init__(self, what="reward"):
        super().__init__()
        self.what, self.made = what, 0

    def step(self, action):
        obs, reward, *rest = super().step(action)
        self.made += 1
        if self.made == 60 and self.what == "reward":
            reward = -math.inf
        elif self.made == 60:
            obs = obs * math.nan
        return obs, reward, *rest


@pytest.mark.parametrize("what, where", [("reward", "reward -inf"), ("obs", "an observation")])
def test_bad_numbers_of_an_env_stop_the_run_and_the_last_good_checkpoint_stays(what, where, tmp_path):
    data = make_data(Poisoned, env_config={"what": what}, num_envs=1)
    policy = make_policy(data)
    with pytest.raises(NumericsError, match=rf"env 0 returned (the )?{where}.* at env step 60\b"):
        fit(policy, data, 5, [LastCheckpoint(tmp_path)], limit_val_batches=0)
    saved = load(tmp_path / "last.ckpt")
    assert saved["progress"]["updates"] == 20 and saved["epoch"] == 0
    assert all(torch.isfinite(x).all() for x in saved["state_dict"].values())


def test_bad_numbers_in_an_evaluation_stop_the_run():
    data = make_data(Poisoned, num_envs=1, episode_per_test=20, num_test_envs=1)
    with pytest.raises(NumericsError, match="evaluation episode 14 has the return -inf"):
        fit(make_policy(data), data, 1)


# ---- bad input ----


def test_bad_settings_are_one_clear_line():
    data = make_data()
    for name, near in (("gama", "gamma"), ("learning_rate", "lr, learning_starts"), ("qqq", "gamma, lr, adam_eps")):
        with pytest.raises(UsageError, match=f"^DQN has no setting {name}; nearest: {near}"):
            LitPolicy("DQN", data.spaces, **{name: 0.9})
    with pytest.raises(UsageError, match="--gamma 1.5 is out of range"):
        LitPolicy("DQN", data.spaces, gamma=1.5)
    with pytest.raises(UsageError, match="needs the environment's spaces"):
        LitPolicy("DQN")
    with pytest.raises(UsageError, match="--algo DQM is unknown; did you mean DQN"):
        LitPolicy("DQM", data.spaces)
    with pytest.raises(UsageError, match=r"Discrete action space, not Box\(1,\)"):
        LitPolicy("DQN", make_data(env_config={"start": None}).spaces)


def test_a_third_stage_is_refused():
    with pytest.raises(UsageError, match="LitPolicy has no stage 3"):
        make_policy(make_data(), stage=3)


def test_an_env_with_other_spaces_is_refused_before_the_first_step():
    policy = make_policy(make_data())
    other = make_data(env_config={"start": 1})
    with pytest.raises(UsageError, match=r"other spaces than those of Signs.*: LitPolicy\(algo, datamodule.spaces\)"):
        fit(policy, other, 1)
    assert other.env_steps == 0


def test_settings_are_kept_as_the_config_has_them():
    policy = make_policy(make_data(), lr=[[0, 1e-3], [100, 0.0]])
    assert isinstance(policy.algorithm.config, DQNConfig)
    assert policy.hparams["lit_rl"]["config"]["lr"] == [[0, 1e-3], [100, 0.0]]


def test_learning_rates_follow_the_env_steps():
    class Noting(DQN):
        def update(self, batch, optimize, progress):
            rates.append(optimize.optimizer.param_groups[0]["lr"])
            return super().update(batch, optimize, progress)

    rates = []
    data = make_data()
    fit(make_policy(data, Noting, lr=[[0, 0.8], [80, 0.0]], update_per_step=0.05), data, 2)
    assert rates == pytest.approx([0.8, 0.6, 0.4, 0.2])


@pytest.mark.slow
def test_five_lines_of_plain_lightning():
    from lit_rl import ExperienceDataModule, LitPolicy

    data = ExperienceDataModule("CartPole-v1", num_envs=8)
    policy = LitPolicy("DQN", data.spaces, lr=1e-3)
    stop = EarlyStopping("Eval/return", mode="max", check_on_train_epoch_end=False)
    trainer = pl.Trainer(max_epochs=10, callbacks=[stop], logger=False, enable_checkpointing=False)
    trainer.fit(policy, datamodule=data)
    assert policy.reported["Eval/return"] > 50
