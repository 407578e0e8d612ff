"""``reset``, and the code that sets offsets: the only change that a command makes, and only with ``--execute``."""

from __future__ import annotations

import getpass
import os
import socket
import time
from collections.abc import Sequence
from functools import partial, wraps
from pathlib import Path
from typing import Any

import click

from pyspark_kafka_group.cluster.cluster import Cluster
from pyspark_kafka_group.cluster.error_remedies import TryAgainError
from pyspark_kafka_group.cluster.request_errors import CommitUnclearError
from pyspark_kafka_group.offsets.errors import ConfigurationError, KafkaGroupError
from pyspark_kafka_group.offsets.notes import ResetNote
from pyspark_kafka_group.tools.analysis.arguments import parse_offsets, parse_target
from pyspark_kafka_group.tools.analysis.documents import reset_document
from pyspark_kafka_group.tools.analysis.group_checks import GroupInUseError, listed
from pyspark_kafka_group.tools.analysis.group_view import answered
from pyspark_kafka_group.tools.analysis.reset_plan import Change, ResetRequest, plan
from pyspark_kafka_group.tools.command_base import Command, connected, fail, say, show, topics_option
from pyspark_kafka_group.tools.properties_file import without_options
from pyspark_kafka_group.tools.texts import reset_text, terminal_width

_NO_MEMBER, _NO_GENERATION = "", -1
_JOINED = "UNKNOWN_MEMBER_ID"
"""The answer of a coordinator to a client that is no member, while the group has members."""


def executed(command: Command) -> Command:
    """Add ``--dry-run`` and ``--execute`` to a command that sets offsets."""

    @click.option("--dry-run", is_flag=True, help="Only show what would change. This is the default.")
    @click.option("--execute", "--yes", "-y", is_flag=True, help="Set the offsets.")
    @wraps(command)
    def run(*, dry_run: bool, execute: bool, **options: Any) -> None:
        if dry_run and execute:
            fail("--dry-run and --execute contradict each other. Give one of them.")
        command(execute=execute, **options)

    return run


def _request_of(options: dict[str, Any]) -> dict[str, Any]:
    """Return the options of ``reset`` with the request that they mean."""
    to, to_group, to_file = (options.pop(name) for name in ("to", "to_group", "to_file"))
    if sum(source is not None for source in (to, to_group, to_file)) != 1:
        raise ConfigurationError("the new offsets are missing. Give one of --to, --to-group and --to-file.")
    request = ResetRequest(
        target=None if to is None else parse_target(to, now_ms=int(time.time() * 1000)),
        other_group=to_group,
        offsets=None if to_file is None else parse_offsets(_text_of(to_file), source=to_file),
        wanted=options.pop("topics"),
        allow_new_topics=options.pop("allow_new_topics"),
    )
    return {**options, "request": request}


@click.command()
@executed
@partial(connected, prepare=_request_of)
@click.option("--to", metavar="WHERE", help="start, end, start+N, end-N, N, +N, -N, or @TIME.")
@click.option("--to-group", metavar="OTHER", help="The offsets of another group.")
@click.option("--to-file", metavar="FILE", help="The offsets of a JSON file.")
@topics_option
@click.option("--intended", is_flag=True, help="Queries with a checkpoint accept the new offsets once.")
@click.option("--allow-new-topics", is_flag=True, help="Allow topics that the group has never committed.")
def reset(
    *,
    inspection: Cluster,
    properties: dict[str, str],
    group: str,
    as_json: bool,
    request: ResetRequest,
    intended: bool,
    execute: bool,
) -> None:
    """Set the committed offsets of GROUP. The group must have no members.

    Without --execute it only shows what would change. Without --topics it resets all topics that
    the group has committed. An offset that the log does not have becomes the nearest one that it
    has.

    \b
    WHERE is
      start, end, start+10, end-10   counted from an end of the log
      1234                           an offset
      +10, -10                       counted from the committed offset
      @-1h, @-2d12h                  the first record younger than that
      @2026-01-31, @2026-01-31T12:00:00Z, @1769860800
                                     the first record of that time or later; UTC

    FILE has a list like [{"topic": "orders", "partition": 0, "offset": 100}].

    A query with a checkpoint stops at its next start if an offset went back, with
    OffsetRewindError. With --intended it accepts that once, whatever its onOffsetRewind. A reset
    has no effect on a query with assign that runs or that has a checkpoint.

    Each offset gets a note with the user, the time, and the offset before. Queries log it at their
    start, and 'kafka-group history' shows it. Ends with 1 if the group has members or does not
    exist, and with 2 if anything else is wrong. In both cases nothing has changed, unless the
    error says that some offsets were set or may have been.

    \b
    Examples:
      kafka-group reset -b localhost:9092 --to @-1h orders-etl
      kafka-group reset -b localhost:9092 --to @-1h --execute orders-etl
      kafka-group reset --profile prod --to start --topics orders:0,2 orders-etl
      kafka-group reset --profile prod --to-group orders-etl-old orders-etl
    """
    del properties
    changes = answered(lambda: plan(inspection, group, request))
    set_offsets(inspection, group, changes, execute, as_json, intended=intended)


