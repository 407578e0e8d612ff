"""The commands: their options, what they ask, what they print, and how they end.

Results go to standard output, everything else to standard error.  A command ends with 0 if all is well, with 1 if it
has found what it looks for or there is no such group, with 2 if it could not find out.
"""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from functools import wraps
from typing import Any, NoReturn, TypeVar

import click

from pyspark_kafka_group.cli.connection import BOOTSTRAP_VARIABLE, open_inspection, properties_of
from pyspark_kafka_group.cli.documents import (
    Document,
    coordinator_document,
    entry_document,
    finding_document,
    group_document,
)
from pyspark_kafka_group.cli.reports import coordinator_report, findings_report, group_report, history_report
from pyspark_kafka_group.forensics.errors import OffsetsTopicUnreadableError
from pyspark_kafka_group.forensics.group_view import GroupView, view_coordinator, view_group
from pyspark_kafka_group.forensics.history import DEFAULT_RETENTION_S, Entry, History, merged, only_partitions
from pyspark_kafka_group.forensics.lag_judgement import LOOK_BACK_S, judge
from pyspark_kafka_group.forensics.lag_status import Status
from pyspark_kafka_group.forensics.offsets_topic import read_group
from pyspark_kafka_group.forensics.retention import offsets_retention_s
from pyspark_kafka_group.forensics.rewinds import find
from pyspark_kafka_group.offsets.cluster.error_remedies import TryAgainError
from pyspark_kafka_group.offsets.cluster.group_inspection import GroupInspection
from pyspark_kafka_group.offsets.errors import KafkaGroupError

FOUND, FAILED = 1, 2

_PATIENCE_S = 10.0
_PAUSE_S = 0.5
_DEBUG_VARIABLE = "KAFKA_GROUP_DEBUG"

T = TypeVar("T")
Command = Callable[..., None]
Wanted = dict[str, frozenset[int] | None]


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 80})
@click.version_option(package_name="pyspark-kafka-group", message="%(version)s")
def kafka_group() -> None:
    """Looks at Kafka consumer groups: lag, owners, and what has happened to their
    offsets.  Nothing here changes anything.

    \b
    The cluster is named by --bootstrap-server, by a --config file, by a
    --profile (~/.config/kafka-group/NAME.properties), or by one of the variables
    KAFKA_GROUP_BOOTSTRAP_SERVERS, KAFKA_GROUP_CONFIG and KAFKA_GROUP_PROFILE.
    Passwords belong into a file.

    \b
    A command ends with 0 if all is well, with 1 if it has found something or
    there is no such group, with 2 if it could not find out.
    """


def connected(command: Command) -> Command:
    """Give a command the options of the connection, what it opens with them, and an end without a traceback."""

    @click.option("-b", "--bootstrap-server", metavar="HOST:PORT", help=f"Where to begin; also {BOOTSTRAP_VARIABLE}.")
    @click.option("-c", "--config", metavar="FILE", help="Properties of the connection, Java's or librdkafka's.")
    @click.option("-p", "--profile", metavar="NAME", help="A file of properties in ~/.config/kafka-group.")
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
            _fail(str(problem))
        except TryAgainError as problem:
            _fail(f"the cluster at {properties.get('bootstrap.servers')} does not answer: {problem}")
        except (click.ClickException, click.exceptions.Exit, click.Abort, BrokenPipeError):
            raise
        except Exception as problem:
            if os.environ.get(_DEBUG_VARIABLE):
                raise
            _fail(f"a bug: {type(problem).__name__}: {problem}. {_DEBUG_VARIABLE}=1 shows where; please report it.")

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


@kafka_group.command()
@connected
@click.option("--no-status", is_flag=True, help="Do not judge the lag, which reads the offsets topic.")
@wide_option
def describe(
    *,
    inspection: GroupInspection,
    properties: dict[str, str],
    group: str,
    as_json: bool,
    no_status: bool,
    wide: bool,
) -> None:
    """Shows the members, committed offsets and lag of GROUP.

    \b
    STATUS judges the lag by the last ten commits, as LinkedIn's Burrow does:
      OK      no lag, or it falls at times
      WARN    offsets go on, but the lag never falls
      STALL   commits go on, the offset does not
      STOP    no commits any more
      REWIND  the offset went back and has not come back yet

    Ends with 1 if there is no such group, or a partition is at STALL, STOP or REWIND.

    \b
    Examples:
      kafka-group describe -b localhost:9092 orders-etl
      kafka-group describe --profile prod --json orders-etl | jq .lag
    """
    view = _patiently(lambda: view_group(inspection, group))
    if not view.exists:
        _missing(group)
    if not no_status:
        view = _judged(view, inspection, properties)
    if as_json:
        _print([json.dumps(group_document(view))])
    else:
        _print(group_report(view, wide=wide))
    if view.status is Status.ERR:
        raise click.exceptions.Exit(FOUND)


