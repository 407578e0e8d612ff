"""A consumer group as the bookmark of a scheduled job, which reads the new records and then commits.

Runs in the user's Python.  Spark does not report to a Python source that an action has succeeded, so the user's program
calls :meth:`Bookmark.commit`.  The bookmark finds the ranges once, when it is created.  So it commits exactly the
ranges that Spark reads.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import closing
from itertools import repeat
from types import TracebackType
from typing import TYPE_CHECKING, Self, TypeVar

from pyspark_kafka_group.batch.planning import open_lookup, partitions_of, resolve_existing, spans_of, topics_of
from pyspark_kafka_group.cluster.error_remedies import TryAgainError
from pyspark_kafka_group.cluster.patience import patiently
from pyspark_kafka_group.cluster.range_lookup import GonePartitionsError, RangeLookup
from pyspark_kafka_group.columns.schema import spark_schema
from pyspark_kafka_group.offsets.commit_metadata import differ
from pyspark_kafka_group.offsets.errors import (
    BookmarkMovedError,
    BrokerError,
    ConfigurationError,
    DataLossError,
    OptionError,
    UnknownTopicError,
)
from pyspark_kafka_group.offsets.notes import BookmarkNote
from pyspark_kafka_group.offsets.range_bounds import AtCommitted
from pyspark_kafka_group.offsets.types import Offset, OffsetRange, TopicPartition
from pyspark_kafka_group.options.batch_settings import BatchSettings, parse_batch
from pyspark_kafka_group.wire.deadline import Deadline

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql import types as t

T = TypeVar("T")

_log = logging.getLogger(__name__)

_PATIENCE_S = 60.0
"""How long :meth:`Bookmark.commit` waits for the coordinator.  Without it, the next run would repeat this one."""

_PAUSE_S = 0.5
"""The pause between two attempts.  Each of them reads the committed offsets again."""

_BOUNDS = frozenset(
    name.lower()
    for name in (
        "subscribe",
        "subscribePattern",
        "assign",
        "startingOffsets",
        "startingTimestamp",
        "startingOffsetsByTimestamp",
        "startingOffsetsByTimestampStrategy",
        "startingOffsetsIfNotCommitted",
        "endingOffsets",
        "endingTimestamp",
        "endingOffsetsByTimestamp",
    )
)
"""The options that the bookmark replaces by fixed offsets."""


class Bookmark:
    """The records that a group has not read yet, and their commit.

    :func:`pyspark_kafka_group.bookmark` creates it.  As a context manager it commits at the end of the block, unless
    the block raises, or leaves records of :func:`pyspark_kafka_group.read_arrow` unread.

    Attributes
    ----------
    records : DataFrame
        The records, with the columns of the source.  Every action reads the same ranges.  Without a session there is
        no such attribute: see :func:`pyspark_kafka_group.read_arrow`.
    ranges : dict of (str, int) to (int, int)
        The offsets of each topic-partition, including the first and excluding the second.
    """

    records: DataFrame
    ranges: dict[tuple[str, int], tuple[int, int]]

    def __init__(self, spark: SparkSession | None, options: Mapping[str, str]) -> None:
        given = {key: str(value) for key, value in options.items()}
        self._settings = _settings(given)
        with closing(open_lookup(self._settings)) as lookup:
            lookup.check_group()
            # First, so that all answers below belong to these topics or to later ones of the same name.
            topics = topics_of(self._settings, lookup)
            spans = spans_of(self._settings, partitions_of(self._settings, topics))
            self._before = _offsets(lookup, spans)
            self._ranges = resolve_existing(self._settings, topics, spans, lookup)
            # After the ranges: no record in them has a later epoch, unless a log is truncated in this moment.
            try:
                self._epochs = lookup.leader_epochs([*self._ranges])
            except GonePartitionsError:  # commit() reports deleted topics
                self._epochs = {}
        self._topics = {tp.topic: topics[tp.topic] for tp in self._ranges}
        self.ranges = {(tp.topic, tp.partition): (r.start, r.until) for tp, r in sorted(self._ranges.items())}
        if spark is not None:
            self.records = _fixed(spark, given, self._settings, self._ranges)
        self._committed = self._tried = False
        self._begun = self._read = False  # of read_arrow(): whether a stream was made, and one read to its end

    @property
    def plan(self) -> tuple[BatchSettings, dict[TopicPartition, OffsetRange]]:
        """The parsed options, and the ranges that are not empty."""
        return self._settings, {tp: r for tp, r in self._ranges.items() if r.size}

    def noting(self, batches: Iterable[T]) -> Iterator[T]:
        """Return an iterator over the batches of all ranges, and note whether one is read to its end."""
        self._begun = True

        def read() -> Iterator[T]:
            yield from batches
            self._read = True

        return read()

    def commit(self) -> None:
        """Commit that all :attr:`records` are processed.  A second call does nothing.

        Raises
        ------
        ActiveGroupError
            If the group has members: only they may commit.
        BookmarkMovedError
            If another run or tool has committed since the bookmark was created.
        DataLossError
            If a topic was created again since then, or deleted.  With ``failOnDataLoss=false``, deleted topics are left
            out.
        BrokerError
            If the cluster does not answer for a minute.
        """
        if self._committed:
            return
        deadline = Deadline.after(_PATIENCE_S)
        with closing(open_lookup(self._settings, patience_s=_PATIENCE_S)) as lookup:
            try:
                patiently(lambda: self._commit(lookup), deadline, repeat(_PAUSE_S))
            except TryAgainError as problem:
                raise BrokerError(
                    f"The group {self._group_id!r} has not committed within {_PATIENCE_S:g} s, or has not answered "
                    f"({problem}). Call commit() again."
                ) from None
        self._committed = True

    def _commit(self, lookup: RangeLookup) -> None:
        lookup.check_group()
        existing = self._existing_topics(lookup)
        ranges = {tp: r for tp, r in self._ranges.items() if tp.topic in existing}
        now = _offsets(lookup, ranges)
        moved = {
            tp: now.get(tp)
            for tp, r in ranges.items()
            # An earlier commit without an answer may have succeeded.
            if now.get(tp) != self._before.get(tp) and not (self._tried and now.get(tp) == r.until)
        }
        if moved:
            tp, offset = next(iter(sorted(moved.items())))
            raise BookmarkMovedError(
                topic=tp.topic,
                partition=tp.partition,
                group_id=self._group_id,
                before=self._before.get(tp),
                committed=offset,
            )
        self._tried = True
        # Deliberate: also unchanged offsets.  Brokers may delete an offset some time after its last commit.
        lookup.commit({tp: (r.until, self._note(tp)) for tp, r in ranges.items()})

    def _note(self, tp: TopicPartition) -> str:
        topic = self._topics[tp.topic]
        return BookmarkNote(topic.topic_id, len(topic.leader_epochs), self._epochs.get(tp), topic.cluster_id).encode()

    def _existing_topics(self, lookup: RangeLookup) -> Collection[str]:
        """Return the topics that still exist.  Raise if one was created again, or deleted (``failOnDataLoss``).

        If one is created again after the check, the new topic gets an offset with the id of the old one.  The next run
        detects this.
        """
        try:
            found = lookup.topics([*self._topics])
        except UnknownTopicError as missing:
            if self._settings.fail_on_data_loss:
                raise DataLossError.of_deleted(missing.topics) from None
            _log.warning("%s: deleted. Committing the others, because failOnDataLoss=false.", ", ".join(missing.topics))
            found = lookup.topics([topic for topic in self._topics if topic not in missing.topics])
        for topic, info in found.items():
            if differ(info.topic_id, self._topics[topic].topic_id):
                raise DataLossError.of_recreated_bookmark(topic, self._group_id)
        return found

    @property
    def _group_id(self) -> str:
        assert self._settings.group_id is not None
        return self._settings.group_id

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if kind is None:
            if self._begun and not self._read and not self._committed:
                raise ConfigurationError(
                    "The bookmark has committed nothing, because the records of read_arrow() were not read to their "
                    "end. Read them all inside the block, or call commit() at its end to leave out the rest."
                )
            self.commit()


def _settings(given: Mapping[str, str]) -> BatchSettings:
    names = {key.lower() for key in given}
    if "kafka.group.id" not in names:
        raise OptionError("kafka.group.id", "it is missing.", "Set it: the group's committed offsets are the bookmark.")
    if "show" in names:
        raise OptionError("show", "a bookmark reads records.", "Remove it.")
    settings = parse_batch(given if "startingoffsets" in names else {**given, "startingOffsets": "committed"})
    if not isinstance(settings.start, AtCommitted):
        raise OptionError(
            settings.start_option,
            "a bookmark starts where the group has committed.",
            "Remove it. To start a topic without committed offsets, set startingOffsetsIfNotCommitted.",
        )
    return settings


def _offsets(lookup: RangeLookup, partitions: Collection[TopicPartition]) -> dict[TopicPartition, Offset]:
    return {tp: found.offset for tp, found in lookup.committed([*partitions]).items()}


def _fixed(
    spark: SparkSession,
    given: Mapping[str, str],
    settings: BatchSettings,
    ranges: Mapping[TopicPartition, OffsetRange],
) -> DataFrame:
    """Return a DataFrame that reads exactly these ranges."""
    # Deliberate: no empty ranges.  The committed offset may be behind the first open transaction, where a reader of
    # committed records must not begin.
    ranges = {tp: r for tp, r in ranges.items() if r.size}
    if not ranges:
        return spark.createDataFrame([], _schema(settings))
    assign: dict[str, list[int]] = {}
    starts: dict[str, dict[str, int]] = {}
    ends: dict[str, dict[str, int]] = {}
    for tp, r in ranges.items():
        assign.setdefault(tp.topic, []).append(tp.partition)
        starts.setdefault(tp.topic, {})[str(tp.partition)] = r.start
        ends.setdefault(tp.topic, {})[str(tp.partition)] = r.until
    options = {key: value for key, value in given.items() if key.lower() not in _BOUNDS}
    bounds = {
        "assign": json.dumps(assign),
        "startingOffsets": json.dumps(starts),
        "endingOffsets": json.dumps(ends),
    }
    return spark.read.format("kafka-group").options(**options, **bounds).load()


def _schema(settings: BatchSettings) -> t.StructType:
    if settings.formats is None:
        return spark_schema(settings.columns)
    from pyspark_kafka_group.formats.planning import typed_schema  # needs PySpark, which a bookmark need not

    return typed_schema(settings.columns, settings.formats)
