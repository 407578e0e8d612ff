"""The options that decide together which partitions are read, and where they start."""

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
    """What to read.

    Attributes
    ----------
    topics : tuple of str
        ``subscribe``, or the topics of ``assign``; empty with a pattern.
    pattern : str or None
        ``subscribePattern``.
    partitions : tuple of TopicPartition
        ``assign``; else empty.
    """

    topics: tuple[str, ...]
    pattern: str | None
    partitions: tuple[TopicPartition, ...]


def strategy(values: ParsedOptions) -> Strategy:
    """Return what to read; raises :class:`OptionError` unless the user gives exactly one of the three options."""
    given = [name for name in _STRATEGIES if values[name] is not None]
    if not given:
        raise OptionError("subscribe", "it is missing.", "Add .option('subscribe', ...), subscribePattern or assign.")
    if len(given) > 1:
        raise OptionError(given[1], f"it is given together with {given[0]}.", "Remove one of the two.")
    partitions: tuple[TopicPartition, ...] = values["assign"] or ()
    topics = values["subscribe"] or tuple(sorted({tp.topic for tp in partitions}))
    return Strategy(topics, values["subscribePattern"], partitions)


def start_policy(values: ParsedOptions, read: Strategy, *, group_id: str, keeps_offsets: bool) -> StartPolicy:
    """Return what decides where partitions start.

    Parameters
    ----------
    values : ParsedOptions
        The options.
    read : Strategy
        What is read.
    group_id : str
        The group.
    keeps_offsets : bool
        Whether it keeps the offsets.

    Raises
    ------
    OptionError
        If an option names a start for a partition that is not read.
    """
    starting: StartingOffsets = values["startingOffsets"]
    times_ms: Mapping[TopicPartition, int] = values["startingOffsetsByTimestamp"] or {}
    time_ms: int | None = values["startingTimestamp"]
    default, explicit = StartingOffset.EARLIEST, GivenOffsets({}, {})
    # The first that is given decides, as in Spark's own source.
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
        keeps_offsets=keeps_offsets,
    )


def _check(option: str, named: Collection[TopicPartition], whole: Collection[str], read: Strategy) -> None:
    """Refuse a start for what is not read."""
    topics, pattern, partitions = read
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


def check_limits(values: ParsedOptions) -> None:
    """Refuse a least size of batches above the largest; raises :class:`OptionError`."""
    min_offsets, max_offsets = values["minOffsetsPerTrigger"], values["maxOffsetsPerTrigger"]
    if min_offsets is not None and max_offsets is not None and min_offsets > max_offsets:
        raise OptionError(
            "minOffsetsPerTrigger",
            f"{min_offsets} is higher than maxOffsetsPerTrigger ({max_offsets}).",
            "Lower it, or raise maxOffsetsPerTrigger.",
        )
