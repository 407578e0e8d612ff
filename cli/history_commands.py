"""``history`` and ``rewinds``: what has happened to the offsets of a group."""

from __future__ import annotations

from collections.abc import Iterator

import click

from pyspark_kafka_group.cli.command_base import (
    FOUND,
    Wanted,
    connected,
    missing,
    patiently,
    print_each,
    say,
    topics_option,
    wide_option,
)
from pyspark_kafka_group.cli.documents import entry_document, finding_document
from pyspark_kafka_group.cli.reports import findings_report, history_report
from pyspark_kafka_group.forensics.history import DEFAULT_RETENTION_S, Entry, History, merged, only_partitions
from pyspark_kafka_group.forensics.offsets_topic import read_group
from pyspark_kafka_group.forensics.retention import offsets_retention_s
from pyspark_kafka_group.forensics.rewinds import find
from pyspark_kafka_group.offsets.cluster.group_inspection import GroupInspection


@click.command()
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


def _history(inspection: GroupInspection, properties: dict[str, str], group: str) -> Iterator[Entry]:
    """Return the history of a group as it is read, since there may be millions of commits; end if there is none."""
    broker = patiently(lambda: inspection.coordinator(group))
    topics = patiently(inspection.all_topics)
    retention_s = None if broker.node_id is None else offsets_retention_s(properties, broker.node_id)
    if retention_s is None:
        retention_s = DEFAULT_RETENTION_S
        say("the brokers do not tell offsets.retention.minutes: 7 days are assumed, to tell expired from deleted.")
    told = History({name: info.topic_id for name, info in topics.items()}, retention_s=retention_s)
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
