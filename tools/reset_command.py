"""``reset``: the only command that changes something, and only if it is told to."""

from __future__ import annotations

import getpass
import json
import os
import socket
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import click

from pyspark_kafka_group.offsets.cluster.error_remedies import TryAgainError
from pyspark_kafka_group.offsets.cluster.group_inspection import GroupInspection
from pyspark_kafka_group.offsets.cluster.request_errors import CommitUnclearError
from pyspark_kafka_group.offsets.errors import ConfigurationError, KafkaGroupError
from pyspark_kafka_group.offsets.reset_note import ResetNote
from pyspark_kafka_group.offsets.types import TopicPartition
from pyspark_kafka_group.tools.analysis.documents import reset_document
from pyspark_kafka_group.tools.analysis.live_group import patiently
from pyspark_kafka_group.tools.analysis.reset_plan import Change, GroupInUseError, Request, named, plan
from pyspark_kafka_group.tools.analysis.reset_target import parse_offsets, parse_target
from pyspark_kafka_group.tools.command_base import (
    FOUND,
    Wanted,
    connected,
    fail,
    print_lines,
    say,
    topics_option,
)
from pyspark_kafka_group.tools.reports import reset_report

_NO_MEMBER, _NO_GENERATION = "", -1
_JOINED = "UNKNOWN_MEMBER_ID"
"""A coordinator's answer to somebody who is no member, while there are some."""


@click.command()
@connected
@click.option("--to", metavar="WHERE", help="start, end, start+N, end-N, N, +N, -N, or @TIME.")
@click.option("--to-group", metavar="OTHER", help="Where another group is.")
@click.option("--to-file", metavar="FILE", help="What a JSON file says.")
@topics_option
@click.option("--allow-new-topics", is_flag=True, help="Also topics that the group has never committed.")
@click.option("--dry-run", is_flag=True, help="Only show what would be done: the default.")
@click.option("--execute", "--yes", "-y", is_flag=True, help="Do it.")
def reset(
    *,
    inspection: GroupInspection,
    properties: dict[str, str],
    group: str,
    as_json: bool,
    to: str | None,
    to_group: str | None,
    to_file: str | None,
    topics: Wanted,
    allow_new_topics: bool,
    dry_run: bool,
    execute: bool,
) -> None:
    """Sets the committed offsets of GROUP, which must have no members.

    Shows what it would do; with --execute it does it.  Without --topics all topics are meant that the
    group has committed.  Offsets that the log does not have become the nearest that it has.

    \b
    WHERE is
      start, end, start+10, end-10   counted from an end of the log
      1234                           an offset
      +10, -10                       counted from the committed offset
      @-1h, @-2d12h                  the first record that is younger than that
      @2026-01-31, @2026-01-31T12:00:00Z, @1769860800
                                     the first record of that time or later; UTC

    FILE has a list like [{"topic": "orders", "partition": 0, "offset": 100}].

    Each offset gets a note of who has set it, when, and where it was: queries tell it when they start,
    and so does history.  Ends with 1 if the group has members, and with 2 if anything else is wrong;
    nothing was changed then.

    \b
    Examples:
      kafka-group reset -b localhost:9092 --to @-1h orders-etl
      kafka-group reset -b localhost:9092 --to @-1h --execute orders-etl
      kafka-group reset --profile prod --to start --topics orders:0,2 orders-etl
      kafka-group reset --profile prod --to-group orders-etl-old orders-etl
    """
    del properties
    request = _request(to, to_group, to_file, topics, allow_new_topics)
    if dry_run and execute:
        raise ConfigurationError("--dry-run and --execute contradict each other. Give one of them.")
    try:
        changes = patiently(lambda: plan(inspection, group, request))
        if execute:
            _execute(inspection, group, changes)
    except GroupInUseError as problem:
        say(str(problem))
        raise click.exceptions.Exit(FOUND) from None
    for change in changes:
        if change.clamped:
            where = "before the log begins" if change.requested < change.log_start else "beyond the end of the log"
            say(f"{change.tp}: {change.requested} is {where}; {change.offset} is taken.")
    if as_json:
        print_lines([json.dumps(reset_document(group, changes, executed=execute))])
        return
    print_lines(reset_report(group, changes, executed=execute))


def _request(
    to: str | None, to_group: str | None, to_file: str | None, topics: Wanted, allow_new_topics: bool
) -> Request:
    if sum(source is not None for source in (to, to_group, to_file)) != 1:
        raise ConfigurationError("where to is not said. Give one of --to, --to-group and --to-file.")
    return Request(
        target=None if to is None else parse_target(to, now_ms=int(time.time() * 1000)),
        other_group=to_group,
        offsets=None if to_file is None else parse_offsets(_text_of(to_file), source=to_file),
        wanted=topics,
        allow_new_topics=allow_new_topics,
    )


def _text_of(file: str) -> str:
    try:
        return Path(file).read_text(encoding="utf-8")
    except OSError as problem:
        raise ConfigurationError(f"{file}: {problem.strerror or problem}. Name a file of offsets.") from None
    except UnicodeDecodeError:
        raise ConfigurationError(f"{file}: it is not a text in UTF-8. Name a file of offsets.") from None


def _execute(inspection: GroupInspection, group: str, changes: Sequence[Change]) -> None:
    """Commit, and look at what is committed then: an answer may be lost, and a part may be refused."""
    by, now_ms = _who(), int(time.time() * 1000)
    offsets = {
        change.tp: (change.offset, change.leader_epoch, ResetNote(by, now_ms, change.previous).encode())
        for change in changes
    }
    problem, refused = "", {}
    try:
        refused = inspection.commit(group, _NO_MEMBER, _NO_GENERATION, None, offsets)
    except (CommitUnclearError, TryAgainError, KafkaGroupError) as failure:
        problem = str(failure)
    if not problem and not refused:
        return
    found = patiently(lambda: inspection.committed(group, [*offsets], require_stable=False)).found
    undone = [tp for tp, (_, _, note) in offsets.items() if tp not in found or found[tp].metadata != note]
    if not undone:
        return
    if len(undone) == len(offsets) and {*refused.values()} == {_JOINED}:
        raise GroupInUseError(group, inspection.describe_group(group))
    fail(_half_done(undone, len(offsets), problem, refused))


def _half_done(
    undone: Sequence[TopicPartition], count: int, problem: str, refused: Mapping[TopicPartition, str]
) -> str:
    why = problem or ", ".join(sorted({*refused.values()}))
    if len(undone) == count:
        return f"nothing was changed: {why}"
    return f"{count - len(undone)} of {count} offsets were set, but not {named(undone)}: {why}. Look, and try again."


def _who() -> str:
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # in a container the user may have no name
        user = f"user {os.getuid()}"
    return f"{user}@{socket.gethostname()}"
