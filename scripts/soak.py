"""Runs the main job's loop for a while and watches what the process holds: memory, files, threads, children.

Usage: python scripts/soak.py --minutes 20

DQN on CartPole-v1 with its tuned settings, an evaluation and a full checkpoint in every epoch; only the replay buffer is
smaller, so that it is full before the warm-up ends. Each epoch prints a row; the last line compares the mean memory of the
last tenth of the epochs with that of the first tenth after the warm-up, and says whether it grew by 1% or more.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import pytorch_lightning as pl

import lit_rl

MEBI = 1 << 20


def resident() -> float:
    """MiB of memory that this process has in use."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / MEBI


def children() -> int:
    return sum(len(path.read_text().split()) for path in Path("/proc/self/task").glob("*/children"))


class Watch(pl.Callback):
    """Prints and keeps a row (minutes, MiB, open files, threads, children) after each epoch."""

    def __init__(self) -> None:
        self.began = time.monotonic()
        self.rows: list[tuple[float, float, int, int, int]] = []
        print(f"{'epoch':>6}{'minutes':>9}{'MiB':>9}{'files':>7}{'threads':>9}{'children':>10}")

    def on_train_epoch_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        if trainer.current_epoch == 0:
            return
        files, threads = (len(os.listdir(f"/proc/self/{name}")) for name in ("fd", "task"))
        row = ((time.monotonic() - self.began) / 60, resident(), files, threads, children())
        self.rows.append(row)
        minutes, mib, *counts = row
        shown = f"{trainer.current_epoch:>6}{minutes:>9.2f}{mib:>9.1f}{counts[0]:>7}{counts[1]:>9}{counts[2]:>10}"
        print(shown, flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description="Watches the memory of a long run.")
    parser.add_argument("--minutes", type=float, default=20.0, help="how long (default 20)")
    parser.add_argument("--warm_up", type=float, default=3.0, help="minutes that do not count (default 3)")
    parser.add_argument("--vector_env", default="sync", help="sync or async (default sync)")
    args = parser.parse_args()
    watch = Watch()
    settings: dict[str, Any] = {"buffer_size": 10_000, "enable_progress_bar": False, "vector_env": args.vector_env}
    settings["max_time"] = {"seconds": round(60 * args.minutes)}
    with tempfile.TemporaryDirectory() as folder:
        lit_rl.train(output_dir=folder, max_epochs=-1, callbacks=[watch], **settings)
    rows = [row for row in watch.rows if row[0] >= args.warm_up]
    if len(rows) < 4:
        print("too short to compare: give more --minutes")
        return 2
    part = max(1, len(rows) // 10)
    first, last = (sum(row[1] for row in some) / part for some in (rows[:part], rows[-part:]))
    growth = 100 * (last / first - 1)
    held = [sorted({row[i] for row in rows}) for i in (2, 3, 4)]
    print(f"memory {first:.1f} -> {last:.1f} MiB after the warm-up: {growth:+.2f}%")
    print(f"open files {held[0]}, threads {held[1]}, children {held[2]}")
    return 0 if growth < 1 else 1


if __name__ == "__main__":
    sys.exit(main())
