"""What the options say together about where partitions start; and what of them does not fit together."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Any

from pyspark_kafka_group.offsets.errors import OptionError
from pyspark_kafka_group.offsets.start_inputs import StartingOffset, StartPolicy
from pyspark_kafka_group.offsets.types import Offset, TopicPartition
from pyspark_kafka_group.options.parsers import GivenOffsets, StartingOffsets

STRATEGIES = ("subscribe", "subscribePattern", "assign")
"""The options that say what to read: exactly one of them is given."""


def start_policy(
    values: Mapping[str, Any],
    *,
    group_id: str,
    keeps_offsets: bool,
    topics: Collection[str],
    pattern: str | None,
    partitions: Collection[TopicPartition],
) -> StartPolicy:
    """Return what decides where partitions start.

    Parameters
    ----------
    values : mapping
        The parsed options, by name.
    group_id : str
        The group.
    keeps_offsets : bool
        Whether it keeps the offsets.
    topics, pattern, partitions
        What is read; see :data:`STRATEGIES`.

    Raises
    ------
    OptionError
        If a start is given for what is not read.
    """
    starting: StartingOffsets = values["startingOffsets"]
    times_ms: Mapping[TopicPartition, int] = values["startingOffsetsByTimestamp"] or {}
    time_ms: int | None = values["startingTimestamp"]
    default, explicit = StartingOffset.EARLIEST, GivenOffsets({}, {})
    # The first that is given decides, as in Spark's own source.
    if time_ms is not None:
        times_ms = {}
    elif values["startingOffsetsByTimestamp"] is not None:
        _check("startingOffsetsByTimestamp", times_ms, (), topics, pattern, partitions)
    elif isinstance(starting, StartingOffset):
        default = starting
    else:
        explicit = starting
        _check("startingOffsets", explicit.partitions, explicit.topics, topics, pattern, partitions)
    offsets: Mapping[TopicPartition, Offset | StartingOffset] = explicit.partitions
    return StartPolicy(
        group_id=group_id,
        default=default,
        explicit=offsets,
        topics=explicit.topics,
        time_ms=time_ms,
        times_ms=times_ms,
        no_match=values["startingOffsetsByTimestampStrategy"],
        fail_on_data_loss=values["failOnDataLoss"],
        on_rewind=values["onOffsetRewind"],
        keeps_offsets=keeps_offsets,
    )


def _check(
    option: str,
    named: Collection[TopicPartition],
    whole: Collection[str],
    topics: Collection[str],
    pattern: str | None,
    partitions: Collection[TopicPartition],
) -> None:
    """Refuse a start for what is not read."""
    of = {tp.topic for tp in named} | set(whole)
    mine = set(topics) if pattern is None else {topic for topic in of if re.fullmatch(pattern, topic)}
    where = "in assign" if partitions else "in subscribe" if pattern is None else "matched by subscribePattern"
    if foreign := sorted(of - mine):
        raise OptionError(
            option,
            f"it names a topic that is not {where}: {', '.join(foreign)}.",
            "Subscribe to the topic, too, or remove it here.",
        )
    if partitions and (others := sorted(set(named) - set(partitions))):
        raise OptionError(
            option,
            f"it names a partition that is not in assign: {', '.join(map(str, others))}.",
            "Assign it, too, or remove it here.",
        )


def check_limits(min_offsets: int | None, max_offsets: int | None) -> None:
    """Refuse a least size of batches above the largest; raises :class:`OptionError`."""
    if min_offsets is not None and max_offsets is not None and min_offsets > max_offsets:
        raise OptionError(
            "minOffsetsPerTrigger",
            f"{min_offsets} is higher than maxOffsetsPerTrigger ({max_offsets}).",
            "Lower it, or raise maxOffsetsPerTrigger.",
        )
