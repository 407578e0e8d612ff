"""The options of a stream, parsed and checked: :class:`Settings`; and the part that it shares with batch reads.

Which options there are says :data:`~pyspark_kafka_group.options.table.OPTIONS`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pyspark_kafka_group.cluster.properties.client_config import value_of
from pyspark_kafka_group.cluster.properties.kafka_properties import default_of
from pyspark_kafka_group.coordinator.settings import CommitMode, GroupSettings
from pyspark_kafka_group.offsets.errors import OptionError
from pyspark_kafka_group.offsets.task_ranges import TaskSizes
from pyspark_kafka_group.offsets.types import TopicPartition
from pyspark_kafka_group.options.format_settings import Formats, formats_of
from pyspark_kafka_group.options.option import ParsedOptions, check_required, parse_options
from pyspark_kafka_group.options.property_checks import check_drain_timeout, check_properties, default_drain_timeout
from pyspark_kafka_group.options.start_options import Strategy, check_limits, start_policy, strategy
from pyspark_kafka_group.options.table import IMPOSSIBLE, OPTIONS


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadSettings:
    """The options that a stream and a batch read share.

    Attributes
    ----------
    columns : tuple of str
        ``columns``, and headers if ``includeHeaders``.
    sizes : TaskSizes
        ``minRecordsPerTask``, ``maxRecordsPerPartition`` and ``minPartitions``.
    poll_timeout_s : float
        ``kafkaConsumer.pollTimeoutMs``, in seconds.
    formats : Formats or None
        What keys and values are, if not bytes.
    """

    columns: tuple[str, ...]
    sizes: TaskSizes
    poll_timeout_s: float
    formats: Formats | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings(ReadSettings):
    """All options of a stream, parsed and checked.

    Attributes
    ----------
    group : GroupSettings
        What the coordinator needs.
    max_offsets_per_trigger, min_offsets_per_trigger : int or None
        ``maxOffsetsPerTrigger`` and ``minOffsetsPerTrigger``; None is off.
    max_trigger_delay_s : float
        ``maxTriggerDelay``, in seconds.
    warm_up : bool
        ``warmUp``.
    checkpoint : Path or None
        ``checkpointLocation``.
    event_log : str or None
        ``eventLog``.
    client_id : str
        ``kafka.client.id``, the beginning of every client id of this source.
    """

    group: GroupSettings
    max_offsets_per_trigger: int | None
    min_offsets_per_trigger: int | None = None
    max_trigger_delay_s: float = 0.0
    warm_up: bool = True
    checkpoint: Path | None
    event_log: str | None
    client_id: str = field(default=default_of("client.id"))


def parse_read(options: Mapping[str, str], *, batch: bool) -> ParsedOptions:
    """Parse the options of a source, each on its own; `parse` and `parse_batch` check them together.

    Raises
    ------
    OptionError
        As `option.parse_options`; and for a ``kafka.*`` property that would break the contract.
    """
    parsed = parse_options(options, OPTIONS, batch=batch, impossible=IMPOSSIBLE)
    check_properties(parsed.properties)
    return parsed


def read_settings(parsed: ParsedOptions, read: Strategy) -> dict[str, Any]:
    """Return the fields of :class:`ReadSettings`."""
    columns: tuple[str, ...] = parsed["columns"]
    if parsed["includeHeaders"] and "headers" not in columns:
        columns = (*columns, "headers")
    min_tasks, max_records = parsed["minPartitions"], parsed["maxRecordsPerPartition"]
    min_records = parsed["minRecordsPerTask"]
    if "minRecordsPerTask" not in parsed and (min_tasks is not None or max_records is not None):
        min_records = 1  # who says how to split says nothing of sharing
    return {
        "columns": columns,
        "sizes": TaskSizes(min_records=min_records, max_records=max_records, min_tasks=min_tasks),
        "poll_timeout_s": parsed["kafkaConsumer.pollTimeoutMs"] / 1000,
        "formats": formats_of(parsed, columns, read),
    }


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
    values = parse_read(options, batch=False)
    properties = values.properties
    drain_timeout_ms: int = values["drainTimeoutMs"]
    if "drainTimeoutMs" not in values:
        drain_timeout_ms = default_drain_timeout(drain_timeout_ms, properties)
    check_drain_timeout(drain_timeout_ms, properties)
    read = strategy(values)
    check_limits(values)
    check_required(values, OPTIONS)
    group_id, prefix = values["kafka.group.id"], values["groupIdPrefix"]
    if group_id is None and prefix is None and not read.partitions:
        raise OptionError(
            "kafka.group.id",
            "it is missing.",
            "Add .option('kafka.group.id', ...), the name of the consumer group; or groupIdPrefix, for a group of the "
            "query's own.",
        )
    common = read_settings(values, read)
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
        commit_mode=_commit_mode(values, read.partitions),
        drain_timeout_s=drain_timeout_ms / 1000,
        read_committed=value_of("isolation.level", properties) == "read_committed",
        start=start,
        session_timeout_s=float(value_of("session.timeout.ms", properties)) / 1000,
    )
    return Settings(
        **common,
        group=group,
        max_offsets_per_trigger=values["maxOffsetsPerTrigger"],
        min_offsets_per_trigger=values["minOffsetsPerTrigger"],
        max_trigger_delay_s=values["maxTriggerDelay"] / 1000,
        warm_up=values["warmUp"],
        checkpoint=values["checkpointLocation"],
        event_log=values["eventLog"],
        client_id=value_of("client.id", properties),
    )


def _commit_mode(values: ParsedOptions, partitions: tuple[TopicPartition, ...]) -> CommitMode:
    """Return how to commit.  With ``assign`` plainly: there is no member whose generation could fence a transaction."""
    mode: CommitMode = values["commitMode"]
    if not partitions:
        return mode
    if mode is CommitMode.TRANSACTION and "commitMode" in values:
        raise OptionError(
            "commitMode",
            "it is transaction, and with assign there is no member whose generation could fence a transaction.",
            "Remove it, or write plain.",
        )
    return CommitMode.PLAIN


# What clients are called that need the name of a group where none is used.
_UNNAMED = "kafka-group"
