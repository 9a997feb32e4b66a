"""Learn from data, then refine online, over seeds: the data sets and the runs of docs/results.md's part on two stages.

``python scripts/reproduce.py two_stage`` calls it. The data are made by a policy of our own, with a seed that no run has: an
expert set, and a medium one mixed from four checkpoints of the same training. Besides the two stages there are imitation
alone, the online algorithm from scratch, and a negative control without any remedy, which must fail the check for a
collapse. Each run is a process of its own; a finished one leaves docs/results/two_stage/<set>/<run>.json.
"""

from __future__ import annotations

import hashlib
import json
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from reproduce_jobs import SEEDS, claimed
from two_stage_sets import CANDIDATES, DATA_SEED, LEVELS, SHARED, WORK, Set

ROOT = Path(__file__).resolve().parent.parent


def data_file(chosen: Set, results: Path) -> Path:
    """Where what there is to know of a set's data is kept."""
    return results / "two_stage" / chosen.name / "data.json"


def run_file(chosen: Set, results: Path, kind: str, seed: int) -> Path:
    """Where a finished run is kept."""
    return results / "two_stage" / chosen.name / f"{kind}-seed{seed}.json"


def write_json(path: Path, values: dict[str, Any]) -> None:
    """Write it in one piece."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_suffix(".part")
    part.write_text(json.dumps(values, indent=1) + "\n")
    part.replace(path)


def make_data(chosen: Set, results: Path) -> None:
    """An expert set, and a medium one mixed from four checkpoints of the same training.

    Raises:
        RuntimeError: there are runs that learned from other data.
    """
    from pytorch_lightning.callbacks import ModelCheckpoint

    import lit_rl

    work = ROOT / WORK / chosen.name
    shutil.rmtree(work, ignore_errors=True)
    kept = work / "checkpoints"
    keep = ModelCheckpoint(kept, "{epoch}", save_top_k=-1, save_weights_only=True, save_on_train_epoch_end=False)
    given = {"algo": chosen.teacher, "env": chosen.env, "seed": DATA_SEED, "callbacks": [keep]} | SHARED
    place = {"output_dir": work, "experiment_name": "teacher"}
    summary = lit_rl.train(**(given | {"episode_per_test": 10} | chosen.teacher_settings | place))
    rows = map(json.loads, (work / "teacher" / "result.json").read_text().splitlines())
    seen = {row["epoch"]: row["Train/return"] for row in rows if "Train/return" in row}  # of few episodes each
    (work / "data").mkdir()
    expert = played(Path(summary["best_path"]), chosen.episodes // 2, work / "data" / "expert.jsonl", explore=False)
    medium = []
    for i, level in enumerate(LEVELS):
        wanted = chosen.random + level * (expert - chosen.random)
        near = sorted(seen, key=lambda epoch: abs(seen[epoch] - wanted))[:CANDIDATES]
        scores = {epoch: played(kept / f"epoch={epoch}.ckpt", 20) for epoch in near}
        epoch = min(scores, key=lambda epoch: abs(scores[epoch] - wanted))
        del seen[epoch]  # the next level has another one
        path = kept / f"epoch={epoch}.ckpt"
        medium.append(played(path, chosen.episodes // len(LEVELS), work / "data" / f"medium-{i}.jsonl"))
    params = json.loads((work / "teacher" / "params.json").read_text())
    about = {"expert": expert, "medium": medium, "episodes": chosen.episodes, "commit": params["git_commit"]}
    keep_about(chosen, results, about | {"sha256": digest(work / "data")})


def keep_about(chosen: Set, results: Path, about: dict[str, Any]) -> None:
    """Keep what there is to know of new data; where there are runs, the data must be theirs, made again.

    Raises:
        RuntimeError: they are others.
    """
    path = data_file(chosen, results)
    if not any(run_file(chosen, results, kind, seed).exists() for kind in chosen.kinds for seed in SEEDS):
        write_json(path, about)
    elif json.loads(path.read_text())["sha256"] != about["sha256"]:
        shutil.rmtree(ROOT / WORK / chosen.name / "data", ignore_errors=True)
        raise RuntimeError(f"{path.parent} has runs on other data than are made now: remove the folder to begin anew")


def digest(folder: Path) -> str:
    """What the episodes of all data sets in a folder come down to, but for their headers, which name a checkpoint's path."""
    found = hashlib.sha256()
    for path in sorted(folder.glob("*.jsonl")):
        with open(path, "rb") as file:
            next(file)
            for line in file:
                found.update(line)
    return found.hexdigest()


