"""What the options of a query say, parsed and checked: :class:`Settings`.

Keys come from Spark in lower case, so they are matched without case; errors name them as users write them.  Which
options there are says :data:`~pyspark_kafka_group.options.table.OPTIONS`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from pyspark_kafka_group.coordinator.settings import CommitMode, GroupSettings
from pyspark_kafka_group.offsets.client_config import value_of
from pyspark_kafka_group.offsets.errors import OptionError
from pyspark_kafka_group.offsets.kafka_properties import usual
from pyspark_kafka_group.offsets.types import TopicPartition
from pyspark_kafka_group.options.format_settings import Formats, formats_of
from pyspark_kafka_group.options.option import Use
from pyspark_kafka_group.options.property_checks import check_drain_timeout, check_properties, default_drain_timeout
from pyspark_kafka_group.options.start_options import check_limits, start_policy, strategy
from pyspark_kafka_group.options.table import OPTIONS
from pyspark_kafka_group.options.values import (
    check_required,
    columns_of,
    given_options,
    min_records_per_task,
    value_of_option,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """All options, parsed and checked.

    Attributes
    ----------
    group : GroupSettings
        What the coordinator needs.
    columns : tuple of str
        ``columns``, and headers if ``includeHeaders``.
    max_offsets_per_trigger, min_offsets_per_trigger : int or None
        ``maxOffsetsPerTrigger`` and ``minOffsetsPerTrigger``; None is off.
    max_trigger_delay_s : float
        ``maxTriggerDelay``, in seconds.
    min_records_per_task : int
        ``minRecordsPerTask``.
    min_partitions, max_records_per_partition : int or None
        ``minPartitions`` and ``maxRecordsPerPartition``; None is off.
    poll_timeout_s : float
        ``kafkaConsumer.pollTimeoutMs``, in seconds.
    warm_up : bool
        ``warmUp``.
    checkpoint : Path or None
        ``checkpointLocation``.
    event_log : str or None
        ``eventLog``.
    client_id : str
        ``kafka.client.id``, the beginning of every client id of this source.
    formats : Formats or None
        What keys and values are, if not bytes.
    """

    group: GroupSettings
    columns: tuple[str, ...]
    max_offsets_per_trigger: int | None
    min_offsets_per_trigger: int | None = None
    max_trigger_delay_s: float = 0.0
    min_records_per_task: int
    min_partitions: int | None = None
    max_records_per_partition: int | None = None
    poll_timeout_s: float
    warm_up: bool = True
    checkpoint: Path | None
    event_log: str | None
    client_id: str = field(default=usual("client.id"))
    formats: Formats | None = None


def parse(options: Mapping[str, str]) -> Settings:
    """Parse and check the options of ``spark.readStream.format("kafka-group")``.

    Parameters
    ----------
    options : mapping of str to str
        As Spark hands them over; case does not matter for keys.

    Raises
    ------
    OptionError
        For the first option that is missing, unknown, malformed or in conflict; it names the option and the remedy.
    """
    given = given_options(options)
    values = {option.name: value_of_option(option, given) for option in OPTIONS}
    for option in OPTIONS:
        if option.stream is Use.NO and option.name.lower() in given:
            raise OptionError(option.name, *_BATCH_ONLY)
    properties = {key.removeprefix("kafka."): value for key, value in given.items() if key.startswith("kafka.")}
    check_properties(properties)
    drain_timeout_ms: int = values["drainTimeoutMs"]
    if "draintimeoutms" not in given:
        drain_timeout_ms = default_drain_timeout(drain_timeout_ms, properties)
    check_drain_timeout(drain_timeout_ms, properties)
    read = strategy(values)
    check_limits(values["minOffsetsPerTrigger"], values["maxOffsetsPerTrigger"])
    check_required(given)
    group_id, prefix = values["kafka.group.id"], values["groupIdPrefix"]
    if group_id is None and prefix is None and not read.partitions:
        raise OptionError(
            "kafka.group.id",
            "it is missing.",
            "Add .option('kafka.group.id', ...), the name of the consumer group; or groupIdPrefix, for a group of the "
            "query's own.",
        )
    columns = columns_of(values)
    formats = formats_of(
        values, given=given, columns=columns, topics=read.topics, pattern=read.pattern, partitions=read.partitions
    )
    named = group_id or prefix or _UNNAMED
    keeps_offsets = group_id is not None or prefix is not None
    start = start_policy(values, read, group_id=named, keeps_offsets=keeps_offsets)
    group = GroupSettings(
        properties=properties,
        group_id=named,
        made_up=group_id is None,
        topics=read.topics,
        pattern=read.pattern,
        partitions=read.partitions,
        commit_mode=_commit_mode(values["commitMode"], given, read.partitions),
        drain_timeout_s=drain_timeout_ms / 1000,
        read_committed=value_of("isolation.level", properties) == "read_committed",
        start=start,
        session_timeout_s=float(value_of("session.timeout.ms", properties)) / 1000,
    )
    return Settings(
        group=group,
        columns=columns,
        max_offsets_per_trigger=values["maxOffsetsPerTrigger"],
        min_offsets_per_trigger=values["minOffsetsPerTrigger"],
        max_trigger_delay_s=values["maxTriggerDelay"] / 1000,
        min_records_per_task=min_records_per_task(values, given),
        min_partitions=values["minPartitions"],
        max_records_per_partition=values["maxRecordsPerPartition"],
        poll_timeout_s=values["kafkaConsumer.pollTimeoutMs"] / 1000,
        warm_up=values["warmUp"],
        checkpoint=values["checkpointLocation"],
        event_log=values["eventLog"],
        client_id=value_of("client.id", properties),
        formats=formats,
    )


def _commit_mode(mode: CommitMode, given: Mapping[str, str], partitions: tuple[TopicPartition, ...]) -> CommitMode:
    """Return how to commit; with ``assign`` plainly, for a group that has members refuses only that."""
    if not partitions:
        return mode
    if mode is CommitMode.TRANSACTION and "commitmode" in given:
        raise OptionError(
            "commitMode",
            "it is transaction, and with assign there is no member whose generation could fence a transaction.",
            "Remove it, or write plain.",
        )
    return CommitMode.PLAIN


# What clients are called that need the name of a group where none is used.
_UNNAMED = "kafka-group"

# What is wrong with an option of batch reads, and what to do.
_BATCH_ONLY = (
    "it is not supported with streaming: a stream has no end.",
    "Remove it; .trigger(availableNow=True) reads what there is and ends.",
)