def set_offsets(
    inspection: Cluster,
    group: str,
    changes: Sequence[Change],
    execute: bool,
    as_json: bool,
    *,
    intended: bool = False,
) -> None:
    """Show planned changes, and make them if ``execute``."""
    if execute:
        _execute(inspection, group, changes, intended)
    for change in changes:
        if change.clamped:
            where = "before the start of the log" if change.requested < change.log_start else "after the end of the log"
            say(f"{change.tp}: {change.requested} is {where}. The new offset is {change.offset}.")
    document = reset_document(group, changes, executed=execute)
    show([document], as_json, lambda: reset_text(document, intended=intended, width=terminal_width()))


def _text_of(file: str) -> str:
    try:
        return Path(file).read_text(encoding="utf-8")
    except OSError as problem:
        raise ConfigurationError(f"{file}: {problem.strerror or problem}. Name a file of offsets.") from None
    except UnicodeDecodeError:
        raise ConfigurationError(f"{file}: it is not UTF-8 text. Name a file of offsets.") from None


def _execute(inspection: Cluster, group: str, changes: Sequence[Change], intended: bool) -> None:
    """Commit, then check the committed offsets: the answer may be lost, or the broker may refuse a part."""
    by, now_ms = _who(), int(time.time() * 1000)
    offsets = {
        change.tp: (change.offset, change.leader_epoch, ResetNote(by, now_ms, change.previous, intended).encode())
        for change in changes
    }
    problem, so_far, refused = "", "", {}
    try:
        refused = inspection.commit(group, _NO_MEMBER, _NO_GENERATION, None, offsets)
    except (CommitUnclearError, TryAgainError, KafkaGroupError) as failure:
        problem = without_options(str(failure))
        so_far = " so far" if isinstance(failure, CommitUnclearError) else ""  # a broker may be slow
    if not problem and not refused:
        return
    why = problem or ", ".join(sorted({*refused.values()}))
    try:
        found = answered(lambda: inspection.committed(group, [*offsets], require_stable=False)).found
    except (TryAgainError, KafkaGroupError) as failure:
        fail(
            f"it is unknown whether the offsets were set, some of them or none: {why}. They cannot be read either: "
            f"{without_options(str(failure))}. Look at them with 'kafka-group describe', and run the command again."
        )
    undone = [tp for tp, (_, _, note) in offsets.items() if tp not in found or found[tp].metadata != note]
    if not undone:
        return
    if len(undone) == len(offsets) and {*refused.values()} == {_JOINED}:
        raise GroupInUseError(group, inspection.describe_group(group))
    if len(undone) == len(offsets):
        fail(f"nothing was changed{so_far}: {why}")
    done = len(offsets) - len(undone)
    fail(f"{done} of {len(offsets)} offsets were set, but not {listed(undone)}: {why}. Run the command again.")


def _who() -> str:
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # in a container the user may have no name
        user = f"user {os.getuid()}"
    return f"{user}@{socket.gethostname()}"
