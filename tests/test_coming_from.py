"""The pages for people who come from other libraries: every line of their tables does what it says."""

from __future__ import annotations

import json
import re
import shlex
import sys
from pathlib import Path

import pytest
from own_nets import Widened
from test_rollout import TINY

from lit_rl.cli import main

DOCS = Path(__file__).parents[1] / "docs"
CODE = re.compile(r"`([^`]+)`")
ROW = re.compile(r"^\| (.+?) \| (.+) \|$")
ALGORITHMS = ("DQN", "PPO", "SAC", "TD3")


def lines(page: str) -> list[tuple[str, str]]:
    """Theirs and ours of every row in the page's tables."""
    rows = []
    for line in (DOCS / page).read_text().splitlines():
        match = ROW.match(line.replace("\\|", "¦"))
        if match and match[2] != "here" and not match[1].startswith("---"):
            rows.append((match[1], match[2]))
    return rows


def flags(page: str) -> list[str]:
    return [code for _, ours in lines(page) for code in CODE.findall(ours)[:1] if code.startswith("--")]


def commands(page: str) -> list[str]:
    return [code for _, ours in lines(page) for code in CODE.findall(ours)[:1] if code.startswith("lit-rl")]


def python(page: str) -> list[str]:
    found = [code for _, ours in lines(page) for code in CODE.findall(ours)[:1]]
    return [code for code in found if not code.startswith(("--", "lit-rl"))]


@pytest.fixture
def here(tmp_path, monkeypatch):
    """An empty folder to work in."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, "my_nets", type("my_nets", (), {"MyNet": Widened}))
    return tmp_path


@pytest.mark.parametrize(
    ("page", "line"),
    [(page, line) for page in ("from_sb3.md", "from_tianshou.md", "from_rllib.md") for line in flags(page)],
)
def test_every_flag(page, line, here, capsys):
    argv = shlex.split(line)
    env = {"SAC": "Pendulum-v1", "TD3": "Pendulum-v1", "DDPG": "Pendulum-v1"}
    algo = argv[argv.index("--algo") + 1] if "--algo" in argv else "DQN"
    given = ["--tuned", "false", "--env", env.get(algo, "CartPole-v1")]
    assert main(["train", "--print_config", *given, *argv]) == 0
    assert capsys.readouterr().out != ""


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A folder that holds a run named mine."""
    folder = tmp_path_factory.mktemp("runs")
    argv = ["train", "--output_dir", str(folder / "output"), "--experiment_name", "mine", "--config", json.dumps(TINY)]
    assert main(argv) == 0
    return folder


@pytest.mark.parametrize(
    ("page", "line"),
    [(page, line) for page in ("from_sb3.md", "from_rllib.md") for line in commands(page)],
)
def test_every_command(page, line, run, monkeypatch, capsys):
    monkeypatch.chdir(run)
    argv = shlex.split(line)[1:]
    if argv[0] == "train" and "--help" not in argv:
        argv.append("--print_config")
    assert main(argv) == 0


@pytest.mark.parametrize("page", ["from_sb3.md", "from_tianshou.md", "from_rllib.md"])
def test_every_line_of_python(page, here):
    found: dict[str, object] = {}
    for line in python(page):
        if line in found or not re.search(r"[ (.=]", line):
            continue  # a name of the big table, which tests/compat/test_rllib.py goes through
        exec(line, found)


def test_the_hooks_of_the_page_measure_and_change_a_run(here):
    import lit_rl

    (code,) = re.findall(r"```python\n(.*?)```", (DOCS / "hooks.md").read_text(), re.DOTALL)
    found: dict[str, type] = {}
    exec(code, found)
    lit_rl.train(hooks=found["Lengths"], config=TINY, output_dir="out", experiment_name="x")
    row = json.loads((here / "out" / "x" / "result.json").read_text())
    assert row["note"] == "mine"
    assert 0 <= row["Train/lean_min"] <= row["Train/lean_mean"] <= row["Train/lean_max"] < 1
