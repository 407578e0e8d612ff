"""The parsed options of a stream, :class:`Settings`, and those that it shares with batch reads.

:data:`~pyspark_kafka_group.options.table.OPTIONS` lists the options.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pyspark_kafka_group.cluster.properties.client_config import check_properties, session_timeout_ms, value_of
from pyspark_kafka_group.cluster.properties.kafka_properties import default_of
from pyspark_kafka_group.coordinator.settings import CommitMode, GroupSettings
from pyspark_kafka_group.offsets.errors import OptionError
from pyspark_kafka_group.offsets.start_inputs import StartingOffset, StartPolicy
from pyspark_kafka_group.offsets.task_ranges import TaskSizes
from pyspark_kafka_group.offsets.types import TopicPartition
from pyspark_kafka_group.options.format_settings import Formats, formats_of
from pyspark_kafka_group.options.option import ParsedOptions, Strategy, check_required, parse_options
from pyspark_kafka_group.options.parsers import GivenOffsets, StartingOffsets
from pyspark_kafka_group.options.table import DRAIN_MARGIN_MS, IMPOSSIBLE, OPTIONS

_UNNAMED = "kafka-group"
"""The group id of clients that need one although the query has no group."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadSettings:
    """The options that a stream and a batch read share.

    Attributes
    ----------
    columns : tuple of str
        The option ``columns``, and headers with ``includeHeaders``.
    sizes : TaskSizes
        The options ``minRecordsPerTask``, ``maxRecordsPerPartition`` and ``minPartitions``.
    poll_timeout_s : float
        The option ``kafkaConsumer.pollTimeoutMs``, in seconds.
    formats : Formats or None
        The formats of keys and values; None if both are bytes.
    where : str or None
        The option ``where``.
    """

    columns: tuple[str, ...]
    sizes: TaskSizes
    poll_timeout_s: float
    formats: Formats | None = None
    where: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings(ReadSettings):
    """All options of a stream, parsed and checked.

    Attributes
    ----------
    group : GroupSettings
        The settings for the coordinator.
    max_offsets_per_trigger, min_offsets_per_trigger : int or None
        The options ``maxOffsetsPerTrigger`` and ``minOffsetsPerTrigger``; None is off.
    max_trigger_delay_s : float
        The option ``maxTriggerDelay``, in seconds.
    warm_up : bool
        The option ``warmUp``.
    checkpoint : Path or None
        The option ``checkpointLocation``.
    event_log : str or None
        The option ``eventLog``.
    client_id : str
        The option ``kafka.client.id``, the beginning of every client id of this source.
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
    """Parse the options of a source, and check those that streams and batch reads share.

    Raises
    ------
    OptionError
        In the cases of `option.parse_options`.  Also if a ``kafka.*`` property would break the source's guarantees, or
        the minimum size of batches is above the maximum.
    """
    parsed = parse_options(options, OPTIONS, batch=batch, impossible=IMPOSSIBLE)
    check_properties(parsed.properties)
    least, most = parsed["minOffsetsPerTrigger"], parsed["maxOffsetsPerTrigger"]
    if least is not None and most is not None and least > most:
        raise OptionError(
            "minOffsetsPerTrigger",
            f"{least} is higher than maxOffsetsPerTrigger ({most}).",
            "Lower it, or raise maxOffsetsPerTrigger.",
        )
    return parsed


def read_settings(parsed: ParsedOptions) -> dict[str, Any]:
    """Return the fields of :class:`ReadSettings`."""
    columns: tuple[str, ...] = parsed["columns"]
    if parsed["includeHeaders"] and "headers" not in columns:
        columns = (*columns, "headers")
    min_tasks, max_records = parsed["minPartitions"], parsed["maxRecordsPerPartition"]
    min_records = parsed["minRecordsPerTask"]
    if "minRecordsPerTask" not in parsed and (min_tasks is not None or max_records is not None):
        min_records = 1  # a user who sets how to split ranges does not expect shared tasks
    return {
        "columns": columns,
        "sizes": TaskSizes(min_records=min_records, max_records=max_records, min_tasks=min_tasks),
        "poll_timeout_s": parsed["kafkaConsumer.pollTimeoutMs"] / 1000,
        "formats": formats_of(parsed, columns),
        "where": parsed["where"],
    }


def parse(options: Mapping[str, str]) -> Settings:
    """Parse and check the options of ``spark.readStream.format("kafka-group")``.

    Parameters
    ----------
    options : mapping of str to str
        The options from Spark.  The case of keys does not matter.

    Raises
    ------
    OptionError
        If an option is missing, unknown, malformed or in conflict.  The error names the first one and the remedy.
    """
    values = parse_read(options, batch=False)
    properties = values.properties
    drain_timeout_ms = _drain_timeout_ms(values)
    read = values.read
    if not read.partitions:
        _check_member_times(properties)
    check_required(values, OPTIONS)
    group_id, prefix = values["kafka.group.id"], values["groupIdPrefix"]
    if group_id is None and prefix is None and not read.partitions:
        raise OptionError(
            "kafka.group.id",
            "it is missing.",
            "Add .option('kafka.group.id', ...), the name of the consumer group. Or add groupIdPrefix, to give the "
            "query its own group.",
        )
    commit_mode = _commit_mode(values, read.partitions)
    if commit_mode is CommitMode.TRANSACTION:
        _check_names(values)
    common = read_settings(values)
    named = group_id or prefix or _UNNAMED
    group = GroupSettings(
        properties=properties,
        group_id=named,
        commits=group_id is not None or prefix is not None,
        made_up=group_id is None,
        topics=read.topics,
        pattern=read.pattern,
        partitions=read.partitions,
        commit_mode=commit_mode,
        drain_timeout_s=drain_timeout_ms / 1000,
        read_committed=value_of("isolation.level", properties) == "read_committed",
        start=_start_policy(values, group_id=named),
        session_timeout_s=session_timeout_ms(properties) / 1000,
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


def _drain_timeout_ms(values: ParsedOptions) -> int:
    """Return how long a hand-over may take, which must be less than the group waits for it."""
    found: int = values["drainTimeoutMs"]
    interval_ms = int(value_of("max.poll.interval.ms", values.properties))
    if "drainTimeoutMs" not in values:
        found = max(1, min(found, interval_ms - min(DRAIN_MARGIN_MS, interval_ms // 3)))
    if found >= interval_ms:
        raise OptionError(
            "drainTimeoutMs",
            f"{found} ms is not below kafka.max.poll.interval.ms ({interval_ms} ms), after which the group removes the "
            "member.",
            "Lower drainTimeoutMs or raise kafka.max.poll.interval.ms.",
        )
    return found


def _check_member_times(properties: Mapping[str, str]) -> None:
    """Refuse times with which librdkafka creates no member, or the group removes it between two heartbeats."""
    if value_of("group.protocol", properties) != "classic":
        return  # the broker decides the session timeout
    session_ms, interval_ms = session_timeout_ms(properties), int(value_of("max.poll.interval.ms", properties))
    if session_ms > interval_ms:
        raise OptionError(
            "kafka.session.timeout.ms",
            f"{session_ms} ms is above kafka.max.poll.interval.ms ({interval_ms} ms), and the Kafka client allows no "
            "longer session.",
            "Lower it, or raise kafka.max.poll.interval.ms.",
        )
    if int(properties.get("heartbeat.interval.ms", 0)) >= session_ms:
        raise OptionError(
            "kafka.heartbeat.interval.ms",
            f"{properties['heartbeat.interval.ms'].strip()} ms is not below kafka.session.timeout.ms ({session_ms} "
            "ms), after which the group removes the member.",
            "Lower it to a third of kafka.session.timeout.ms, or remove it.",
        )


def _commit_mode(values: ParsedOptions, partitions: tuple[TopicPartition, ...]) -> CommitMode:
    """Return how to commit.  With ``assign`` always plain: no member's generation could fence a transaction."""
    mode: CommitMode = values["commitMode"]
    if not partitions:
        return mode
    if mode is CommitMode.TRANSACTION and "commitMode" in values:
        raise OptionError(
            "commitMode",
            "it is transaction, but with assign there is no member whose generation could fence a transaction.",
            "Remove it, or write plain.",
        )
    return CommitMode.PLAIN


