"""The pages for people: links lead somewhere, both READMEs say the same, and the README's commands do what they say."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import pytest
from test_rollout import TINY

from lit_rl.algorithms import MODULES
from lit_rl.cli import main

ROOT = Path(__file__).parents[1]
PAGES = [path.relative_to(ROOT).as_posix() for path in sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/*.md")])]
FENCED = re.compile(r"^```.*?^```$", re.DOTALL | re.MULTILINE)
LINK = re.compile(r"\]\(([^)\s]+)\)")
LANGUAGES = ["README.md", "README.zh-CN.md"]


def read(page: str) -> str:
    return (ROOT / page).read_text(encoding="utf-8")


def prose(page: str) -> str:
    return FENCED.sub("", read(page))


def blocks(page: str) -> list[str]:
    """The code of a page, without its comments."""
    return [re.sub(r"(^|[ ]+)#.*", "", block, flags=re.MULTILINE) for block in FENCED.findall(read(page))]


def headings(page: str) -> list[tuple[str, str]]:
    """The level, as hashes, and the text of each."""
    return re.findall(r"^(#+) (.+)", prose(page), re.MULTILINE)


def links(page: str) -> list[str]:
    return LINK.findall(prose(page))


def anchors(page: str) -> set[str]:
    """What GitHub lets a link to a heading end in."""
    return {re.sub(r"[^\w\- ]", "", text.lower()).replace(" ", "-") for _, text in headings(page)}


@pytest.mark.parametrize("page", PAGES)
def test_every_relative_link_leads_somewhere(page):
    missing = []
    for link in links(page):
        if re.match(r"[a-z]+:", link):
            continue
        path, _, anchor = link.partition("#")
        target = (ROOT / page).parent / path if path else ROOT / page
        if not target.exists() or (anchor and anchor not in anchors(target.relative_to(ROOT).as_posix())):
            missing.append(link)
    assert not missing, f"{page} links to {missing}"


def test_both_readmes_have_the_same_code():
    english, chinese = (blocks(page) for page in LANGUAGES)
    assert english == chinese


def test_both_readmes_have_the_same_headings_and_links():
    english, chinese = ([level for level, _ in headings(page)] for page in LANGUAGES)
    assert english == chinese
    english, chinese = ([link for link in links(page) if link not in LANGUAGES] for page in LANGUAGES)
    assert english == chinese
    assert LANGUAGES[1] in links(LANGUAGES[0]) and LANGUAGES[0] in links(LANGUAGES[1])


@pytest.mark.parametrize("page", LANGUAGES)
def test_a_readme_names_every_page_once_and_every_algorithm(page):
    documents = [path for path in PAGES if path not in LANGUAGES]
    assert sorted(link for link in links(page) if link.endswith(".md") and link not in LANGUAGES) == documents
    in_tables = "\n".join(line.split("|")[1] for line in read(page).splitlines() if line.startswith("|"))
    assert [name for name in MODULES if not re.search(rf"\b{name}\b", in_tables, re.ASCII)] == []


@pytest.mark.parametrize("page", LANGUAGES)
def test_scores_in_a_readme_are_those_of_the_results(page):
    scores = re.findall(r"-?[\d.]+ ± [\d.]+", prose(page))
    assert [score for score in scores if score not in read("docs/results.md")] == []


def test_the_house_of_the_architecture_is_the_package():
    (house,) = re.findall(r"^lit_rl/\n(.*?)^```", read("docs/architecture.md"), re.DOTALL | re.MULTILINE)
    named = set(re.findall(r"^  (\w+)(?:/|\.py) ", house, re.MULTILINE))
    there = {
        path.stem for path in (ROOT / "lit_rl").iterdir() if path.suffix == ".py" or (path / "__init__.py").exists()
    }
    assert named == there - {"__init__"}


def commands() -> list[list[str]]:
    """What the README types, in its order, with a run's name in place of the placeholders."""
    text = re.sub(r"<\w+>", "mine", "\n".join(blocks("README.md")))
    lines = [line.strip() for line in text.splitlines()]
    found = [shlex.split(line) for line in lines if line.startswith(("python train.py ", "lit-rl "))]
    return [["train", *words[2:]] if words[0] == "python" else words[1:] for words in found]


QUICK = {
    "rollout": ["--episodes", "3"],
    "train": ["--max_epochs", "1", "--step_per_epoch", "20", "--episode_per_test", "2", "--test_episodes", "2"],
}
STAGE_2 = '{"algo": "PPO", "max_epochs": 1, "step_per_epoch": 128, "rollout_length": 64, "num_envs": 1}'


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
