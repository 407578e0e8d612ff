"""Decides where a batch read starts with ``startingOffsets=committed``.  Pure.

An offset belongs to one log, and its metadata contains the topic id.  If a topic was created again, its old offsets do
not count.  Each partition starts as follows:

==================================================  ==================================================
the group's offsets                                 the partition starts at
==================================================  ==================================================
one of this partition                               this offset
none of this partition, and those of the topic      its beginning, or nowhere: a named error
belong to a log that was deleted                    (``failOnDataLoss``)
none of the topic                                   ``startingOffsetsIfNotCommitted``: the beginning,
                                                    which is the default, the end, or nowhere
some of the topic, and the last bookmark shows      its beginning
that this partition was added since
some of the topic, and nothing shows that           nowhere: a named error; its beginning with
                                                    ``startingOffsetsIfNotCommitted`` earliest or latest
==================================================  ==================================================

In the last case the offset may have expired, or an operator may have deleted it.  The partition then never starts at
the log end, because that would skip records that the group has not read.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from pyspark_kafka_group.cluster.cluster_answers import CommittedOffset, TopicInfo
from pyspark_kafka_group.offsets.commit_metadata import CommitNote, differ
from pyspark_kafka_group.offsets.errors import ConfigurationError, DataLossError
from pyspark_kafka_group.offsets.notes import BookmarkNote, read
from pyspark_kafka_group.offsets.range_bounds import NotCommitted
from pyspark_kafka_group.offsets.start_inputs import StartingOffset
from pyspark_kafka_group.offsets.types import Offset, TopicPartition

Committed = Mapping[TopicPartition, CommittedOffset]

_HOW_TO_SET = "Set the offset with kafka-consumer-groups --reset-offsets, if you know it."


def committed_starts(
    partitions: Mapping[TopicPartition, NotCommitted | None],
    committed: Committed,
    topics: Mapping[str, TopicInfo],
    *,
    group_id: str | None,
    fail_on_data_loss: bool,
) -> dict[TopicPartition, Offset | StartingOffset]:
    """Return where each partition starts.

    Parameters
    ----------
    partitions : mapping of TopicPartition to NotCommitted or None
        The partitions to read, with ``startingOffsetsIfNotCommitted``; None if it is not set.
    committed : mapping of TopicPartition to CommittedOffset
        The group's offsets for all partitions of these topics.
    topics : mapping of str to TopicInfo
        The metadata of these topics.
    group_id : str or None
        The group, for errors.
    fail_on_data_loss : bool
        The option ``failOnDataLoss``.

    Raises
    ------
    ConfigurationError
        If a partition has no committed offset, but should have one.
    DataLossError
        If offsets belong to a deleted log, and ``failOnDataLoss`` is true.
    """
    of_topic: dict[str, dict[TopicPartition, CommittedOffset]] = {tp.topic: {} for tp in partitions}
    for tp, found in committed.items():
        of_topic[tp.topic][tp] = found
    known = {topic: _known(found, topics.get(topic)) for topic, found in of_topic.items()}
    stale = {tp: found for topic in known.values() for tp, found in topic.stale.items()}
    if stale and fail_on_data_loss:
        tp, found = min(stale.items())
        raise DataLossError.of_recreated(topic=tp.topic, partition=tp.partition, finished=found.offset, log_end=-1)
    return {tp: _start(tp, otherwise, known[tp.topic], group_id) for tp, otherwise in partitions.items()}


class _Known(NamedTuple):
    """The group's offsets of one topic.

    Attributes
    ----------
    offsets : dict of TopicPartition to Offset
        The offsets of the current log.
    stale : dict of TopicPartition to CommittedOffset
        The offsets of a deleted log.
    partition_count : int or None
        The number of partitions at the last commit of a bookmark; None without one.  Notes of streams do not help:
        they contain the number of partitions when the group first started the topic.
    """

    offsets: dict[TopicPartition, Offset]
    stale: dict[TopicPartition, CommittedOffset]
    partition_count: int | None


def _known(committed: Committed, info: TopicInfo | None) -> _Known:
    known, counts = _Known({}, {}, None), [0]
    for tp, found in committed.items():
        note = read(found.metadata, tp, None if info is None else info.cluster_id)
        topic_id = note.topic_id if isinstance(note, CommitNote | BookmarkNote) else None
        if info is not None and differ(topic_id, info.topic_id):
            known.stale[tp] = found
            continue
        known.offsets[tp] = found.offset
        if isinstance(note, BookmarkNote):
            counts.append(note.partition_count)
    return known._replace(partition_count=max(counts) or None)


def _start(
    tp: TopicPartition, otherwise: NotCommitted | None, known: _Known, group_id: str | None
) -> Offset | StartingOffset:
    if tp in known.offsets:
        return known.offsets[tp]
    added = known.partition_count is not None and tp.partition >= known.partition_count
    if known.stale or added:
        return StartingOffset.EARLIEST
    return _start_of_lost(tp, otherwise, group_id) if known.offsets else _start_of_topic(tp, otherwise, group_id)


def _start_of_lost(tp: TopicPartition, otherwise: NotCommitted | None, group_id: str | None) -> StartingOffset:
    if otherwise in (NotCommitted.EARLIEST, NotCommitted.LATEST):
        return StartingOffset.EARLIEST
    raise ConfigurationError(
        f"The group {group_id!r} has no committed offset for {tp}, but for other partitions of the topic. The offset "
        f"may have expired (offsets.retention.minutes of the brokers), or was deleted, or the group has never read the "
        f"partition. {_HOW_TO_SET} To read the partition from its beginning, set "
        f"startingOffsetsIfNotCommitted=earliest once."
    )


def _start_of_topic(tp: TopicPartition, otherwise: NotCommitted | None, group_id: str | None) -> StartingOffset:
    if otherwise is NotCommitted.FAIL:
        raise ConfigurationError(
            f"The group {group_id!r} has no committed offset for {tp}, nor for any partition of the topic, and "
            f"startingOffsetsIfNotCommitted=fail. The group may have never read the topic, or its offsets have expired "
            f"(offsets.retention.minutes of the brokers), or were deleted. {_HOW_TO_SET} To start the topic, set "
            f"startingOffsetsIfNotCommitted=earliest or latest once."
        )
    return StartingOffset.EARLIEST if otherwise is None else StartingOffset(otherwise.value)
