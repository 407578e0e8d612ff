"""The pages and the texts of the program use the words that docs/glossary.md chooses."""

from __future__ import annotations

import ast
import re
from pathlib import Path

from tests.docs.blocks import PAGES, ROOT
from tests.packaging.packages import modules

GLOSSARY = ROOT / "docs" / "glossary.md"
_, _, SECTION = GLOSSARY.read_text(encoding="utf-8").partition("## One word for one thing")
ROWS = re.findall(r"^\| (.*) \| (.*) \|$", SECTION, re.MULTILINE)[1:]
GIVEN_UP = re.compile(rf"\b(?:{'|'.join(word for _, words in ROWS for word in words.split(', '))})\b", re.IGNORECASE)


def given_up(text: str) -> list[str]:
    """Return each place with a word that the glossary rejects."""
    line = " ".join(text.split())
    return [line[max(0, found.start() - 40) : found.end() + 40] for found in GIVEN_UP.finditer(line)]


def shown(module: Path) -> list[str]:
    """Return the texts that a module may show to a user: its string literals, without docstrings and keys."""
    nodes = list(ast.walk(ast.parse(module.read_text(encoding="utf-8"))))
    alone = {id(node.value) for node in nodes if isinstance(node, ast.Expr)}
    return [
        node.value
        for node in nodes
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in alone
    ]


def test_words_are_found() -> None:
    assert len(ROWS) >= 6
    assert given_up("The query goes\non.") == ["The query goes on."]
    assert given_up("It continues.") == []


def test_pages_use_the_words_of_the_glossary() -> None:
    pages = {page: given_up(page.read_text(encoding="utf-8")) for page in PAGES if page != GLOSSARY}
    assert {page: found for page, found in pages.items() if found} == {}


def test_the_texts_of_the_program_use_the_words_of_the_glossary() -> None:
    assert {module.name: found for module in modules() if (found := given_up("\n".join(shown(module))))} == {}
