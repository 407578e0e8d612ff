"""``history`` and ``rewinds``: what has happened to the offsets of a group."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator

import click

from pyspark_kafka_group.offsets.cluster.error_remedies import TryAgainError
from pyspark_kafka_group.offsets.cluster.group_inspection import GroupInspection
from pyspark_kafka_group.offsets.errors import ConfigurationError
from pyspark_kafka_group.tools.analysis.documents import entry_document, finding_document
from pyspark_kafka_group.tools.analysis.group_samples import changes
from pyspark_kafka_group.tools.analysis.group_view import view_group
from pyspark_kafka_group.tools.analysis.history import (
    Entry,
    Move,
    merged,
    only_partitions,
)
from pyspark_kafka_group.tools.analysis.live_group import history_of, patiently
from pyspark_kafka_group.tools.analysis.offsets_topic import read_group
from pyspark_kafka_group.tools.analysis.rewinds import find
from pyspark_kafka_group.tools.command_base import (
    FOUND,
    Interval,
    Wanted,
    connected,
    looks,
    missing,
    print_each,
    print_lines,
    say,
    topics_option,
    wide_option,
)
from pyspark_kafka_group.tools.reports import POLLED_HEAD, findings_report, history_report, polled_line


@click.command()
@connected
@topics_option
@click.option(
    "--poll",
    type=Interval(),
    metavar="SECONDS",
    help="Look at the committed offsets so often, until Ctrl-C.",
)
@click.option("--count", type=click.IntRange(1), metavar="N", help="With --poll: end after so many looks.")
@click.option("--all", "everything", is_flag=True, help="Also commits of the same offset again.")
@wide_option
def history(
    *,
    inspection: GroupInspection,
    properties: dict[str, str],
    group: str,
    as_json: bool,
    topics: Wanted,
    poll: float | None,
    count: int | None,
    everything: bool,
    wide: bool,
) -> None:
    """Shows who has committed what in GROUP.

    __consumer_offsets tells, which is compacted: of times long past only the last commit of each
    partition is left.  With --json there is one object a line.

    Where that topic cannot be read, --poll looks at the committed offsets again and again, and shows
    what has changed between two looks.  What was before is not known then, and of several commits
    between two looks only the last is seen.

    \b
    Examples:
      kafka-group history -b localhost:9092 orders-etl
      kafka-group history -b localhost:9092 --topics orders:0,2 --json orders-etl
      kafka-group history --profile hubs --poll 5 orders-etl
    """
    if poll is not None:
        polled = only_partitions(_polled(inspection, group, poll, count), topics)
        shown = polled if everything else (entry for entry in polled if entry.move is not Move.SAME)
        _print_polled(group, shown, as_json)
        return
    if count is not None:
        raise ConfigurationError("--count goes with --poll. Give both, or none.")
    found = only_partitions(_history(inspection, properties, group), topics)
    entries = found if everything else merged(found)
    documents = (entry_document(group, entry) for entry in entries)
    print_each(documents, as_json, lambda: history_report(entries, wide=wide))


@click.command()
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
    print_each(
        (finding_document(group, finding) for finding in findings),
        as_json,
        lambda: findings_report(findings, wide=wide) if findings else ["Nothing was found."],
    )
    if findings:
        raise click.exceptions.Exit(FOUND)


def _polled(inspection: GroupInspection, group: str, interval: float, count: int | None) -> Iterator[Entry]:
    """Return the changes between looks, as they are seen."""
    say(
        f"polling every {interval:g} s, until Ctrl-C: what was before is not known, and of several commits between two "
        f"looks only the last is seen."
    )
    before = None
    for number in looks(interval, count):
        try:
            view = patiently(lambda: view_group(inspection, group))
        except TryAgainError as problem:
            if before is None:
                raise
            say(f"no answer now: {problem}")
            continue
        if number == 0 and not view.exists:
            missing(group)
        yield from changes(before, view, time_ms=int(time.time() * 1000))
        before = view


def _print_polled(group: str, entries: Iterator[Entry], as_json: bool) -> None:
    """Print each step when it is seen."""
    if not as_json:
        print_lines([POLLED_HEAD])
    try:
        for entry in entries:
            print_lines([json.dumps(entry_document(group, entry)) if as_json else polled_line(entry)])
    except KeyboardInterrupt:
        raise click.exceptions.Exit(0) from None


def _history(inspection: GroupInspection, properties: dict[str, str], group: str) -> Iterator[Entry]:
    """Return the history of a group as it is read, since there may be millions of commits; end if there is none."""
    told = history_of(inspection, properties, group, say)
    empty = True
    for entry in told.entries(read_group(properties, group)):
        empty = False
        yield entry
    for logged in told.undecodable[:3]:
        say(f"a record of the group cannot be decoded, at {logged.log_offset}: {logged.record[0]}")
    if len(told.undecodable) > 3:
        say(f"nor can {len(told.undecodable) - 3} more.")
    if empty:
        missing(group)
