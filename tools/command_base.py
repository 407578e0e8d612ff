"""The shared parts of all commands: the options of the connection, exit codes, and errors without a traceback.

Results go to standard output, everything else to standard error.
"""

from __future__ import annotations

import json
import math
import os
import socket
import sys
import textwrap
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from functools import wraps
from shutil import get_terminal_size
from typing import Any, NoReturn

import click
from click.shell_completion import CompletionItem

from pyspark_kafka_group.cluster.cluster import Cluster
from pyspark_kafka_group.cluster.error_remedies import TryAgainError
from pyspark_kafka_group.cluster.properties.durations import duration_ms
from pyspark_kafka_group.offsets.errors import ConfigurationError, KafkaGroupError
from pyspark_kafka_group.tools.analysis.arguments import TIME_FORMS, PartitionChoice, parse_partitions, parse_time
from pyspark_kafka_group.tools.analysis.documents import Document
from pyspark_kafka_group.tools.analysis.group_checks import GroupInUseError, near_names
from pyspark_kafka_group.tools.analysis.group_view import UnknownGroupError
from pyspark_kafka_group.tools.connection import BOOTSTRAP_VARIABLE, open_inspection, profile_names, properties_of
from pyspark_kafka_group.tools.properties_file import without_options
from pyspark_kafka_group.tools.texts import clean

FOUND, FAILED = 1, 2

_DEBUG_VARIABLE = "KAFKA_GROUP_DEBUG"

Command = Callable[..., None]


_SHORTEST_INTERVAL_MS, _LONGEST_INTERVAL_MS = 100, 86_400_000


def interval(text: str) -> float:
    """Return the time between two polls in seconds.  A number alone is a number of seconds."""
    return _seconds(text, "from 100ms to 1d", _LONGEST_INTERVAL_MS)


def patience(text: str) -> float:
    """Return in seconds how long something may take, 100 ms or more.  A number alone is a number of seconds."""
    return _seconds(text, "of 100ms or more")


def _seconds(text: str, allowed: str, longest_ms: float = math.inf) -> float:
    found = duration_ms(text, alone="s")
    if found is None or not _SHORTEST_INTERVAL_MS <= found <= longest_ms:
        raise click.BadParameter(f"{text!r} is not a duration {allowed}. Write one such as 10s, or 10 for seconds.")
    return found / 1000


def _profiles(_context: click.Context, _option: click.Parameter, begun: str) -> list[CompletionItem]:
    """Complete the name of a profile."""
    return [CompletionItem(name) for name in profile_names(os.environ) if name.startswith(begun)]


_GROUP = click.argument("group")


def _as_given(options: dict[str, Any]) -> dict[str, Any]:
    return options


def connected(
    command: Command,
    *,
    group: Callable[[Command], Command] = _GROUP,
    prepare: Callable[[dict[str, Any]], dict[str, Any]] = _as_given,
) -> Command:
    """Add a group, the options of the connection, and the connection to a command.  Its errors have no traceback.

    Parameters
    ----------
    command : callable
        The command.
    group : callable
        Adds the argument that names the group.
    prepare : callable
        Turns the values of the other options into arguments of the command.  It runs before anything is sent, so that a
        mistake in them is found without a cluster.
    """

    @click.option("-b", "--bootstrap-server", metavar="HOST:PORT", help=f"A broker; also {BOOTSTRAP_VARIABLE}.")
    @click.option("-c", "--config", metavar="FILE", help="Properties of the connection, Java's or librdkafka's.")
    @click.option(
        "-p",
        "--profile",
        metavar="NAME",
        help="A properties file in ~/.config/kafka-group.",
        shell_complete=_profiles,
    )
    @click.option("--json", "as_json", is_flag=True, help="Print JSON.")
    @group
    @wraps(command)
    def run(bootstrap_server: str | None, config: str | None, profile: str | None, **options: Any) -> None:
        properties: dict[str, str] = {}
        try:
            options = prepare(options)
            properties = properties_of(bootstrap_server, config, profile)
            with closing(open_inspection(properties)) as inspection:
                _reach(inspection)
                try:
                    command(inspection=inspection, properties=properties, **options)
                except UnknownGroupError as problem:
                    say(f"{problem} {_near(problem.group_id, inspection)}".rstrip())
                    raise click.exceptions.Exit(FOUND) from None
        except GroupInUseError as problem:
            say(str(problem))
            raise click.exceptions.Exit(FOUND) from None
        except KafkaGroupError as problem:
            fail(without_options(str(problem)))
        except TryAgainError as problem:
            fail(f"the cluster at {properties.get('bootstrap.servers')} does not answer: {problem}")
        except (click.ClickException, click.exceptions.Exit, click.Abort, BrokenPipeError):
            raise
        except Exception as problem:
            if os.environ.get(_DEBUG_VARIABLE):
                raise
            fail(
                f"this is a bug: {type(problem).__name__}: {problem}. Please report it, with the traceback that "
                f"{_DEBUG_VARIABLE}=1 shows."
            )

    return run