def played(checkpoint: Path, episodes: int, out: Path | None = None, explore: bool = True) -> float:
    """The mean return of a checkpoint's policy, its episodes written to a data set where one is asked for."""
    flags = [str(checkpoint), "--episodes", str(episodes), "--num_envs", "10", "--explore", str(explore).lower()]
    if out is not None:
        flags += ["--out", str(out)]
    code = "import sys; from lit_rl.cli import main; sys.exit(main(sys.argv[1:]))"
    command = [sys.executable, "-c", code, "rollout", *flags]
    said = subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT).stdout
    (line,) = [line for line in said.splitlines() if line.startswith("return")]
    return float(line.split()[1])


def run(chosen: Set, kind: str, seed: int, results: Path, timeout: float) -> dict[str, Any]:
    """One run to its end; what is kept of it.

    Raises:
        RuntimeError: it failed.
    """
    folder = ROOT / WORK / chosen.name / f"{kind}-seed{seed}"
    shutil.rmtree(folder, ignore_errors=True)
    command = chosen.command(kind, seed)
    where = ["--output_dir", str(folder.parent), "--experiment_name", folder.name]
    process = [sys.executable, *shlex.split(command)[1:], *where]
    done = subprocess.run(process, cwd=ROOT, capture_output=True, text=True, timeout=timeout)
    if done.returncode != 0:
        said = done.stderr.strip().splitlines()
        raise RuntimeError(f"exit code {done.returncode}: {said[-1] if said else 'nothing was said'}")
    summary, params = (json.loads((folder / f"{name}.json").read_text()) for name in ("summary", "params"))
    rows = [json.loads(line) for line in (folder / "result.json").read_text().splitlines()]
    kept: dict[str, Any] = {"kind": kind, "seed": seed, "command": command, "test": summary["test"]["return_mean"]}
    kept |= {"stage1": curve(rows, 1, "Eval/return"), "stage2": curve(rows, 2, "Step2Eval/return")}
    if summary["stage2"] is not None:  # the winner's curse: stage 1's best again, on episodes that did not choose it
        kept["stage1_again"] = played(Path(summary["stage1"]["best_path"]), 100, explore=False)
    kept |= {"seconds": summary["seconds"], "commit": params["git_commit"], "versions": params["versions"]}
    write_json(run_file(chosen, results, kind, seed), kept)
    return kept


def curve(rows: list[dict[str, Any]], stage: int, metric: str) -> list[list[float]]:
    """[env steps of the stage, score] of each evaluation."""
    own = [row for row in rows if row["stage"] == stage and metric in row]
    before = max((row["env_steps"] for row in rows if row["stage"] < stage), default=0)
    return [[row["env_steps"] - before, row[metric]] for row in own]


def work(sets: list[Set], seeds: list[int], results: Path, timeout: float) -> int:
    """Run what is not finished, and nobody else works on; how many runs failed."""
    failed = 0
    for chosen in sets:
        base = ROOT / WORK
        with claimed(base / f"{chosen.name}-data.lock", wait=True):
            try:
                if not (base / chosen.name / "data").exists():
                    print(f"{chosen.name}: making the data sets", flush=True)
                    make_data(chosen, results)
            except (RuntimeError, subprocess.SubprocessError) as error:
                failed += 1
                print(f"         failed: {error}", flush=True)
                continue
        for kind, seed in ((kind, seed) for seed in seeds for kind in chosen.kinds):
            path = run_file(chosen, results, kind, seed)
            with claimed(base / f"{chosen.name}-{path.stem}.lock") as free:
                if not free or path.exists():
                    continue
                print(chosen.command(kind, seed), flush=True)
                try:
                    print(f"         test {run(chosen, kind, seed, results, timeout)['test']:.1f}", flush=True)
                except (RuntimeError, subprocess.SubprocessError) as error:
                    failed += 1
                    print(f"         failed: {error}", flush=True)
    return failed
