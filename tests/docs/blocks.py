"""The code blocks of README.md, of docs/ and of the examples' pages, and how each of them is tried.

A block is tried unless ``<!-- fragment: reason -->`` stands in the line above it.  ``tests/docs/test_blocks.py`` tries
what needs neither Spark nor a broker: options, commands, YAML.  ``integration/test_docs_blocks.py`` runs the programs.
A page whose programs have a test of their own says ``<!-- tested by integration/test_name.py -->``.
"""

from __future__ import annotations

import re
import shlex
import textwrap
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    *sorted((ROOT / "docs").glob("*.md")),
    *sorted((ROOT / "examples").glob("*/README.md")),
]

# Blocks without a language are drawings and outputs; what follows "$ kafka-group" there is tried as well.
LANGUAGES = {"", "bash", "dockerfile", "mermaid", "python", "scala", "sh", "sql", "yaml"}

_FENCE = re.compile(r"^( *)```([^\n`]*)\n(.*?)^\1```$", re.MULTILINE | re.DOTALL)
_TESTED_BY = re.compile(r"^<!-- (tested by (\S+)) -->$", re.MULTILINE)
_FRAGMENT = re.compile(r"<!-- fragment: (.+?) -->\n\Z", re.DOTALL)


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """A code block of a page."""

    page: str
    line: int
    language: str
    text: str
    fragment: str | None
    """Why it cannot be tried as it stands; None if it can."""

    @property
    def name(self) -> str:
        """Where it is, as test ids show it."""
        return f"{self.page}:{self.line}"

    @property
    def is_options(self) -> bool:
        """Whether it is a chain of ``.option(...)`` for any reader or writer."""
        return self.language == "python" and self.text.startswith(".option(")

    @property
    def is_whole(self) -> bool:
        """Whether it is a program that needs nothing from the blocks before it."""
        return self.is_program and "SparkSession.builder" in self.text

    @property
    def is_program(self) -> bool:
        """Whether it is a program that needs Spark or a broker."""
        return self.language in ("python", "sql") and not self.is_options and self.fragment is None


def blocks_of(page: Path) -> list[Block]:
    """Return the blocks of a page, in order."""
    text = page.read_text(encoding="utf-8")
    elsewhere = _TESTED_BY.search(text)
    assert elsewhere is None or (ROOT / elsewhere[2]).exists(), elsewhere
    found = []
    for fence in _FENCE.finditer(text):
        marked = _FRAGMENT.search(textwrap.dedent(text[: fence.start()].rpartition("\n\n")[2]))
        found.append(
            Block(
                page=page.relative_to(ROOT).as_posix(),
                line=text.count("\n", 0, fence.start()) + 1,
                language=fence[2].strip(),
                text=textwrap.dedent(fence[3]),
                fragment=marked[1] if marked else elsewhere and elsewhere[1],
            )
        )
    return found


BLOCKS = [block for page in PAGES for block in blocks_of(page)]


def run_by(test: str) -> list[str]:
    """Return the blocks that are marked as run by a test, which is given by its path."""
    return [block.text for block in BLOCKS if block.fragment == f"run by {test}"]


class Options(dict[str, str]):
    """What a chain of ``.option(...)`` stands behind."""

    def option(self, name: str, value: str) -> Options:
        """Set an option, as readers and writers do."""
        self[name] = value
        return self


def options_of(block: Block) -> Options:
    """Return the options of a chain."""
    found: Any = eval(f"(Options()\n{block.text})", {"Options": Options})
    assert isinstance(found, Options)
    return found


def commands_of(block: Block) -> list[list[str]]:
    """Return the commands of a shell block; of a block without language, those of ``kafka-group`` that it shows."""
    text = block.text.replace("\\\n", " ")
    if block.language == "":
        text = "\n".join(re.findall(r"^\$ (kafka-group .*)$", text, re.MULTILINE))
    commands: list[list[str]] = [[]]
    for line in text.splitlines():
        words = shlex.shlex(line, posix=True, punctuation_chars=True)
        words.whitespace_split = True
        for word in words:
            if set(word) <= set("();<>|&"):
                commands.append([])
            elif commands[-1] or not re.match(r"\w+=", word):  # not what is set for one command
                commands[-1].append(word)
        commands.append([])
    return [command for command in commands if command]
