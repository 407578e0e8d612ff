"""The code blocks of the pages work without changes.  `integration/test_docs_blocks.py` runs the programs."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import click
import pytest
import yaml

from pyspark_kafka_group.options.settings import parse
from pyspark_kafka_group.tools.commands import kafka_group
from tests.docs.blocks import BLOCKS, LANGUAGES, PAGES, ROOT, SERVERS, Block, blocks_of, commands_of, options_of

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
MAKEFILE = (ROOT / "Makefile").read_text(encoding="utf-8")
TARGETS = set(re.findall(r"^([a-z-]+):.*?## ", MAKEFILE, re.MULTILINE))


def of(*languages: str) -> list[Block]:
    return [block for block in BLOCKS if block.language in languages]


each = pytest.mark.parametrize


def named(block: Block) -> str:
    return block.name


def test_each_block_has_a_language_that_is_tried() -> None:
    assert [block.name for block in BLOCKS if block.language not in LANGUAGES] == []


def test_each_mark_of_a_fragment_is_directly_above_a_block() -> None:
    for page in PAGES:
        marks = re.findall(r"^ *<!-- fragment: (.+) -->$", page.read_text(encoding="utf-8"), re.MULTILINE)
        assert marks == [block.fragment for block in blocks_of(page) if block.fragment in marks], page


@each("block", [block for block in of("python") if block.is_options], ids=named)
def test_options_are_accepted(block: Block) -> None:
    given = {"kafka.bootstrap.servers": SERVERS, "kafka.group.id": "etl", "subscribe": "orders"}
    parse({**given, **options_of(block)})


def test_programs_are_valid_python() -> None:
    for block in of("python"):
        if not block.is_options:
            compile(block.text, block.name, "exec")


def test_commands_are_valid_shell() -> None:
    for block in of("sh", "bash"):
        run = subprocess.run(["bash", "-n"], input=block.text, text=True, capture_output=True, check=False)
        assert run.returncode == 0, f"{block.name}: {run.stderr}"


@each("block", of("sh", "bash", ""), ids=named)
def test_a_command_exists_with_these_options(block: Block) -> None:
    for program, *arguments in commands_of(block):
        if program == "kafka-group" and arguments:
            parse_command(arguments)
        elif program == "make":
            assert {word for word in arguments if "=" not in word} <= TARGETS
        elif program == "pip":
            assert arguments[0] == "install"
            for extras in re.findall(r"\[(.*?)\]", arguments[1]):
                assert set(extras.split(",")) <= PROJECT["optional-dependencies"].keys()
        elif program == "python" and arguments[0] == "-c":
            subprocess.run([sys.executable, *arguments], check=True, stdout=subprocess.DEVNULL)
        elif program == "python" and (script := ROOT / Path(block.page).parent / arguments[0]).exists():
            source = script.read_text(encoding="utf-8")
            assert [word for word in arguments if word.startswith("--") and f'"{word}"' not in source] == []
        elif block.fragment is None and program not in {"cd", "export", "grep", "ls", "mkdir", "sort", "tail"}:
            pytest.fail(f"{program}: this command is not tried; say why with <!-- fragment: ... -->")


@each("block", of("yaml", "json"), ids=named)
def test_yaml_is_valid(block: Block) -> None:
    assert list(yaml.safe_load_all(block.text))


def parse_command(arguments: list[str]) -> None:
    """Parse a command line of kafka-group, without running it."""
    command = kafka_group.commands[arguments[0]]
    with click.Context(command) as context:
        command.parse_args(context, arguments[1:])


def test_an_option_that_does_not_exist_is_found() -> None:
    with pytest.raises(click.UsageError):
        parse_command(["describe", "-b", "localhost:9092", "--everything", "orders-etl"])


def test_no_block_is_cut_off_on_the_site() -> None:
    """The site shows 80 columns.  A class tree and a JSON line scroll, and a diagram is drawn."""
    wide = ("docs/errors.md", "docs/events.md", "docs/state-machine.md")
    shown = [(block.name, line) for block in BLOCKS if block.page not in wide for line in block.text.splitlines()]
    assert [found for found in shown if len(found[1]) > 80] == []
