"""Read exactly the records of an offset range of one partition, as Arrow record batches.

Runs in executors' Python workers, in the thread of the task.  A pure function of its arguments: it joins no group,
commits nothing, and may run again, or twice at once, for a retried or speculative task.  Where ranges come from is
the planner's business; which messages belong to one is decided in `range_reader`, columns are built in `arrow`,
consumers come from `consumer_cache`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from pyspark_kafka_group.arrow import RecordBatchBuilder
from pyspark_kafka_group.consumer_cache import CONSUMERS
from pyspark_kafka_group.range_reader import CHUNK_RECORDS, RangeReader

if TYPE_CHECKING:
    import pyarrow as pa

MAX_BATCH_BYTES = 32 * 1024 * 1024
"""Most data of one batch, unless a single record is larger.  It bounds the copy that Arrow makes; the messages copied
from are bounded by ``queued.max.messages.kbytes``.  Far below 2 GB, where an Arrow binary column ends."""


def read_range(
    client_config: Mapping[str, str],
    topic: str,
    partition: int,
    start: int,
    until: int,
    *,
    include_headers: bool,
    fail_on_data_loss: bool,
    timeout_s: float,
) -> Iterator[pa.RecordBatch]:
    """Read the records of one topic-partition with ``start <= offset < until``, in order.

    Offsets without a record (`range_reader` says which) are passed over.  Transient errors of brokers are retried by
    librdkafka as long as `timeout_s` allows.

    Parameters
    ----------
    client_config
        What `reader_config` returns.
    topic, partition
        The topic-partition.
    start, until
        The half-open range.  An empty one asks no broker.
    include_headers
        Whether the batches have the column ``headers``.
    fail_on_data_loss
        What to do about records that were deleted before they were read: raise, or warn and go on at the nearest
        offset that exists, within the range.
    timeout_s
        Longest time without progress.  The time that the caller spends between batches does not count.

    Yields
    ------
    pyarrow.RecordBatch
        With the schema `arrow_schema`; never empty, at most `CHUNK_RECORDS` records, and at most `MAX_BATCH_BYTES`
        of data unless a single record is larger.

    Raises
    ------
    DataLossError
        Records are lost, and `fail_on_data_loss` is set.
    ReadTimeoutError
        No progress for `timeout_s`.
    AuthenticationError
        The cluster keeps refusing the credentials, or the right to read the topic.
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
    if start >= until:
        return
    from confluent_kafka import KafkaException

    with CONSUMERS.lease(client_config) as client:
        reader = RangeReader(
            client, topic, partition, start, until, fail_on_data_loss=fail_on_data_loss, timeout_s=timeout_s
        )
        builder = RecordBatchBuilder(topic, partition, include_headers=include_headers, max_records=CHUNK_RECORDS)
        try:
            for columns in reader.read(include_headers=include_headers):
                yield from builder.build_bounded(columns, max_bytes=MAX_BATCH_BYTES)
        except KafkaException as error:
            raise reader.broker_error(error.args[0]) from None
