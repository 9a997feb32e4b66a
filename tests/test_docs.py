"""The pages for people: links lead somewhere, both READMEs say the same, and what they list is what there is."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from lit_rl.algorithms import MODULES

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
