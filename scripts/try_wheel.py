"""Read from a mock broker with the installed package, and fail unless its C library has read.

With ``--pure`` it fails if the package has a C library.

It needs no other file of the repository and no network.  `try-wheel.sh` runs it where a wheel is installed.
"""

from __future__ import annotations

import platform
import sys

from confluent_kafka import Producer

from pyspark_kafka_group.columns.chunk_reader import CHUNKS
from pyspark_kafka_group.columns.schema import COLUMNS
from pyspark_kafka_group.offsets.types import OffsetRange, TopicPartition
from pyspark_kafka_group.reading.client_cache import CONSUMERS
from pyspark_kafka_group.reading.direct_client import DirectClient
from pyspark_kafka_group.reading.range_reader import ReadOptions
from pyspark_kafka_group.reading.reader_config import reader_config
from pyspark_kafka_group.reading.task_reader import read_ranges
from pyspark_kafka_group.testing import MockKafka

VALUES = [b"%d" % number for number in range(10_000)]


def main(*, pure: bool = False) -> None:
    """Read some records, and print which library has read them."""
    library = CHUNKS.library
    assert (library is None) == pure, CHUNKS.problem
    with MockKafka() as kafka:
        kafka.create_topic("orders")
        produce(kafka)
        config = reader_config({"bootstrap.servers": kafka.bootstrap_servers}, "etl")
        ranges = {TopicPartition("orders", 0): OffsetRange.checked(0, len(VALUES))}
        options = ReadOptions(columns=COLUMNS, fail_on_data_loss=True, timeout_s=30)
        batches = list(read_ranges(config, ranges, options))
        assert [value for batch in batches for value in batch["value"].to_pylist()] == VALUES
        with CONSUMERS.lease(config) as client:
            assert isinstance(client, DirectClient) != pure, f"{type(client).__name__} has read"
        CONSUMERS.close_idle()
    where = f"{platform.system()} {platform.machine()}, Python {platform.python_version()}"
    print(f"{len(VALUES):,} records read on {where}, by {library._name if library else 'Python'}")


def produce(kafka: MockKafka) -> None:
    """Write all values.  The producer ends here, before the broker ends."""
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers, "compression.type": "zstd"})
    for value in VALUES:
        producer.produce("orders", value, partition=0, headers=[("n", value)])
    assert producer.flush(30) == 0


if __name__ == "__main__":
    main(pure="--pure" in sys.argv[1:])
