"""The columns of the source, for Spark and for Arrow.

They equal those of Spark's own Kafka source (``KafkaRecordToRowConverter``): same names, same types, every column
nullable.  `from_messages` and `chunk_reader` build the columns.  Nothing here depends on Kafka's client.
"""

from __future__ import annotations

from functools import cache
from inspect import signature
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import DataType, StructType

COLUMNS = ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType", "headers")
"""All columns, in order."""

DEFAULT_COLUMNS = COLUMNS[:-1]
"""Without ``headers``, as in Spark's own source."""


def spark_schema(columns: tuple[str, ...]) -> StructType:
    """Return the schema of the stream, which equals that of Spark's own Kafka source for the same columns.

    Parameters
    ----------
    columns
        The names of the columns, a subsequence of `COLUMNS`.

    Notes
    -----
    Spark's source declares each column nullable, even those that are never null (topic, partition, offset).  For a
    record without headers, it returns null, not an empty array.
    """
    from pyspark.sql import types as t

    header = t.StructType().add("key", t.StringType()).add("value", t.BinaryType())
    column_types: dict[str, t.DataType] = {
        "key": t.BinaryType(),
        "value": t.BinaryType(),
        "topic": t.StringType(),
        "partition": t.IntegerType(),
        "offset": t.LongType(),
        "timestamp": t.TimestampType(),
        "timestampType": t.IntegerType(),
        "headers": t.ArrayType(header),
    }
    return t.StructType([t.StructField(name, column_types[name]) for name in columns])


@cache
def arrow_schema(columns: tuple[str, ...]) -> pa.Schema:
    """Return the Arrow schema that Spark requires for `spark_schema`.  Needs no PySpark."""
    import pyarrow as pa

    header = pa.struct([("key", pa.string()), ("value", pa.binary())])
    types = {
        "key": pa.binary(),
        "value": pa.binary(),
        "topic": pa.string(),
        "partition": pa.int32(),
        "offset": pa.int64(),
        "timestamp": pa.timestamp("us", "UTC"),
        "timestampType": pa.int32(),
        "headers": pa.list_(pa.field("element", header)),
    }
    return pa.schema([(name, types[name]) for name in columns])


def own_schema(schema: Any) -> StructType:
    """Return a schema that an engine has passed, in the classes of this process's PySpark.

    Every schema comes in through this.  Databricks runs a second copy of PySpark, whose classes have the same names but
    are others.  Sail passes Arrow's schemas.
    """
    from pyspark.sql import types as t

    if isinstance(schema, t.StructType):
        return schema
    if hasattr(schema, "jsonValue"):
        return t.StructType.fromJson(schema.jsonValue())
    from pyspark.sql.pandas.types import from_arrow_schema

    return from_arrow_schema(schema)


def to_arrow(schema: StructType) -> pa.Schema:
    """Return the Arrow schema that Spark requires for a schema.

    Since 4.2 Spark compares it for equality (SPARK-55583), including time zone, unit, nullability and the name of the
    list's element.
    """
    # Deliberate: Spark's own function, and not at the top.  Each worker has imported it before it calls a source.
    from pyspark.sql.pandas.types import to_arrow_schema

    if "timezone" in signature(to_arrow_schema).parameters:
        return to_arrow_schema(schema, timezone="UTC")
    return to_arrow_schema(schema)  # before 4.2, times are always in UTC


def to_arrow_type(kind: DataType) -> pa.DataType:
    """Return the Arrow type of a column."""
    from pyspark.sql import types as t

    return to_arrow(t.StructType([t.StructField("value", kind)])).field(0).type
