"""Reads the ranges of one task with one consumer, in one thread; a `RangeReader` decides what happens to each range."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from pyspark_kafka_group.offsets.types import OffsetRange, TopicPartition
from pyspark_kafka_group.reading.range_reader import WAIT_S, Idle, RangeReader, ReadOptions
from pyspark_kafka_group.reading.reader_client import ReaderClient, Records

if TYPE_CHECKING:
    import pyarrow as pa


class TaskReader:
    """Reads ranges of different partitions with one consumer, in whatever order their records come.

    Parameters
    ----------
    client
        The consumer; nobody else uses it meanwhile.
    ranges
        What to read of each partition.  A range that is empty is passed over.
    options
        How.
    """

    def __init__(
        self, client: ReaderClient, ranges: Mapping[TopicPartition, OffsetRange], options: ReadOptions
    ) -> None:
        self._client = client
        self._columns = options.columns
        self._idle = Idle()
        self._readers = {tp: RangeReader(client, tp, r, options, self._idle) for tp, r in ranges.items() if r.size}

    def read(self) -> Iterator[pa.RecordBatch]:
        """The records of the ranges, those of each range in order."""
        readers = self._readers
        self._client.assign({tp: reader.rest for tp, reader in readers.items()}, self._columns)
        self._idle.restart()
        ends = {tp: reader.until for tp, reader in readers.items()}
        while readers:
            found = self._client.poll(ends, WAIT_S)
            if isinstance(found, Records):
                readers[found.tp].on_records(found)
                if found.batch is not None:
                    yield found.batch
                self._client.errors.clear()
                self._idle.restart()
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
                        self._client.unassign(reader.tp)
