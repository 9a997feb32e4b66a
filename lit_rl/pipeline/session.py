"""A run whose first stage somebody steps by hand, an epoch at a time."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
from pytorch_lightning.utilities import rank_zero_warn

from lit_rl.callbacks.best import BestCheckpoint
from lit_rl.callbacks.interrupt import interruptible
from lit_rl.checkpoint import AtomicCheckpointIO, copy_atomic, load, missing_part
from lit_rl.errors import UsageError
from lit_rl.lit_policy import LitPolicy
from lit_rl.loggers.make import check_logger
from lit_rl.loggers.records import Row, read_rows
from lit_rl.pipeline.anew import going_on
from lit_rl.pipeline.ranks import Ranks
from lit_rl.pipeline.resume import Resume, newest_in, restored_from
from lit_rl.pipeline.run import make_data, open_folder, prepare_process, set_threads
from lit_rl.pipeline.settings import Settings
from lit_rl.pipeline.stage import check_resume, make_trainer, prepare
from lit_rl.serving import LoadedPolicy


class Session:
    """Stage 1 of a run: ten epochs here end with the same bits as a run of ten epochs.

    It lasts as long as epochs are asked for: limits, patience and a return to stop at do not count.

    Raises:
        UsageError: settings that cannot be used; nothing has been created.
    """

    def __init__(self, settings: Settings) -> None:
        if settings.stage2 is not None:
            raise UsageError("a second stage needs the whole run: lit_rl.train(two_steps=True, ...)")
        self.settings, self.stage = settings, settings.stage1
        prepare_process(settings.run)
        self.data = make_data(settings)
        prepared = prepare(self.stage, self.data, 1, settings.run.compile)
        self.policy: LitPolicy = prepared.policy
        set_threads(settings.run, self.policy, Ranks())
        check_logger(settings.run.logger)
        self._restored: Resume | None = None  # what the next epoch goes on from
        if settings.run.restore is not None:
            self.restore(settings.run.restore)
        if settings.run.ckpt_path is not None:
            self._take_weights(settings.run.ckpt_path, load(settings.run.ckpt_path))
            self.policy.algorithm.start_from_policy()
        self.folder = open_folder(settings)
        keeper = BestCheckpoint(self.folder / "stage1", prepared.monitor, prepared.mode)
        self.trainer: pl.Trainer = make_trainer(self.stage, self.folder, settings, 1, [keeper], None)
        self._acting: LoadedPolicy | None = None

    def train(self) -> Row:
        """Learn for one epoch and evaluate: the row of result.json."""
        self.trainer.fit_loop.max_epochs = self.epochs + 1
        self.trainer.should_stop = False
        self.policy.train()  # acting leaves it in the other mode
        path = None if self._restored is None else self._restored.path
        with interruptible(), going_on(self.folder, self._restored):
            self.trainer.fit(self.policy, datamodule=self.data, ckpt_path=path)
        self._restored = None
        return read_rows(self.folder)[-1]

    def evaluate(self) -> dict[str, float]:
        """Play the evaluation's episodes: its metrics by name."""
        with interruptible():
            self.trainer.validate(self.policy, datamodule=self.data, verbose=False)
        prefix = f"{self.policy.prefix}/"
        return {name: value for name, value in self.policy.reported.items() if name.startswith(prefix)}

    def save(self, path: str | Path | None = None) -> Path:
        """Keep everything that going on needs, by default in ``checkpoints/`` of the run's folder; before the first epoch
        the weights alone."""
        target = _path(path) if path is not None else self.folder / "checkpoints" / f"checkpoint-{self.epochs}.ckpt"
        if self._restored is not None:
            copy_atomic(self._restored.path, target)
        elif self.policy.optimize is None:
            about = {
                "hyper_parameters": dict(self.policy.hparams),
                "datamodule_hyper_parameters": dict(self.data.hparams),
            }
            AtomicCheckpointIO().save_checkpoint(about | {"state_dict": self.policy.state_dict()}, target)
        else:
            self.trainer.save_checkpoint(target, weights_only=False)
        return target

    def restore(self, path: str | Path) -> None:
        """Go on from a checkpoint: from all that :meth:`save` kept, or from the weights where it holds no more.

        Raises:
            UsageError: it cannot be read, or holds another algorithm, other networks, a second stage or what was learned
                with other settings; the policy is as it was.
        """
        path, checkpoint, problems = newest_in(_path(path))
        restored = None if missing_part(checkpoint) else restored_from(path, checkpoint, problems)
        if restored is not None:
            check_resume(self.stage, self.policy, self.data, restored)
        self._take_weights(path, checkpoint)
        for problem in problems:
            rank_zero_warn(f"{problem}; passing it over")
        self._restored = restored
        if restored is None:
            self.policy.algorithm.start_from_policy()

    def _take_weights(self, path: str | Path, checkpoint: dict[str, Any]) -> None:
        algo = checkpoint["hyper_parameters"]["lit_rl"].get("algo")
        if algo != self.stage.algo:
            raise UsageError(f"{path} holds a policy of {algo}, not of {self.stage.algo}")
        self.policy.load_weights(checkpoint["state_dict"])

    @property
    def epochs(self) -> int:
        """Epochs that were learned."""
        return self.trainer.current_epoch if self._restored is None else self._restored.epochs_ended

    @property
    def env_steps(self) -> int:
        """Env steps that were made."""
        return self.policy.env_steps if self._restored is None else self._restored.env_steps

    def acting(self) -> LoadedPolicy:
        """The policy as it stands: numpy in, numpy out; the same one at every call, since it may remember."""
        if self._acting is None:
            seed = self.settings.run.seed
            self._acting = LoadedPolicy(self.policy.best_policy, self.data.spaces, self.stage.algo, seed)
        self._acting.policy.eval()
        return self._acting

    def close(self) -> None:
        """End the environments."""
        self.data.close()


def _path(given: Any) -> Path:
    if not isinstance(given, str | os.PathLike):
        raise UsageError(f"{given!r} is not allowed: give the path of a checkpoint")
    return Path(given)
