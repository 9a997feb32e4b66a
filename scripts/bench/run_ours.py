"""Run one workload through ``lit_rl.train``, as users do.

    python -m bench.run_ours W1 [--split] [NAME=JSON ...] OUT.json SCALE

Lightning's ``Trainer.fit`` with everything that is on by default: TensorBoard, result.json, progress.csv, params.json, full
checkpoints, the progress bar, episode statistics, checks for NaN. Only evaluation is off, which no peer does.
"""

from __future__ import annotations

import json
import resource
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import Any

import pytorch_lightning as pl

from bench.workloads import WORKLOADS


class Clock(pl.Callback):
    """Notes when the fit begins, when it is warm and when it ends, and until it is warm the sizes of the minibatches."""

    def __init__(self, warm: int, split: bool) -> None:
        self.warm, self.split = warm, split
        self.result: dict[str, Any] = {}
        self.sizes: set[int] = set()
        self.parts: dict[str, float] = defaultdict(float)

    def on_fit_start(self, trainer: pl.Trainer, pl_module: Any) -> None:
        self.began = time.perf_counter()
        self.update = pl_module.algorithm.update

        def noting(batch: Any, *rest: Any) -> Any:
            self.sizes.add(len(batch.action))
            return self.update(batch, *rest)

        pl_module.algorithm.update = noting

    def on_train_batch_end(self, trainer: pl.Trainer, pl_module: Any, *_: Any) -> None:
        if "warm" not in self.result and pl_module.env_steps >= self.warm:
            del pl_module.algorithm.update
            if self.split:
                split(self.parts, pl_module, trainer.datamodule)  # type: ignore[attr-defined]
            self.result["warm"] = time.perf_counter(), pl_module.env_steps, pl_module.updates

    def on_train_end(self, trainer: pl.Trainer, pl_module: Any) -> None:
        ended = time.perf_counter()
        warm, env_steps, updates = self.result.pop("warm")
        (size,) = self.sizes
        self.result |= {
            "rate": (pl_module.env_steps - env_steps) / (ended - warm),
            "rate_whole": pl_module.env_steps / (ended - self.began),
            "seconds": ended - self.began,
            "steps": pl_module.env_steps,
            "updates": pl_module.updates,
            "batch": size,
        }
        if self.split:
            made, learned = pl_module.env_steps - env_steps, pl_module.updates - updates
            parts = {name: 1e6 * seconds / made for name, seconds in self.parts.items()}
            parts["all"] = 1e6 * (ended - warm) / made
            self.result |= {"split": parts, "updates_per_step": learned / made}


def split(parts: dict[str, float], module: Any, data: Any) -> None:
    """Time the parts of the loop from now on, in seconds by name; each costs about 0.3 µs more for it."""
    source = data.source

    def timed(owner: Any, method: str, name: str, within: str | None = None) -> None:
        run: Callable[..., Any] = getattr(owner, method)

        def measured(*args: Any, **kwargs: Any) -> Any:
            began = time.perf_counter()
            result = run(*args, **kwargs)
            took = time.perf_counter() - began
            parts[name] += took
            if within is not None:
                parts[within] -= took
            return result

        setattr(owner, method, measured)

    def timed_generator(owner: Any, method: str, name: str) -> None:
        run: Callable[..., Iterator[Any]] = getattr(owner, method)

        def measured(*args: Any) -> Iterator[Any]:
            made = run(*args)
            while True:
                began = time.perf_counter()
                try:
                    item = next(made)
                except StopIteration:
                    return
                finally:
                    parts[name] += time.perf_counter() - began
                yield item

        setattr(owner, method, measured)

    timed(source.collector.envs, "step", "environment", "acting and keeping")
    keeping = "advantages" if hasattr(source, "split") else "replay buffer"
    timed(source.collector, "collect", "acting and keeping", keeping)
    timed(source, "collect", keeping)
    timed_generator(source, "split" if hasattr(source, "split") else "sample", "minibatches")
    timed(module.algorithm, "update", "updates")


def main() -> None:
    name, *words, out, scale = sys.argv[1], *sys.argv[2:-1], float(sys.argv[-1])
    workload = WORKLOADS[name]
    more = dict(word.split("=", 1) for word in words if "=" in word)
    settings = workload.ours | {key: json.loads(value) for key, value in more.items()}
    clock = Clock(workload.warm, "--split" in words)
    from lit_rl import train

    with tempfile.TemporaryDirectory() as output:
        train(
            tuned=False,
            limit_val_batches=0,
            limit_test_batches=0,
            max_epochs=1_000_000,
            env=workload.env,
            num_envs=workload.num_envs,
            total_timesteps=workload.length(scale),
            output_dir=output,
            callbacks=[clock],
            **settings,
        )
    clock.result["memory_mb"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    with open(out, "w") as file:
        json.dump(clock.result, file)


if __name__ == "__main__":
    main()
