"""``history`` and ``rewinds``: the past of a group's offsets."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from functools import partial
from typing import Any

import click

from pyspark_kafka_group.cluster.cluster import Cluster
from pyspark_kafka_group.cluster.error_remedies import TryAgainError
from pyspark_kafka_group.offsets.errors import ConfigurationError
from pyspark_kafka_group.tools.analysis.arguments import PartitionChoice, is_chosen, without
from pyspark_kafka_group.tools.analysis.documents import entry_document, incident_document
from pyspark_kafka_group.tools.analysis.group_checks import check_exist
from pyspark_kafka_group.tools.analysis.group_view import answered, view_group
from pyspark_kafka_group.tools.analysis.history import Entry, Move, changes, merged, read_history
from pyspark_kafka_group.tools.analysis.offsets_topic import OffsetsTopicHeldBackError
from pyspark_kafka_group.tools.analysis.rewinds import find_incidents
from pyspark_kafka_group.tools.command_base import (
    FAILED,
    FOUND,
    connected,
    echo,
    fail,
    interval,
    polls,
    say,
    show,
    since_option,
    topics_option,
    wide_option,
)
from pyspark_kafka_group.tools.texts import HISTORY, INCIDENTS, polled_widths, table, terminal_width


def _checked(options: dict[str, Any]) -> dict[str, Any]:
    if options["count"] is not None and options["poll"] is None:
        raise ConfigurationError("--count works with --poll only. Give both, or neither.")
    return options


@click.command()
@partial(connected, prepare=_checked)
@topics_option
@click.option(
    "--poll",
    type=interval,
    metavar="TIME",
    help="Poll the committed offsets this often, such as 10s, until Ctrl-C.",
)
@click.option("--count", type=click.IntRange(1), metavar="N", help="With --poll: stop after N polls.")
@click.option("--all", "everything", is_flag=True, help="Also repeated commits of the same offset.")
@wide_option
def history(
    *,
    inspection: Cluster,
    properties: dict[str, str],
    group: str,
    as_json: bool,
    topics: PartitionChoice,
    poll: float | None,
    count: int | None,
    everything: bool,
    wide: bool,
) -> None:
    """Show who has committed which offsets in GROUP.

    The history comes from __consumer_offsets, which is compacted: of older times only the last
    commit of each partition is left. With --json there is one object a line. If an open
    transaction hides later commits, the command ends with 2.

    If that topic cannot be read, --poll polls the committed offsets and shows what has changed
    between two polls. Earlier commits are unknown then. Of several commits between two polls only
    the last one shows.

    \b
    Examples:
      kafka-group history -b localhost:9092 orders-etl
      kafka-group history -b localhost:9092 --topics orders:0,2 --json orders-etl
      kafka-group history --profile hubs --poll 5 orders-etl
    """
    if poll is not None:
        answered(lambda: check_exist(inspection, topics))
        polled = (entry for entry in _polled(inspection, group, poll, count) if is_chosen(topics, *entry.tp))
        entries = (entry for entry in polled if everything or entry.move is not Move.SAME)
        _show_polled(group, entries, as_json, None if wide else terminal_width())
        return
    held_back: list[OffsetsTopicHeldBackError] = []
    found = _entries(inspection, properties, group, topics, held_back)
    documents = (entry_document(group, entry) for entry in (found if everything else merged(found)))
    show(documents, as_json, lambda: table(HISTORY, documents, width=None if wide else terminal_width()))
    for problem in held_back:
        fail(str(problem))


@click.command()
@connected
@topics_option
@since_option
@wide_option
def rewinds(
    *,
    inspection: Cluster,
    properties: dict[str, str],
    group: str,
    as_json: bool,
    topics: PartitionChoice,
    since_ms: int | None,
    wide: bool,
) -> None:
    """Show what has gone wrong with the offsets of GROUP.

    \b
      rewind   the offset went back; RECOVERED says when the group reached the old
               offset again
      gap      an outsider has moved the offset forth over unread records
      deleted  the offset, or the whole group, was deleted
      expired  Kafka has deleted the offset because the group was unused

    Ends with 1 if something needs attention. A rewind that has recovered does not, and neither
    does an offset that 'kafka-group reset' has set. Use --since to forget older ones.

    If an open transaction hides later commits, and the earlier ones need no attention, it ends with 2.

    \b
    Examples:
      kafka-group rewinds -b localhost:9092 orders-etl
      kafka-group rewinds --profile prod --since -1h --json orders-etl || alert
    """
    held_back: list[OffsetsTopicHeldBackError] = []
    incidents = find_incidents(_entries(inspection, properties, group, topics, held_back), since_ms=since_ms)
    documents = [incident_document(group, incident) for incident in incidents]
    width = None if wide else terminal_width()
    nothing = [] if held_back else ["Nothing found."]
    show(documents, as_json, lambda: table(INCIDENTS, documents, width=width) if documents else nothing)
    for problem in held_back:
        say(str(problem))
    if any(incident.needs_attention for incident in incidents):
        raise click.exceptions.Exit(FOUND)
    if held_back:
        raise click.exceptions.Exit(FAILED)


def _entries(
    inspection: Cluster,
    properties: dict[str, str],
    group: str,
    topics: PartitionChoice,
    held_back: list[OffsetsTopicHeldBackError],
) -> Iterator[Entry]:
    """Return the chosen history of a group as it is read, because it may have millions of commits.

    At an open transaction that does not end, the history ends early, and `held_back` gets the error.

    Raises
    ------
    UnknownGroupError
        If the group does not exist.
    ConfigurationError
        If a chosen topic or partition is not in the history, and does not exist.
    """
    known = set()
    try:
        for entry in answered(lambda: read_history(inspection, properties, group, warn=say)):
            known.add(entry.tp)
            if is_chosen(topics, *entry.tp):
                yield entry
    except OffsetsTopicHeldBackError as problem:
        held_back.append(problem)
    if not known:
        answered(lambda: view_group(inspection, group)).check_exists()
    missing = without(topics, known)
    answered(lambda: check_exist(inspection, missing))


def _polled(inspection: Cluster, group: str, interval: float, count: int | None) -> Iterator[Entry]:
    """Return the changes between polls."""
    say(
        f"polling every {interval:g} s, until Ctrl-C. Earlier commits are unknown. Of several commits between two "
        f"polls only the last one shows."
    )
    before = None
    for _ in polls(interval, count):
        try:
            view = answered(lambda: view_group(inspection, group))
        except TryAgainError as problem:
            if before is None:
                raise
            say(f"the cluster does not answer now: {problem}")
            continue
        if before is None:
            view.check_exists()
        yield from changes(before, view, time_ms=int(time.time() * 1000))
        before = view


def _show_polled(group: str, entries: Iterator[Entry], as_json: bool, width: int | None) -> None:
    """Print each change at once."""
    least = polled_widths(width)
    if not as_json:
        echo(table(HISTORY, [], least=least, width=width)[0])
    try:
        for entry in entries:
            document = entry_document(group, entry)
            line = table(HISTORY, [document], least=least, width=width)[1]
            echo(json.dumps(document) if as_json else line)
    except KeyboardInterrupt:
        raise click.exceptions.Exit(0) from None
