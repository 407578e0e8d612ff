"""The index lists every page, every link works, and lists are complete."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest
import yaml

import pyspark_kafka_group.landing
import pyspark_kafka_group.metrics
import pyspark_kafka_group.stores
import pyspark_kafka_group.testing
from pyspark_kafka_group.tools.commands import kafka_group
from tests.docs.blocks import PAGES, ROOT

DOCS = ROOT / "docs"


def links(page: Path) -> list[str]:
    """Return the files that a page links to, as it names them."""
    text = re.sub(r"^( *)```.*?^\1```$", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    found = re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", text)
    return [link for link in found if not link.startswith("http")]


def test_links_lead_to_files() -> None:
    assert [(page, link) for page in PAGES for link in links(page) if not (page.parent / link).exists()] == []


def test_commands_that_a_page_names_exist() -> None:
    for page in PAGES:
        named = re.findall(r"`kafka-group\s+([a-z][a-z-]*)", page.read_text(encoding="utf-8"))
        assert set(named) <= kafka_group.commands.keys(), page


def test_the_index_lists_every_page_under_the_heading_that_it_has_in_the_navigation() -> None:
    text = (DOCS / "index.md").read_text(encoding="utf-8")
    listed = {
        heading: [link.removeprefix("../") for link in re.findall(r"\]\(([^)]+)\)", section)]
        for heading, section in re.findall(r"^## (.*)\n((?:(?!## ).*\n)*)", text, re.MULTILINE)
    }
    _, _, sections = (ROOT / "mkdocs.yml").read_text(encoding="utf-8").partition("\nnav:\n")
    nav = {name: pages for section in yaml.safe_load(sections) for name, pages in section.items()}
    nav["Start"].remove("index.md")
    assert listed == {name: [page.removeprefix("project/") for page in pages] for name, pages in nav.items()}


def test_the_page_of_the_api_has_every_public_name() -> None:
    shown = re.findall(r"^<!-- ::: pyspark_kafka_group\.(\S+) -->$", (DOCS / "api.md").read_text(), re.MULTILINE)
    public = {*pyspark_kafka_group.__all__} - {"DefaultSource", "__version__"}
    for module in (
        pyspark_kafka_group.landing,
        pyspark_kafka_group.metrics,
        pyspark_kafka_group.stores,
        pyspark_kafka_group.testing,
    ):
        public |= {f"{module.__name__.rpartition('.')[2]}.{name}" for name in module.__all__}
    assert public - {"metrics.METRICS"} <= set(shown)


def test_the_page_about_installing_names_the_extras_for_users() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"].keys()
    table = re.findall(r"^\| (`.*?) \|", (DOCS / "install.md").read_text(encoding="utf-8"), re.MULTILINE)
    named = {name for row in table for name in re.findall(r"`(\w+)`", row)}
    assert named == extras - {"demo", "bench", "wheels", "docs", "dev"}


def test_the_readme_can_be_read_in_three_minutes() -> None:
    lines = (ROOT / "README.md").read_text(encoding="utf-8").splitlines()
    assert len(lines) <= 120
    assert len(" ".join(lines).split()) <= 700
    assert len([line for line in lines if line.startswith("|")]) <= 8


LONG = {"architecture", "command-line", "compatibility", "errors", "guarantees", "options"}
"""Pages to look up something, and the guarantees."""


def words_of(page: Path) -> int:
    """Return the number of words of a page, without code and comments."""
    text = re.sub(r"^( *)```.*?^\1```$", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    return len(re.sub(r"<!--.*?-->", "", text, flags=re.DOTALL).split())


def test_a_page_answers_one_question_in_1500_words() -> None:
    long = {page.stem: words_of(page) for page in DOCS.glob("*.md") if words_of(page) > 1500}
    assert long.keys() == LONG, long


@pytest.mark.parametrize(
    ("words", "page"),
    [
        ("duplicates", "sinks"),
        ("connection refused", "symptoms"),
        ("airflow", "bookmarks"),
        ("offset reset", "options"),
        ("rebalance", "options"),
        ("notebook", "recipes"),
        ("small files", "small-files"),
    ],
)
def test_the_search_finds_the_words_of_users(words: str, page: str) -> None:
    assert words in (DOCS / f"{page}.md").read_text(encoding="utf-8").lower()
