"""Reads exactly the records of the offset ranges of one task, as Arrow record batches.

Runs in executors' Python workers, in the thread of the task.  It joins no group and commits nothing.  So a retried or
speculative task may run it again, even at the same time.  `range_reader` decides which records belong to a range.
`client_cache` lends the `reader_client` that fetches them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from pyspark_kafka_group.offsets.types import OffsetRange, TopicPartition
from pyspark_kafka_group.reading.client_cache import CONSUMERS
from pyspark_kafka_group.reading.range_reader import WAIT_S, Idle, RangeReader, ReadOptions, broker_error
from pyspark_kafka_group.reading.reader_client import ReaderClient, Records, UnreadableBatch

if TYPE_CHECKING:
    import pyarrow as pa


def get_ready(client_config: Mapping[str, str]) -> None:
    """Prepare this worker for tasks: import the modules, and put a client into the cache.

    Parameters
    ----------
    client_config
        The result of `reader_config`.
    """
    with CONSUMERS.lease(client_config):
        pass


def read_ranges(
    client_config: Mapping[str, str], ranges: Mapping[TopicPartition, OffsetRange], options: ReadOptions
) -> Iterator[pa.RecordBatch]:
    """Read the records of one range of each topic-partition.

    Skips offsets without a record (see `range_reader`).  The client retries after transient errors of brokers, until
    ``options.timeout_s`` has passed without progress.

    Parameters
    ----------
    client_config
        The result of `reader_config`.
    ranges
        The ranges to read, with one consumer.  Empty ranges need no broker.
    options
        How to read them.

    Yields
    ------
    pyarrow.RecordBatch
        Records of one partition, in order, with the schema `arrow_schema`.  Never empty.  At most
        `limits.MAX_BATCH_RECORDS` records, and `limits.MAX_BATCH_BYTES` of data unless a single record is larger.

    Raises
    ------
    DataLossError
        If records are lost, and ``options.fail_on_data_loss`` is set.
    ReadTimeoutError
        If there is no progress for ``options.timeout_s``.
    AuthenticationError
        If the cluster keeps refusing the credentials, or the right to read a topic.
    BrokerError
        If an error would not disappear with a retry.
    OptionError
        If librdkafka refuses a property of `client_config`.
    UnreadableBatchError, RecordBatchTooLargeError
        If a record batch cannot be read, unless ``options.fail_on_data_loss`` is off and its end is known.
    UnexpectedRecordError
        If a record comes that was not requested.  This is a bug.

    Notes
    -----
    Closing the generator early also closes its consumer, with the records fetched ahead.
    """
    if not any(r.size for r in ranges.values()):
        return
    with CONSUMERS.lease(client_config) as client:
        try:
            yield from read_with(client, ranges, options)
        except Exception as error:
            # Deliberate: not at the top.  A worker that reads directly does not need librdkafka.
            from confluent_kafka import KafkaException

            if isinstance(error, KafkaException):
                raise broker_error(client, error.args[0], f"reading {', '.join(map(str, ranges))}") from None
            raise


def read_with(
    client: ReaderClient, ranges: Mapping[TopicPartition, OffsetRange], options: ReadOptions
) -> Iterator[pa.RecordBatch]:
    """Read ranges with one client.  Each range comes in order, but batches of ranges may alternate."""
    idle = Idle()
    readers = {tp: RangeReader(client, tp, r, options, idle) for tp, r in ranges.items() if r.size}
    client.assign({tp: reader.rest for tp, reader in readers.items()}, options.columns)
    idle.restart()
    ends = {tp: reader.until for tp, reader in readers.items()}
    while readers:
        found = client.poll(ends, WAIT_S)
        if isinstance(found, Records):
            readers[found.tp].on_records(found)
            if found.batch is not None:
                yield found.batch
            client.errors.clear()
            idle.restart()
            concerned = [readers[found.tp]]
        elif isinstance(found, UnreadableBatch):
            readers[found.tp].on_unreadable(found)
            concerned = [readers[found.tp]]
        else:
            concerned = [readers[found.tp]] if found is not None and found.tp in readers else [*readers.values()]
            for reader in concerned:
                reader.on_nothing(found)
        for reader in concerned:
            ends[reader.tp] = reader.until
            if reader.done:
                del readers[reader.tp], ends[reader.tp]
                if readers:
                    # Otherwise records after its range would be fetched, and delay those of the other ranges.
                    client.unassign(reader.tp)
