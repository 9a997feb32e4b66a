"""Learn from data, refine online: what docs/two_stages.md promises, measured over seeds.

    python scripts/two_stage.py cartpole --data            # the data sets: an expert's, and a medium one of four checkpoints
    python scripts/two_stage.py cartpole --seeds 0 1 2 3 4 # what is missing of its runs, one after another
    python scripts/two_stage.py cartpole --table           # what the finished ones say

The data are made by a policy of our own, with a seed that no run has; a medium set has about half of the expert's return
above that of random actions. Runs are processes of their own; a finished one leaves docs/results/two_stage/<set>/<run>.json
and is skipped from then on. Besides the two stages there are the online algorithm from scratch (how many env steps does it
need?), imitation alone, and a negative control without any remedy, which must fail the check for a collapse.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "docs" / "results" / "two_stage"
DATA_SEED = 100  # of the policy that makes the data
LEVELS = (0.2, 0.4, 0.6, 0.8)  # of the expert's return above random that the medium set's checkpoints have
CANDIDATES = 3  # checkpoints played to find the one nearest to a level
NO_REMEDY = {"anchor": 0.0, "critic_warmup": 0, "offline_fraction": 0.0, "average_weights_2": None}


@dataclass(frozen=True)
class Set:
    """An environment, the algorithm that makes its data and the online one that refines, and what is measured there."""

    env: str
    teacher: str  # makes the data
    imitators: tuple[str, ...]  # the last one is compared with the first, and refined
    online: str
    solved: float
    random: float  # mean return of random actions
    episodes: int  # of a data set
    teacher_settings: dict[str, Any] = field(default_factory=dict)
    offline: dict[str, Any] = field(default_factory=dict)  # of stage 1
    refined: dict[str, Any] = field(default_factory=dict)  # of stage 2
    control: dict[str, Any] = field(default_factory=dict)  # of stage 2, besides NO_REMEDY
    scratch: dict[str, Any] = field(default_factory=dict)


SETS = {
    "cartpole": Set(
        "CartPole-v1",
        "PPO",
        ("BC", "MARWIL"),
        "PPO",
        solved=475.0,
        random=22.0,
        episodes=200,
        teacher_settings={"step_per_epoch": 1536, "max_epochs": 64},
        offline={"step_per_epoch": 500, "max_epochs": 12, "tuned": False},
        refined={"step_per_epoch": 1024, "rollout_length": 1024, "max_epochs": 16},
        control={"lr": 1e-3, "entropy_coeff": 0.01},
        scratch={"step_per_epoch": 1024, "rollout_length": 1024, "max_epochs": 40, "tuned": False},
    ),
    "pendulum": Set(
        "Pendulum-v1",
        "SAC",
        ("BC", "IQL"),
        "SAC",
        solved=-200.0,
        random=-1230.0,
        episodes=200,
        teacher_settings={"step_per_epoch": 500, "max_epochs": 30},
        offline={"step_per_epoch": 500, "max_epochs": 10},
        refined={"step_per_epoch": 250, "steps_per_iteration": 250, "max_epochs": 20},
        control={"lr": 1e-3, "alpha": 1.0, "learning_starts": 0, "random_steps": 0},
        scratch={"step_per_epoch": 250, "steps_per_iteration": 250, "max_epochs": 80},
    ),
    "lunarlander": Set(
        "LunarLander-v3",
        "DQN",
        ("BC", "CQL"),
        "DQN",
        solved=200.0,
        random=-180.0,
        episodes=400,
        teacher_settings={"step_per_epoch": 5000, "max_epochs": 40},
        offline={"step_per_epoch": 2000, "max_epochs": 15},
        refined={"step_per_epoch": 2000, "steps_per_iteration": 500, "max_epochs": 20},
        control={"lr": 6.3e-4, "epsilon": [[0, 1.0], [10_000, 0.1]], "learning_starts": 0},
        scratch={"step_per_epoch": 2000, "steps_per_iteration": 500, "max_epochs": 100},
    ),
}
SHARED: dict[str, Any] = {"enable_progress_bar": False, "logger": "false", "test_episodes": 100, "episode_per_test": 30}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("set", choices=SETS)
    parser.add_argument("--data", action="store_true", help="make the data sets")
    parser.add_argument("--table", action="store_true", help="print what the finished runs say")
    parser.add_argument("--seeds", type=int, nargs="*", default=[], help="seeds to run")
    parser.add_argument("--only", nargs="*", help="kinds of runs: " + ", ".join(kinds(SETS["cartpole"])))
    parser.add_argument("--work", type=Path, default=ROOT / "output" / "two_stage", help="folder for data and runs")
    parser.add_argument("--one", help=argparse.SUPPRESS)  # a run of its own, in a process of its own
    given = parser.parse_args()
    chosen, work = SETS[given.set], given.work / given.set
    if given.one is not None:
        run_one(given.set, given.one, given.seeds[0], work)
        return
    if given.data:
        make_data(chosen, work)
    for seed in given.seeds:
        for kind in given.only or kinds(chosen):
            if not result_path(given.set, kind, seed).exists():
                command = [sys.executable, __file__, given.set, "--work", str(given.work), "--one", kind]
                print(given.set, kind, seed, flush=True)
                subprocess.run([*command, "--seeds", str(seed)], check=True, cwd=ROOT)
    if given.table:
        print(table(given.set))


# ---- the data ----


def make_data(chosen: Set, work: Path) -> None:
    """An expert set, and a medium one mixed from four checkpoints of the same run."""
    from pytorch_lightning.callbacks import ModelCheckpoint

    import lit_rl

    kept = work / "checkpoints"
    keep = ModelCheckpoint(kept, "{epoch}", save_top_k=-1, save_weights_only=True, save_on_train_epoch_end=False)
    given = {
        "algo": chosen.teacher,
        "env": chosen.env,
        "seed": DATA_SEED,
        "callbacks": [keep],
    } | chosen.teacher_settings
    place = {"output_dir": work, "experiment_name": "teacher"}
    summary = lit_rl.train(**(SHARED | {"episode_per_test": 10} | given | place))
    rows = map(json.loads, (work / "teacher" / "result.json").read_text().splitlines())
    seen = {row["epoch"]: row["Train/return"] for row in rows if "Train/return" in row}  # of few episodes each
    best = Path(summary["best_path"])
    (work / "data").mkdir(parents=True, exist_ok=True)
    expert = explored_return(best, chosen.episodes // 2, work / "data" / "expert.jsonl", explore=False)
    print(f"expert: {expert:.1f}")
    for i, level in enumerate(LEVELS):
        wanted = chosen.random + level * (expert - chosen.random)
        near = [
            kept / f"epoch={epoch}.ckpt" for epoch in sorted(seen, key=lambda e: abs(seen[e] - wanted))[:CANDIDATES]
        ]
        path = min(near, key=lambda path: abs(explored_return(path, 20, None) - wanted))
        target = work / "data" / f"medium-{i}.jsonl"
        found = explored_return(path, chosen.episodes // len(LEVELS), target)
        print(f"medium {i}: {path.name} {found:.1f}, wanted {wanted:.1f}")


def explored_return(path: Path, episodes: int, out: Path | None, explore: bool = True) -> float:
    """The mean return of a checkpoint's policy, written to a data set where one is asked for."""
    flags = [str(path), "--episodes", str(episodes), "--num_envs", "10", "--explore", str(explore).lower()]
    if out is not None:
        out.unlink(missing_ok=True)
        flags += ["--out", str(out)]
    code = "import sys; from lit_rl.cli import main; sys.exit(main(sys.argv[1:]))"
    command = [sys.executable, "-c", code, "rollout", *flags]
    said = subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT).stdout
    (line,) = [line for line in said.splitlines() if line.startswith("return")]
    return float(line.split()[1])


