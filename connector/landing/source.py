"""The source of landing: that of ``kafka-group``, whose tasks write files instead of returning rows.

Group membership, planning and commits are those of the source itself.
"""

from __future__ import annotations

import json
import pickle
from collections.abc import Iterable, Iterator, Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any, NoReturn

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from pyspark_kafka_group.landing.missing import uncovered
from pyspark_kafka_group.offsets.errors import ConfigurationError
from pyspark_kafka_group.offsets.types import TopicPartition
from pyspark_kafka_group.source import KafkaGroupDataSource, stream_reader_class
from pyspark_kafka_group.stores.lake_history import OffsetSpan
from pyspark_kafka_group.stream_reader import StreamReader, TaskPartition

if TYPE_CHECKING:
    import pyarrow as pa

    from pyspark_kafka_group.landing.files import NewFile
    from pyspark_kafka_group.landing.state import Files
    from pyspark_kafka_group.offsets.read_range import ReadRange
    from pyspark_kafka_group.offsets.types import OffsetRange

_FORMATS = {
    "delta": "pyspark_kafka_group.landing.delta_files",
    "iceberg": "pyspark_kafka_group.landing.iceberg_files",
}
"""The module of each format that writes files."""

TARGET = "landing.secret"
"""The option with the table, as JSON.  Spark redacts options whose name contains *secret*."""

RANGES = (
    StructType()
    .add("topic", "string")
    .add("partition", "integer")
    .add("start", "long")
    .add("until", "long")
    .add("files", "binary")
)
"""One row for each range of a task.  The last column is a pickled list of `NewFile`."""


class LandingSource(KafkaGroupDataSource):
    """``format("kafka-group-landing")``: a stream of the files that its tasks have written.

    Parameters
    ----------
    options : dict
        The options of a stream, and `TARGET`.
    """

    def __init__(self, options: dict[str, str]) -> None:
        found = [value for key, value in options.items() if key.lower() == TARGET]
        super().__init__({key: value for key, value in options.items() if key.lower() != TARGET})
        self._target: dict[str, Any] = json.loads(found[0]) if found else {}

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return "kafka-group-landing"

    def schema(self) -> StructType:
        """Return the columns of a range with its files."""
        return RANGES

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """Return a reader whose tasks write the records that `KafkaGroupDataSource` would return."""
        del schema
        if not self._target:
            self._refuse()
        reader = super().streamReader(StructType.fromJson(self._target["rows"]))
        if isinstance(reader, LandingReader):
            reader.target = self._target
        return reader

    def reader(self, schema: StructType) -> NoReturn:
        """Raise an error: only streams land."""
        self._refuse()

    def writer(self, schema: StructType, overwrite: bool) -> NoReturn:
        """Raise an error: only streams land."""
        self._refuse()

    def streamWriter(self, schema: StructType, overwrite: bool) -> NoReturn:
        """Raise an error: only streams land."""
        self._refuse()

    def _refuse(self) -> NoReturn:
        raise ConfigurationError("The format kafka-group-landing is internal. Use DeltaLanding(...).stream(...).")

    def _reader_class(self) -> type[StreamReader]:
        return LandingReader


class LandingReader(stream_reader_class()):  # type: ignore[misc]  # not a constant class
    """The stream reader of landing.

    Attributes
    ----------
    target : dict
        The table, as `TARGET` names it.
    """

    target: dict[str, Any]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Write the records of one task into files, and yield one row for each of its ranges."""
        assert isinstance(partition, TaskPartition)
        # Deliberate: not at the top.  Only executors need it.
        import pyarrow as pa

        from pyspark_kafka_group.columns.schema import to_arrow

        found = write_task(self.target, super().read(partition), partition.ranges)
        rows = [
            {
                "topic": tp.topic,
                "partition": tp.partition,
                "start": r.start,
                "until": r.until,
                "files": pickle.dumps(found[tp]),
            }
            for tp, r in partition.ranges.items()
        ]
        if rows:
            yield pa.RecordBatch.from_pylist(rows, schema=to_arrow(RANGES))


def write_task(
    target: Mapping[str, Any], batches: Iterator[pa.RecordBatch], ranges: Mapping[TopicPartition, OffsetRange]
) -> dict[TopicPartition, list[NewFile]]:
    """Write the records of a task into the place of a table.  Without ranges, only prepare the worker.

    Parameters
    ----------
    target : mapping
        The table, as its `Landing` describes it.
    batches : iterator of pyarrow.RecordBatch
        The records.
    ranges : mapping of TopicPartition to OffsetRange
        The ranges of the task.
    """
    writer = import_module(_FORMATS[target["format"]])
    found: dict[TopicPartition, list[NewFile]] = writer.write_task(target, batches, ranges)
    return found


def files_of(rows: Iterable[Any], ranges: Mapping[TopicPartition, ReadRange]) -> Files:
    """Return the files that the tasks of a batch have reported, in rows with the columns of `RANGES`.

    Raises
    ------
    ConfigurationError
        If the tasks have read other ranges than the batch has.
    """
    files: dict[TopicPartition, list[NewFile]] = {}
    parts: dict[TopicPartition, list[OffsetSpan]] = {}
    for row in rows:
        tp = TopicPartition(row["topic"], row["partition"])
        parts.setdefault(tp, []).append(OffsetSpan(row["start"], row["until"]))
        files.setdefault(tp, []).extend(pickle.loads(row["files"]))
    wrong = [tp for tp, r in ranges.items() if uncovered(OffsetSpan(r.start, r.until), parts.get(tp, ()))]
    if wrong or parts.keys() - ranges.keys():
        raise ConfigurationError(
            f"Landing: the tasks of this batch have not read what it reads of "
            f"{', '.join(map(str, wrong or sorted(parts.keys() - ranges.keys())))}, so nothing was committed. Pass the "
            f"stream of stream() to its own commit(), without a transformation between them."
        )
    return files
