"""Read exactly the records of the offset ranges of one task, as Arrow record batches.

Runs in executors' Python workers, in the thread of the task.  A pure function of its arguments: it joins no group,
commits nothing, and may run again, or twice at once, for a retried or speculative task.  `range_reader` decides which
records belong to a range; the `reader_client` that fetches them comes from `client_cache`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from pyspark_kafka_group.offsets.types import OffsetRange, TopicPartition
from pyspark_kafka_group.reading.client_cache import CONSUMERS
from pyspark_kafka_group.reading.range_reader import WAIT_S, Idle, RangeReader, ReadOptions, broker_error
from pyspark_kafka_group.reading.reader_client import ReaderClient, Records

if TYPE_CHECKING:
    import pyarrow as pa


def get_ready(client_config: Mapping[str, str]) -> None:
    """Make what a task needs besides its ranges: the modules, and a client in the cache of this worker.

    Parameters
    ----------
    client_config
        What `reader_config` returns.
    """
    with CONSUMERS.lease(client_config):
        pass


def read_ranges(
    client_config: Mapping[str, str], ranges: Mapping[TopicPartition, OffsetRange], options: ReadOptions
) -> Iterator[pa.RecordBatch]:
    """Read the records of a range of each of some topic-partitions.

    Offsets without a record (`range_reader` says which) are passed over.  Transient errors of brokers are retried by
    librdkafka as long as ``options.timeout_s`` allows.

    Parameters
    ----------
    client_config
        What `reader_config` returns.
    ranges
        What to read, with one consumer.  Empty ranges ask no broker.
    options
        How.

    Yields
    ------
    pyarrow.RecordBatch
        Records of one partition; each partition comes in order.  With the schema `arrow_schema`; never empty, at
        most `limits.MAX_BATCH_RECORDS` records, and at most `limits.MAX_BATCH_BYTES` of data unless a single
        record is larger.

    Raises
    ------
    DataLossError
        Records are lost, and ``options.fail_on_data_loss`` is set.
    ReadTimeoutError
        No progress for ``options.timeout_s``.
    AuthenticationError
        The cluster keeps refusing the credentials, or the right to read a topic.
    BrokerError
        An error that a retry would not cure.
    OptionError
        librdkafka refuses a property of `client_config`.
    DataError
        The headers of a record cannot be read.
    UnexpectedRecordError
        A bug: a record that was not asked for.

    Notes
    -----
    Closing the generator early closes its consumer, and with it what was fetched ahead.
    """
    if not any(r.size for r in ranges.values()):
        return
    with CONSUMERS.lease(client_config) as client:
        try:
            yield from read_with(client, ranges, options)
        except Exception as error:
            # Deliberate: not at the top.  Reading directly, a worker needs no librdkafka and need not import it.
            from confluent_kafka import KafkaException

            if isinstance(error, KafkaException):
                raise broker_error(client, error.args[0], f"reading {', '.join(map(str, ranges))}") from None
            raise


def read_with(
    client: ReaderClient, ranges: Mapping[TopicPartition, OffsetRange], options: ReadOptions
) -> Iterator[pa.RecordBatch]:
    """Read ranges with one client, in whatever order they come; each range comes in order."""
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
        else:
            concerned = [readers[found.tp]] if found is not None and found.tp in readers else [*readers.values()]
            for reader in concerned:
                reader.on_nothing(found)
        for reader in concerned:
            ends[reader.tp] = reader.until
            if reader.done:
                del readers[reader.tp], ends[reader.tp]
                if readers:
                    # Else what lies behind its range would be fetched, and fill the queue before the others.
                    client.unassign(reader.tp)