@kafka_group.command()
@connected
def coordinator(inspection: GroupInspection, properties: dict[str, str], group: str, as_json: bool) -> None:
    """Shows which broker coordinates GROUP, and why.

    The group need not exist.

    \b
    Example:
      kafka-group coordinator -b localhost:9092 orders-etl
    """
    del properties
    view = _patiently(lambda: view_coordinator(inspection, group))
    _print([json.dumps(coordinator_document(view))] if as_json else coordinator_report(view))


@kafka_group.command()
@connected
@topics_option
@click.option("--all", "everything", is_flag=True, help="Also commits of the same offset again.")
@wide_option
def history(
    *,
    inspection: GroupInspection,
    properties: dict[str, str],
    group: str,
    as_json: bool,
    topics: Wanted,
    everything: bool,
    wide: bool,
) -> None:
    """Shows who has committed what in GROUP.

    __consumer_offsets tells, which is compacted: of times long past only the last commit of each
    partition is left.  With --json there is one object a line.

    \b
    Examples:
      kafka-group history -b localhost:9092 orders-etl
      kafka-group history -b localhost:9092 --topics orders:0,2 --json orders-etl
    """
    found = only_partitions(_history(inspection, properties, group), topics)
    entries = found if everything else merged(found)
    documents = (entry_document(group, entry) for entry in entries)
    _print_each(documents, as_json, lambda: history_report(entries, wide=wide))


@kafka_group.command()
@connected
@topics_option
@wide_option
def rewinds(
    *,
    inspection: GroupInspection,
    properties: dict[str, str],
    group: str,
    as_json: bool,
    topics: Wanted,
    wide: bool,
) -> None:
    """Shows what has gone wrong with the offsets of GROUP.

    \b
      rewind   the offset went back; it is over once the old offset is reached
      gap      somebody outside of the group has moved the offset on
      deleted  somebody has deleted the offset, or the whole group
      expired  Kafka has, because nobody had used it for so long

    Ends with 1 if it has found anything.

    \b
    Examples:
      kafka-group rewinds -b localhost:9092 orders-etl
      kafka-group rewinds --profile prod --json orders-etl || alert
    """
    findings = find(only_partitions(_history(inspection, properties, group), topics))
    _print_each(
        (finding_document(group, finding) for finding in findings),
        as_json,
        lambda: findings_report(findings, wide=wide) if findings else ["Nothing was found."],
    )
    if findings:
        raise click.exceptions.Exit(FOUND)


def _history(inspection: GroupInspection, properties: dict[str, str], group: str) -> Iterator[Entry]:
    """Return the history of a group as it is read, since there may be millions of commits; end if there is none."""
    broker = _patiently(lambda: inspection.coordinator(group))
    topics = _patiently(inspection.all_topics)
    retention_s = None if broker.node_id is None else offsets_retention_s(properties, broker.node_id)
    if retention_s is None:
        retention_s = DEFAULT_RETENTION_S
        _say("the brokers do not tell offsets.retention.minutes: 7 days are assumed, to tell expired from deleted.")
    told = History({name: info.topic_id for name, info in topics.items()}, retention_s=retention_s)
    empty = True
    for entry in told.entries(read_group(properties, group)):
        empty = False
        yield entry
    for logged in told.undecodable[:3]:
        _say(f"a record of the group cannot be decoded, at {logged.log_offset}: {logged.record[0]}")
    if len(told.undecodable) > 3:
        _say(f"nor can {len(told.undecodable) - 3} more.")
    if empty:
        _missing(group)


def _judged(view: GroupView, inspection: GroupInspection, properties: dict[str, str]) -> GroupView:
    now_ms = int(time.time() * 1000)
    try:
        records = read_group(properties, view.group, since_ms=now_ms - int(LOOK_BACK_S * 1000))
        return view.judged(judge(view, records, lambda times: inspection.ends_at(times).found, now_ms=now_ms))
    except (OffsetsTopicUnreadableError, TryAgainError) as problem:
        _say(f"the lag is not judged. {problem}")
        return view


def _patiently(ask: Callable[[], T]) -> T:
    """Ask until there is an answer: a coordinator may be loading, or moving."""
    deadline = time.monotonic() + _PATIENCE_S
    while True:
        try:
            return ask()
        except TryAgainError:
            if time.monotonic() + _PAUSE_S > deadline:
                raise
        time.sleep(_PAUSE_S)


def _print(lines: Iterable[str]) -> None:
    for line in lines:
        click.echo(line)


def _print_each(documents: Iterable[Document], as_json: bool, report: Callable[[], list[str]]) -> None:
    _print((json.dumps(document) for document in documents) if as_json else report())


def _say(text: str) -> None:
    click.echo(f"kafka-group: {text}", err=True)


def _missing(group: str) -> NoReturn:
    _say(f"the cluster knows nothing of the group {group!r}. Check its name; groups that nobody uses end.")
    raise click.exceptions.Exit(FOUND)


def _fail(text: str) -> NoReturn:
    _say(text)
    raise click.exceptions.Exit(FAILED)
