"""The commands of the README, one after the other, in short."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import pytest
from test_rollout import TINY

from lit_rl.cli import main

README = Path(__file__).parents[2] / "README.md"

QUICK = {
    "rollout": ["--episodes", "3"],
    "train": ["--max_epochs", "1", "--step_per_epoch", "20", "--episode_per_test", "2", "--test_episodes", "2"],
}
STAGE_2 = '{"algo": "PPO", "max_epochs": 1, "step_per_epoch": 128, "rollout_length": 16}'


def commands() -> list[list[str]]:
    """What the README types, in its order, with a run's name in place of the placeholders."""
    blocks = re.findall(r"^```bash\n(.*?)^```", README.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
    lines = [re.sub(r"<\w+>", "mine", line) for block in blocks for line in block.splitlines()]
    typed = [shlex.split(line, comments=True) for line in lines if line.startswith(("python train.py ", "lit-rl "))]
    return [["train", *words[2:]] if words[0] == "python" else words[1:] for words in typed]


@pytest.mark.slow
def test_every_command_of_the_readme_does_what_it_says(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my_run.yaml").write_text("lr: 1e-3\n")
    assert main(["train", "--experiment_name", "mine", "--config", json.dumps(TINY)]) == 0
    for command in commands():
        argv = command + QUICK.get(command[0], [])
        if "--step2" in argv:
            argv[argv.index("--step2") + 1] = STAGE_2
        if command[0] == "train" and "--input" not in argv:
            argv = [*command, "--print_config"]
        assert main(argv) == 0, f"{command}: {capsys.readouterr().err}"
    made = {path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*") if path.is_file()}
    assert {"data/cartpole.jsonl.gz", "output/offline/best.ckpt", "output/refined/best.ckpt"} <= made
    assert "output/mine/policy.onnx" in made and len([name for name in made if name.startswith("films/")]) == 3
