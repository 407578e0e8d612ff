"""What all commands have: the options of the connection, exit codes, and an end without a traceback.

Results go to standard output, everything else to standard error.  A command ends with 0 if all is well, with 1 if it
has found what it looks for or there is no such group, with 2 if it could not find out.
"""

from __future__ import annotations

import json
import math
import os
import re
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from functools import wraps
from typing import Any, NoReturn, TypeVar

import click
from click.shell_completion import CompletionItem

from pyspark_kafka_group.offsets.cluster.error_remedies import TryAgainError
from pyspark_kafka_group.offsets.errors import KafkaGroupError
from pyspark_kafka_group.tools.analysis.documents import Document
from pyspark_kafka_group.tools.connection import BOOTSTRAP_VARIABLE, open_inspection, profile_names, properties_of

FOUND, FAILED = 1, 2

_DEBUG_VARIABLE = "KAFKA_GROUP_DEBUG"

T = TypeVar("T")
Command = Callable[..., None]
Wanted = dict[str, frozenset[int] | None]
"""The numbers of partitions by topic; None for all of it."""


class Interval(click.FloatRange):
    """A number of seconds between two looks."""

    def __init__(self) -> None:
        super().__init__(0.1, 86400)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Refuse what is no number: comparisons with it say nothing."""
        found = super().convert(value, param, ctx)
        if math.isnan(found):
            self.fail(f"{value!r} is not a number of seconds.", param, ctx)
        return found


def _profiles(_context: click.Context, _option: click.Parameter, begun: str) -> list[CompletionItem]:
    """Complete the name of a profile."""
    return [CompletionItem(name) for name in profile_names(os.environ) if name.startswith(begun)]


def connected(command: Command) -> Command:
    """Give a command the options of the connection, what it opens with them, and an end without a traceback."""

    @click.option("-b", "--bootstrap-server", metavar="HOST:PORT", help=f"Where to begin; also {BOOTSTRAP_VARIABLE}.")
    @click.option("-c", "--config", metavar="FILE", help="Properties of the connection, Java's or librdkafka's.")
    @click.option(
        "-p",
        "--profile",
        metavar="NAME",
        help="A file of properties in ~/.config/kafka-group.",
        shell_complete=_profiles,
    )
    @click.option("--json", "as_json", is_flag=True, help="Print JSON.")
    @click.argument("group")
    @wraps(command)
    def run(bootstrap_server: str | None, config: str | None, profile: str | None, **options: Any) -> None:
        properties: dict[str, str] = {}
        try:
            properties = properties_of(bootstrap_server, config, profile)
            with closing(open_inspection(properties)) as inspection:
                command(inspection=inspection, properties=properties, **options)
        except KafkaGroupError as problem:
            fail(str(problem))
        except TryAgainError as problem:
            fail(f"the cluster at {properties.get('bootstrap.servers')} does not answer: {problem}")
        except (click.ClickException, click.exceptions.Exit, click.Abort, BrokenPipeError):
            raise
        except Exception as problem:
            if os.environ.get(_DEBUG_VARIABLE):
                raise
            fail(f"a bug: {type(problem).__name__}: {problem}. {_DEBUG_VARIABLE}=1 shows where; please report it.")

    return run


def topics_option(command: Command) -> Command:
    """Give a command the option that chooses partitions."""
    return click.option(
        "--topics",
        multiple=True,
        metavar="TOPIC[:N,N]",
        help="Only this topic, or these partitions of it; may be repeated.",
        callback=lambda _context, _option, values: wanted_partitions(values),
    )(command)


wide_option = click.option("--wide", is_flag=True, help="Cut nothing, however long lines become.")


def wanted_partitions(values: Iterable[str]) -> Wanted:
    """Return the numbers of partitions by topic, None for all of it, from ``orders`` or ``orders:0,2``."""
    wanted: Wanted = {}
    for value in values:
        match = re.fullmatch(r"([\w.-]+)(?::(\d{1,9}(?:,\d{1,9})*))?", value, re.ASCII)
        if match is None:
            raise click.BadParameter(f"{value!r} is not like orders or orders:0,2")
        topic, numbers = match.groups()
        before = wanted.get(topic, frozenset())
        if numbers is None or before is None:
            wanted[topic] = None
        else:
            wanted[topic] = before | {int(number) for number in numbers.split(",")}
    return wanted


def looks(interval: float, count: int | None) -> Iterator[int]:
    """Number the looks, and wait between two of them; a look that takes long delays the next one, and no more."""
    begin, number = time.monotonic(), 0
    while True:
        yield number
        number += 1
        if number == count:
            return
        now = time.monotonic()
        begin = max(begin + interval, now)
        time.sleep(begin - now)


def print_lines(lines: Iterable[str]) -> None:
    """Print lines to standard output."""
    for line in lines:
        click.echo(line)


def print_each(documents: Iterable[Document], as_json: bool, report: Callable[[], list[str]]) -> None:
    """Print an object a line, or what people read."""
    print_lines((json.dumps(document) for document in documents) if as_json else report())


def say(text: str) -> None:
    """Tell people something that is no result."""
    click.echo(f"kafka-group: {text}", err=True)


def missing(group: str) -> NoReturn:
    """End, because there is no such group."""
    say(f"the cluster knows nothing of the group {group!r}. Check its name; groups that nobody uses end.")
    raise click.exceptions.Exit(FOUND)


def fail(text: str) -> NoReturn:
    """End, because it cannot be found out."""
    say(text)
    raise click.exceptions.Exit(FAILED)
