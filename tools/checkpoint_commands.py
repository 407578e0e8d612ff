"""``import-checkpoint`` and ``export-checkpoint``: the way from Spark's own Kafka source to a group, and back."""

from __future__ import annotations

import json
from functools import partial
from typing import Any

import click

from pyspark_kafka_group.cluster.cluster import Cluster
from pyspark_kafka_group.offsets.errors import ConfigurationError
from pyspark_kafka_group.offsets.types import Offset, TopicPartition
from pyspark_kafka_group.tools.analysis.arguments import PartitionChoice, is_chosen
from pyspark_kafka_group.tools.analysis.documents import starting_offsets_document
from pyspark_kafka_group.tools.analysis.group_checks import listed
from pyspark_kafka_group.tools.analysis.group_view import answered
from pyspark_kafka_group.tools.analysis.reset_plan import ResetRequest, plan
from pyspark_kafka_group.tools.analysis.spark_checkpoint import (
    BEGINNING,
    SparkCheckpoint,
    chosen_source,
    read_checkpoint,
    starting_offsets,
)
from pyspark_kafka_group.tools.command_base import connected, say, show, topics_option
from pyspark_kafka_group.tools.reset_command import executed, set_offsets

_group_option = click.option("--group", required=True, metavar="GROUP", help="The group that continues.")


def _read(options: dict[str, Any]) -> dict[str, Any]:
    """Return the options of ``import-checkpoint`` with what the checkpoint contains."""
    checkpoint, source = read_checkpoint(options.pop("path")), options.pop("source")
    return {**options, "checkpoint": checkpoint, "found": chosen_source(checkpoint, source)}


@click.command()
@executed
@partial(connected, group=_group_option, prepare=_read)
@click.argument("path")
@click.option("--source", metavar="N", help="The Kafka source, if the query has several.")
@topics_option
def import_checkpoint(
    *,
    inspection: Cluster,
    properties: dict[str, str],
    group: str,
    as_json: bool,
    checkpoint: SparkCheckpoint,
    found: dict[TopicPartition, Offset],
    topics: PartitionChoice,
    execute: bool,
) -> None:
    """Set offsets to where Spark's own Kafka source stopped.

    PATH is the checkpoint of the query with format("kafka"), a folder on this machine. Stop that
    query first. The group must have no members. Without --execute the command only shows what
    would change.

    The offsets are those of the last batch that the query has finished. The records of a batch
    that it has begun and not finished are read again; a line on standard error says so.
    Partitions that are not in the checkpoint start at their beginning, as with Spark's source.

    Give the new query a new checkpoint. Its batches count from 0 again, so give it a new path
    if its sink skips numbers that it has seen, as Spark's file sink does.

    Ends with 1 if the group has members, and with 2 if anything else is wrong. In both cases
    nothing has changed, unless the error says that some offsets were set or may have been.

    \b
    Examples:
      kafka-group import-checkpoint -b localhost:9092 --group orders-etl old
      kafka-group import-checkpoint -b localhost:9092 --group orders-etl -y old
    """
    del properties
    known = answered(lambda: inspection.topics({tp.topic for tp in found}))
    partitions = {TopicPartition(name, number) for name, info in known.items() for number in info.leader_epochs}
    added = sorted(tp for tp in partitions - found.keys() if is_chosen(topics, *tp))
    request = ResetRequest(
        offsets={**found, **dict.fromkeys(added, Offset(0))},
        source="The checkpoint",
        wanted=topics,
        allow_new_topics=True,
    )
    changes = answered(lambda: plan(inspection, group, request))
    beyond = [change.tp for change in changes if change.requested > change.log_end]
    if beyond:
        raise ConfigurationError(
            f"{listed(beyond)}: the offset of the checkpoint is after the end of the log. The topic was created again "
            f"or truncated, or the cluster is another one. Find out which, or leave these out with --topics."
        )
    _say_what_it_is(checkpoint)
    if added:
        say(f"{listed(added)}: not in the checkpoint. The group begins at the beginning, as Spark's own source would.")
    set_offsets(inspection, group, changes, execute, as_json)


def _say_what_it_is(checkpoint: SparkCheckpoint) -> None:
    if checkpoint.finished is None:
        say("the query has finished no batch. These are the offsets at which it began.")
    else:
        say(f"these are the offsets after batch {checkpoint.finished}, the last one that the query has finished.")
    if checkpoint.unfinished is not None:
        say(
            f"batch {checkpoint.unfinished} was begun and not finished. The group reads its records again, and the "
            f"sink may already have some of them. To avoid that, let the old query finish it: start it once more with "
            f"trigger(availableNow=True)."
        )


@click.command()
@connected
@topics_option
def export_checkpoint(
    *, inspection: Cluster, properties: dict[str, str], group: str, as_json: bool, topics: PartitionChoice
) -> None:
    """Print where Spark's own Kafka source continues.

    The output is the committed offsets of GROUP, as the value of the option startingOffsets. A query
    with format("kafka"), this option and a new checkpoint reads exactly what the group has not read.
    Stop the queries of the group first: it must have no members. The command changes nothing.

    Partitions without a committed offset get -2, the beginning of the log. A line on standard
    error names them.

    Batches of the new query count from 0 again, so give it a new path if its sink skips numbers
    that it has seen, as Spark's file sink does.

    Ends with 1 if the group has members or does not exist, and with 2 if anything else is wrong.

    \b
    Examples:
      kafka-group export-checkpoint -b localhost:9092 orders-etl
      kafka-group export-checkpoint --profile prod --topics orders orders-etl
    """
    del properties
    offsets = answered(lambda: starting_offsets(inspection, group, topics))
    new = [tp for tp, offset in offsets.items() if offset == BEGINNING]
    if new:
        say(f"{listed(new)}: the group has no offset there. Spark begins at the beginning (-2).")
    document = starting_offsets_document(group, offsets)
    show([document], as_json, lambda: [json.dumps(document["starting_offsets"], separators=(",", ":"))])
