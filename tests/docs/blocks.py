"""The code blocks of README.md, of docs/ and of the examples' pages, for the tests that run them.

The line ``<!-- fragment: reason -->`` above a block excludes it.  ``tests/docs/test_blocks.py`` tests the blocks that
need neither Spark nor a broker: options, commands, YAML.  ``integration/test_docs_blocks.py`` runs the programs.  A
page with the line ``<!-- tested by integration/test_name.py -->`` has its own test for its programs.
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
    ROOT / "benchmarks" / "README.md",
    ROOT / "integration" / "soak" / "README.md",
    *sorted((ROOT / "examples").glob("*/README.md")),
]

# Blocks without a language are drawings and outputs.  Their lines "$ kafka-group ..." are also tested.
LANGUAGES = {"", "bash", "dockerfile", "json", "mermaid", "python", "scala", "sh", "sql", "yaml"}

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
    """Why no test can run the block without changes; None if one can."""

    @property
    def name(self) -> str:
        """The place of the block, for test ids."""
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
    """Return the texts of the blocks that the test with this path runs, according to their marks."""
    return [block.text for block in BLOCKS if block.fragment == f"run by {test}"]


class Options(dict[str, str]):
    """A reader or writer that collects the options of a chain."""

    def option(self, name: str, value: str) -> Options:
        """Set an option, as readers and writers do."""
        self[name] = value
        return self


SERVERS = "shop.servicebus.windows.net:9093"
"""The servers of examples that name none.  Tokens of Azure may go there."""


def options_of(block: Block) -> Options:
    """Return the options of a chain."""
    found: Any = eval(f"(Options()\n{block.text})", {"Options": Options})
    assert isinstance(found, Options)
    return found


def commands_of(block: Block) -> list[list[str]]:
    """Return the commands of a shell block, or the ``kafka-group`` commands in a block without a language."""
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
            elif commands[-1] or not re.match(r"\w+=", word):  # not a variable for one command
                commands[-1].append(word)
        commands.append([])
    return [command for command in commands if command]