def _near(group_id: str, inspection: Cluster) -> str:
    """Return a sentence with the groups whose names are near, or the command that lists all."""
    try:
        known = inspection.group_ids()
    except (TryAgainError, KafkaGroupError):  # the user may not list groups, say
        return ""
    near = near_names(group_id, known)
    return f"Did you mean {near}?" if near else "'kafka-group groups' lists the groups." if known else ""


def _reach(inspection: Cluster) -> None:
    """Ask the cluster for its brokers, so that a closed port or an unknown host is reported at once."""
    try:
        inspection.brokers_and_topics(())
    except TryAgainError as problem:
        if isinstance(problem.__context__, (ConnectionRefusedError, socket.gaierror)):
            raise


def partitions_of(_context: click.Context, _option: click.Parameter, values: Iterable[str]) -> PartitionChoice:
    """Parse the values of ``--topics``."""
    try:
        return parse_partitions(values)
    except ConfigurationError as problem:
        raise click.BadParameter(str(problem)) from None


def time_of(_context: click.Context, _option: click.Parameter, value: str | None) -> int | None:
    """Parse a time, in milliseconds since 1970."""
    time_ms = None if value is None else parse_time(value, now_ms=int(time.time() * 1000))
    if value is not None and time_ms is None:
        raise click.BadParameter(f"{value!r} is not a time. Write {TIME_FORMS}.")
    return time_ms


topics_option = click.option(
    "--topics",
    multiple=True,
    metavar="TOPIC[:N,N]",
    help="Only this topic, or these partitions of it. Repeat it for more topics.",
    callback=partitions_of,
)
since_option = click.option(
    "--since", "since_ms", metavar="TIME", callback=time_of, help="Only what happened since then, such as -1h."
)
wide_option = click.option("--wide", is_flag=True, help="Do not fit lines to the width of the terminal.")


def polls(interval: float, count: int | None) -> Iterator[int]:
    """Yield the number of each poll, and wait between two of them.

    A slow poll delays only the next one.
    """
    begin, number = time.monotonic(), 0
    while True:
        yield number
        number += 1
        if number == count:
            return
        now = time.monotonic()
        begin = max(begin + interval, now)
        time.sleep(begin - now)


def show(documents: Iterable[Document], as_json: bool, text: Callable[[], Iterable[str]]) -> None:
    """Print one JSON document a line, or the text for people."""
    for line in map(json.dumps, documents) if as_json else text():
        echo(line)


def echo(text: str | bytes, *, nl: bool = True) -> None:
    """Print a part of the result to standard output; end with 2 if that is not possible, such as on a full disk."""
    try:
        click.echo(text, nl=nl)
    except BrokenPipeError:  # the reader has seen enough
        raise
    except OSError as problem:
        sys.stdout = None  # at its end Python would try again, and end with 120
        fail(f"the output cannot be written: {problem.strerror or problem}. Check where it goes.")


def say(text: str) -> None:
    """Print a message to standard error; in a terminal, lines of its width."""
    message = f"kafka-group: {clean(' '.join(text.splitlines()))}"
    width = get_terminal_size().columns if sys.stderr.isatty() else 0
    lines = textwrap.wrap(message, width, break_long_words=False, break_on_hyphens=False) if width else [message]
    click.echo("\n".join(lines), err=True)


def fail(text: str) -> NoReturn:
    """End with 2: the command has failed."""
    say(text)
    raise click.exceptions.Exit(FAILED)
