"""Run the main command once per seed, as a real process, and print what each run reached.

    python scripts/main_job.py --seeds 0 1 2 3 4 5 6 7 8 9

Every run is ``python train.py --two_steps --seed N``. The table shows the mean return of the final test (100 episodes on
seeds that no evaluation used), the evaluations of stage 2 after its start's, its updates, and the seconds of the whole
process, imports included.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, nargs="+", default=list(range(10)))
    parser.add_argument("flags", nargs=argparse.REMAINDER, help="more flags of train.py, after --")
    args = parser.parse_args()
    tests, refined = [], []
    print("seed  test mean ± std      stage 1  stage 2's evaluations, then its updates  seconds", flush=True)
    with tempfile.TemporaryDirectory() as output:
        for seed in args.seeds:
            command = [sys.executable, str(ROOT / "train.py"), "--two_steps", "--seed", str(seed)]
            command += ["--output_dir", output, "--experiment_name", str(seed), *[f for f in args.flags if f != "--"]]
            began = time.perf_counter()
            subprocess.run(command, check=True, cwd=ROOT, stdout=subprocess.DEVNULL, env=os.environ)
            seconds = time.perf_counter() - began
            folder = Path(output) / str(seed)
            summary = json.loads((folder / "summary.json").read_text())
            rows = [json.loads(line) for line in (folder / "result.json").read_text().splitlines()]
            evaluations = [row["Step2Eval/return"] for row in rows if row["stage"] == 2]
            test = summary["test"]
            tests.append(test["return_mean"])
            refined += evaluations
            shown = " ".join(f"{score:.0f}" for score in evaluations)
            print(
                f"{seed:4}  {test['return_mean']:6.1f} ± {test['return_std']:5.1f}  "
                f"{summary['stage1']['best_score']:11.1f}  {shown}, {summary['stage2']['updates']}  {seconds:.1f}",
                flush=True,
            )
    good = sum(score >= 450 for score in refined) / len(refined)
    print(f"tests: lowest {min(tests):.1f}, mean {sum(tests) / len(tests):.1f}")
    print(f"stage 2: {len(refined)} evaluations, {good:.0%} of them >= 450, lowest {min(refined):.1f}")


if __name__ == "__main__":
    main()
