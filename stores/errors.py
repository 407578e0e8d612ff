"""What ends a write to tables, and what to do then.  Only the text gets from an executor to your program."""

from __future__ import annotations

from collections.abc import Mapping

from pyspark_kafka_group.offsets.errors import KafkaGroupError
from pyspark_kafka_group.offsets.read_range import ReadRange
from pyspark_kafka_group.offsets.types import Offset, TopicPartition


class PartitionsLockedError(KafkaGroupError):
    """Another writer holds the rows of the offset table for longer than ``lock_timeout_s``.

    Most often it is suspended, or its machine is unreachable, in the middle of its transaction.  Nothing was written.
    """


class TransactionEndedError(KafkaGroupError):
    """The user's function has ended the transaction that it was to write in."""


class TableBehindError(KafkaGroupError):
    """The table has lower offsets than the group has finished: the database has gone back, most often."""

    @classmethod
    def of(cls, table: str, behind: Mapping[TopicPartition, tuple[Offset | None, Offset]]) -> TableBehindError:
        """Return the error of partitions with what the table has, None for nothing, and what was finished."""
        named = sorted(behind.items())
        found = "; ".join(
            f"{tp} is finished up to {finished}, and the table has {'no row' if stored is None else stored}"
            for tp, (stored, finished) in named
        )
        by_topic: dict[str, dict[int, int]] = {}
        for tp, (_, finished) in named:
            by_topic.setdefault(tp.topic, {})[tp.partition] = finished
        calls = ", ".join(f"set_offsets({topic!r}, {offsets})" for topic, offsets in by_topic.items())
        return cls(
            f"OffsetTable: {table} is behind its group: {found}. Nothing of these partitions was written. The database "
            f"was restored, or a standby that was behind has taken over, and rows are missing in it; or a batch was "
            f"finished without write(), which must be called for each batch, also for an empty one; or the table is "
            f"new to a group that has run before. To read the missing records again: stop all queries of the group, "
            f"set the group's offsets to those of offsets(), or to the beginning where there is no row, and start "
            f"with onOffsetRewind=group. To go on without them: {calls}."
        )


class OtherTopicError(KafkaGroupError):
    """The table has the offsets of another topic of the same name."""

    @classmethod
    def of(cls, table: str, tp: TopicPartition, stored: str, found: str) -> OtherTopicError:
        """Return the error of a partition with two topic ids."""
        return cls(
            f"OffsetTable: {table} has offsets of another topic {tp.topic!r} (topic id {stored}) than the one that is "
            f"read (topic id {found}), so they do not say which of its records are written. Nothing of {tp} was "
            f"written. If the topic was deleted and created again, stop all writers, call forget({tp.topic!r}), and "
            f"start them again. If it is in another cluster, give it an OffsetTable with another consumer name."
        )


class LateRowsError(KafkaGroupError):
    """A row comes from a record that the batch does not read, so nothing tells whether it was written."""

    @classmethod
    def of(cls, tp: TopicPartition, offset: int, planned: ReadRange | None) -> LateRowsError:
        """Return the error of a row and of what the batch reads of its partition."""
        reads = f"offsets {planned.start} to {planned.until - 1} of it" if planned is not None else "nothing of it"
        return cls(
            f"OffsetTable: a row of {tp}, offset {offset} is not of a record of this batch, which reads {reads}. A "
            f"stateful operator has kept the row from an earlier batch: a stream-stream join or transformWithState, "
            f"say. For such rows nothing tells whether they are written. Nothing of {tp} was written. Write the rows "
            f"before such an operator, or write its result with a sink that goes by the batch id."
        )


class RefusedRecordError(KafkaGroupError):
    """The target does not take the rows of a record."""

    @classmethod
    def of(cls, tp: TopicPartition, offset: int, problem: str) -> RefusedRecordError:
        """Return the error of a record."""
        return cls(
            f"OffsetTable: the target does not take the rows of {tp}, offset {offset}: {problem}. Nothing of {tp} was "
            f"written in this batch. Correct the query or the target. Or give write() refused=..., a function that "
            f"sets such rows aside: into('refused', columns=['topic', 'partition', 'offset', 'error']), say."
        )


class CopyError(KafkaGroupError):
    """PostgreSQL does not take a COPY.  Without its details, which show the data.

    Attributes
    ----------
    sqlstate : str
        PostgreSQL's code of the error.
    """

    sqlstate: str


class RefusedValueError(KafkaGroupError):
    """A value would become another one in the target."""
