"""``format("ceiling")``: the upper limit of a Python source in Spark.

Tasks yield ready-made Arrow batches without Kafka.  Columns, sizes and rows per batch are equal to those of
``kafka-group``, and tasks also begin without the kernel's delay.  So the rest is Spark's own work.  A worker makes one
batch and yields it repeatedly.  The batch stays in the processor's cache, so a real source can come near this
throughput, but not reach it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from benchmarks.records import Shape
from pyspark_kafka_group.columns.limits import MAX_BATCH_BYTES, MAX_BATCH_RECORDS
from pyspark_kafka_group.columns.schema import COLUMNS, DEFAULT_COLUMNS, arrow_schema, spark_schema
from pyspark_kafka_group.worker.costs import SentToWorkers

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass
class CeilingPartition(InputPartition):
    """The number of rows that one task yields."""

    number: int
    rows: int


class CeilingDataSource(DataSource):
    """A stream of a given number of equal rows.

    Options: ``rows`` in all, ``maxRows`` per batch, ``partitions``, and the record's shape: ``valueSize``, ``keySize``,
    ``headers``.
    """

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return "ceiling"

    def _shape(self) -> Shape:
        return Shape(
            value_size=int(self.options["valueSize"]),
            key_size=int(self.options["keySize"]),
            headers=int(self.options["headers"]),
        )

    def schema(self) -> StructType:
        """Return the columns of ``kafka-group``."""
        return spark_schema(columns_of(self._shape()))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """Return a reader."""
        return _Reader(
            self._shape(),
            rows=int(self.options["rows"]),
            max_rows=int(self.options["maxRows"]),
            partitions=int(self.options["partitions"]),
        )


class _Reader(SentToWorkers, DataSourceStreamReader, SupportsTriggerAvailableNow):
    def __init__(self, shape: Shape, *, rows: int, max_rows: int, partitions: int) -> None:
        self._shape = shape
        self._rows = rows
        self._max_rows = max_rows
        self._partitions = partitions

    def prepareForTriggerAvailableNow(self) -> None:
        pass

    def getDefaultReadLimit(self) -> ReadLimit:
        return ReadMaxRows(self._max_rows)

    def initialOffset(self) -> dict[str, int]:
        return {"rows": 0}

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:
        most = limit.max_rows if isinstance(limit, ReadMaxRows) else self._rows
        return {"rows": min(self._rows, start["rows"] + most)}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[InputPartition]:
        rows, count = end["rows"] - start["rows"], self._partitions
        return [CeilingPartition(n, rows // count + (n < rows % count)) for n in range(count)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, CeilingPartition)
        per_batch = max(1, min(MAX_BATCH_RECORDS, MAX_BATCH_BYTES // self._shape.data_bytes))
        batch = of_partition(ready_made(self._shape, per_batch), partition.number)
        left = partition.rows
        while left >= batch.num_rows:
            yield batch
            left -= batch.num_rows
        if left:
            yield batch.slice(0, left)


def columns_of(shape: Shape) -> tuple[str, ...]:
    """Return the columns of ``kafka-group`` for such records."""
    return COLUMNS if shape.headers else DEFAULT_COLUMNS


def of_partition(batch: pa.RecordBatch, number: int) -> pa.RecordBatch:
    """Return the batch with another partition number, without a copy of the other columns."""
    import pyarrow as pa

    numbers = pa.repeat(pa.scalar(number, pa.int32()), batch.num_rows)
    columns = [numbers if field.name == "partition" else batch.column(field.name) for field in batch.schema]
    return pa.RecordBatch.from_arrays(columns, schema=batch.schema)


@cache
def ready_made(shape: Shape, rows: int) -> pa.RecordBatch:
    """Return one batch like those of ``kafka-group`` for such records.  Each process makes it once."""
    import pyarrow as pa

    schema = arrow_schema(columns_of(shape))
    values = shape.values(most=rows)
    columns: dict[str, Any] = {
        "key": [shape.key(n) for n in range(rows)],
        "value": [values[n % len(values)] for n in range(rows)],
        "topic": ["bench-00000000"] * rows,
        "partition": [0] * rows,
        "offset": list(range(rows)),
        "timestamp": [1_750_000_000_000_000] * rows,
        "timestampType": [0] * rows,
    }
    if shape.headers:
        columns["headers"] = [[{"key": k, "value": v} for k, v in shape.header_list()]] * rows
    return pa.RecordBatch.from_arrays([pa.array(columns[f.name], f.type) for f in schema], schema=schema)
