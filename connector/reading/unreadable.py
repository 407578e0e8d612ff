"""The errors of record batches that no client can read."""

from __future__ import annotations

from pyspark_kafka_group.columns.record_batches import Undecompressed
from pyspark_kafka_group.offsets.errors import RecordBatchTooLargeError, UnreadableBatchError
from pyspark_kafka_group.offsets.types import TopicPartition
from pyspark_kafka_group.reading.reader_client import UnreadableBatch


def damaged(tp: TopicPartition, start: int, until: int | None, reason: str) -> UnreadableBatch:
    """Return the offsets of a batch that cannot be read from `start` on, with the error."""
    error = UnreadableBatchError(topic=tp.topic, partition=tp.partition, offset=start, until=until, reason=reason)
    return UnreadableBatch(tp, start, until, error)


def unreadable(
    tp: TopicPartition, start: int, until: int | None, why: Undecompressed | None, most_bytes: int
) -> UnreadableBatch:
    """Return the offsets of a batch whose checksum is right, with the error.

    Parameters
    ----------
    tp, start, until
        The offsets that cannot be read.
    why
        Why the batch could not be decompressed; None if it was, but a record in it is malformed.
    most_bytes
        The limit of its decompressed size.
    """
    if why is None:
        return damaged(tp, start, until, "a record in it is malformed")
    if why.reason:
        return damaged(tp, start, until, f"it cannot be decompressed ({why.reason})")
    found = f"{why.compressed_bytes} compressed bytes, which become more when they are decompressed"
    error = RecordBatchTooLargeError(
        topic=tp.topic, partition=tp.partition, offset=start, limit_bytes=most_bytes, found=found, until=until
    )
    return UnreadableBatch(tp, start, until, error)