def _check_names(values: ParsedOptions) -> None:
    """Refuse names with which librdkafka could never commit in a transaction: it reads only printable ASCII."""
    names = ["kafka.group.id", "groupIdPrefix", "kafka.group.instance.id"]
    if value_of("group.protocol", values.properties) == "classic":
        names.append("kafka.client.id")  # the member's id begins with it
    for name in names:
        value = values.given.get(name.lower(), "")
        if not (value.isascii() and (value.isprintable() or not value)):
            raise OptionError(
                name,
                f"{value!r} has characters other than printable ASCII, with which the Kafka client commits in no "
                f"transaction.",
                "Write another name, or .option('commitMode', 'plain').",
            )


def _start_policy(values: ParsedOptions, *, group_id: str) -> StartPolicy:
    """Return the policy that decides where partitions start.

    Raises
    ------
    OptionError
        If an option names a start for a partition that the query does not read.
    """
    starting: StartingOffsets = values["startingOffsets"]
    times_ms: Mapping[TopicPartition, int] = values["startingOffsetsByTimestamp"] or {}
    time_ms: int | None = values["startingTimestamp"]
    default, explicit = StartingOffset.EARLIEST, GivenOffsets({}, {})
    # The first one that is set decides, as in Spark's own source.
    if time_ms is not None:
        times_ms = {}
    elif values["startingOffsetsByTimestamp"] is not None:
        _check_starts("startingOffsetsByTimestamp", times_ms, (), values.read)
    elif isinstance(starting, StartingOffset):
        default = starting
    else:
        explicit = starting
        _check_starts("startingOffsets", explicit.partitions, explicit.topics, values.read)
    return StartPolicy(
        group_id=group_id,
        default=default,
        explicit=explicit.partitions,
        topics=explicit.topics,
        time_ms=time_ms,
        times_ms=times_ms,
        no_match=values["startingOffsetsByTimestampStrategy"],
        fail_on_data_loss=values["failOnDataLoss"],
        on_rewind=values["onOffsetRewind"],
        keeps_offsets=not values.read.partitions,
    )


def _check_starts(option: str, named: Collection[TopicPartition], whole: Collection[str], read: Strategy) -> None:
    """Refuse a start for topics or partitions that the query does not read."""
    topics, pattern, partitions = read
    of = {tp.topic for tp in named} | set(whole)
    mine = set(topics) if pattern is None else {topic for topic in of if re.fullmatch(pattern, topic)}
    where = "in assign" if partitions else "in subscribe" if pattern is None else "matched by subscribePattern"
    if foreign := sorted(of - mine):
        raise OptionError(
            option,
            f"it names a topic that is not {where}: {', '.join(foreign)}.",
            "Subscribe to this topic also, or remove it here.",
        )
    if partitions and (others := sorted(set(named) - set(partitions))):
        raise OptionError(
            option,
            f"it names a partition that is not in assign: {', '.join(map(str, others))}.",
            "Add it to assign, or remove it here.",
        )