# ---- the runs ----


def kinds(chosen: Set) -> list[str]:
    """What is run with each seed."""
    imitation = [f"{algo}-{data}" for data in ("expert", "medium") for algo in chosen.imitators]
    return [*imitation, "two-stage", "control", "scratch"]


def settings_of(chosen: Set, kind: str, work: Path) -> dict[str, Any]:
    """What ``lit_rl.train`` is given for a kind of run."""
    data = {"expert": "expert.jsonl", "medium": "medium-*.jsonl"}
    if kind == "scratch":
        return {"algo": chosen.online, "env": chosen.env} | chosen.scratch
    algo, _, which = (
        kind.partition("-") if kind not in ("two-stage", "control") else (chosen.imitators[-1], "", "medium")
    )
    given = {"algo": algo, "env": chosen.env, "input": str(work / "data" / data[which])} | chosen.offline
    if kind == "two-stage":
        given |= {"two_steps": True, "patience_2": 10_000, "step2": {"algo": chosen.online} | chosen.refined}
    if kind == "control":
        given |= NO_REMEDY | {"two_steps": True, "patience_2": 10_000}
        given["step2"] = {"algo": chosen.online} | chosen.refined | chosen.control
    return given


def run_one(name: str, kind: str, seed: int, work: Path) -> None:
    """One run to its end, and what is kept of it."""
    import lit_rl

    given = SHARED | settings_of(SETS[name], kind, work) | {"seed": seed}
    folder = work / f"{kind}-{seed}"
    summary = lit_rl.train(**given, output_dir=work, experiment_name=folder.name)
    rows = [json.loads(line) for line in (folder / "result.json").read_text().splitlines()]
    params = json.loads((folder / "params.json").read_text())
    kept: dict[str, Any] = {"kind": kind, "seed": seed, "settings": given, "test": summary["test"]["return_mean"]}
    kept |= {"stage1": curve(rows, 1, "Eval/return"), "stage2": curve(rows, 2, "Step2Eval/return")}
    if summary["stage2"] is not None:  # the winner's curse: its best again, on episodes that did not choose it
        best = Path(summary["stage1"]["best_path"])
        kept["stage1_again"] = explored_return(best, 100, None, explore=False)
    kept |= {"seconds": summary["seconds"], "git_commit": params["git_commit"], "versions": params["versions"]}
    path = result_path(name, kind, seed)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(kept, indent=1, default=str) + "\n")


