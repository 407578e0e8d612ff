"""The options that decide together which partitions to read and where to start."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import NamedTuple

from pyspark_kafka_group.offsets.errors import OptionError
from pyspark_kafka_group.offsets.start_inputs import StartingOffset, StartPolicy
from pyspark_kafka_group.offsets.types import Offset, TopicPartition
from pyspark_kafka_group.options.option import ParsedOptions
from pyspark_kafka_group.options.parsers import GivenOffsets, StartingOffsets

_STRATEGIES = ("subscribe", "subscribePattern", "assign")


class Strategy(NamedTuple):
    """The topics or partitions to read.

    Attributes
    ----------
    topics : tuple of str
        The topics of ``subscribe`` or ``assign``; empty with a pattern.
    pattern : str or None
        The option ``subscribePattern``.
    partitions : tuple of TopicPartition
        The partitions of ``assign``; otherwise empty.
    """

    topics: tuple[str, ...]
    pattern: str | None
    partitions: tuple[TopicPartition, ...]


def strategy(values: ParsedOptions) -> Strategy:
    """Return the topics or partitions to read; raise :class:`OptionError` unless exactly one option names them."""
    given = [name for name in _STRATEGIES if values[name] is not None]
    if not given:
        raise OptionError("subscribe", "it is missing.", "Add .option('subscribe', ...), subscribePattern or assign.")
    if len(given) > 1:
        raise OptionError(given[1], f"it is given together with {given[0]}.", "Remove one of the two.")
    partitions: tuple[TopicPartition, ...] = values["assign"] or ()
    topics = values["subscribe"] or tuple(sorted({tp.topic for tp in partitions}))
    return Strategy(topics, values["subscribePattern"], partitions)


def start_policy(values: ParsedOptions, read: Strategy, *, group_id: str) -> StartPolicy:
    """Return the policy that decides where partitions start.

    Parameters
    ----------
    values : ParsedOptions
        The parsed options.
    read : Strategy
        The topics or partitions to read.
    group_id : str
        The group.

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
        _check("startingOffsetsByTimestamp", times_ms, (), read)
    elif isinstance(starting, StartingOffset):
        default = starting
    else:
        explicit = starting
        _check("startingOffsets", explicit.partitions, explicit.topics, read)
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
        keeps_offsets=not read.partitions,
    )


def _check(option: str, named: Collection[TopicPartition], whole: Collection[str], read: Strategy) -> None:
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


def check_limits(values: ParsedOptions) -> None:
    """Raise :class:`OptionError` if the minimum size of batches is above the maximum."""
    min_offsets, max_offsets = values["minOffsetsPerTrigger"], values["maxOffsetsPerTrigger"]
    if min_offsets is not None and max_offsets is not None and min_offsets > max_offsets:
        raise OptionError(
            "minOffsetsPerTrigger",
            f"{min_offsets} is higher than maxOffsetsPerTrigger ({max_offsets}).",
            "Lower it, or raise maxOffsetsPerTrigger.",
        )