def curve(rows: list[dict[str, Any]], stage: int, metric: str) -> list[list[float]]:
    """[env steps of the stage, score] of each evaluation."""
    own = [row for row in rows if row["stage"] == stage and metric in row]
    before = max((row["env_steps"] for row in rows if row["stage"] < stage), default=0)
    return [[row["env_steps"] - before, row[metric]] for row in own]


def result_path(name: str, kind: str, seed: int) -> Path:
    return RESULTS / name / f"{kind}-seed{seed}.json"


# ---- what they say ----


def solved_at(points: list[list[float]], solved: float) -> float | None:
    """Env steps at the first of two consecutive evaluations at or above the score; None for never."""
    for (steps, score), (_, after) in zip(points, points[1:], strict=False):
        if min(score, after) >= solved:
            return steps
    return None


def collapses(points: list[list[float]], start: float, solved: float, random: float) -> bool:
    """Whether two consecutive evaluations fall more than a tenth of the range under where the stage began."""
    floor = start - 0.1 * (solved - random)
    return any(max(one[1], two[1]) < floor for one, two in zip(points, points[1:], strict=False))


def table(name: str) -> str:
    """The finished runs, in Markdown."""
    chosen = SETS[name]
    lines = ["| run | seeds | test return | solved after (env steps) | collapsed |", "|---|---|---|---|---|"]
    for kind in kinds(chosen):
        runs = [json.loads(path.read_text()) for path in sorted((RESULTS / name).glob(f"{kind}-seed*.json"))]
        if not runs:
            continue
        tests = [run["test"] for run in runs]
        spread = f" ± {statistics.stdev(tests):.1f}" if len(tests) > 1 else ""
        points = [run["stage1"] if kind == "scratch" else run["stage2"] for run in runs]
        steps = [solved_at(found, chosen.solved) for found in points]
        shown = ", ".join("never" if at is None else f"{at:,.0f}" for at in steps) if any(points) else "-"
        fell = [
            collapses(run["stage2"], run["stage1_again"], chosen.solved, chosen.random) for run in runs if run["stage2"]
        ]
        lines.append(
            f"| {kind} | {len(runs)} | {statistics.mean(tests):.1f}{spread} | {shown} | "
            f"{f'{sum(fell)} of {len(fell)}' if fell else '-'} |"
        )
    return "\n".join(lines)


if __name__ == "__main__":
    main()
