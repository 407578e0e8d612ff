"""The columns of the source, for Spark and for Arrow.

Both are those of Spark's own Kafka source (``KafkaRecordToRowConverter``): same names, same types, every column
nullable.  How records become columns is said in `arrow`; nothing here knows Kafka's client.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType


def spark_schema(*, include_headers: bool) -> StructType:
    """The schema of the stream, equal to that of Spark's own Kafka source.

    Parameters
    ----------
    include_headers
        Whether the column ``headers`` is there (option ``includeHeaders``).

    Notes
    -----
    Spark's source marks each column nullable, also those that never are (topic, partition, offset), and gives a
    record without headers a null there, not an empty array.
    """
    from pyspark.sql import types as t

    schema = (
        t.StructType()
        .add("key", t.BinaryType())
        .add("value", t.BinaryType())
        .add("topic", t.StringType())
        .add("partition", t.IntegerType())
        .add("offset", t.LongType())
        .add("timestamp", t.TimestampType())
        .add("timestampType", t.IntegerType())
    )
    if include_headers:
        header = t.StructType().add("key", t.StringType()).add("value", t.BinaryType())
        schema.add("headers", t.ArrayType(header))
    return schema


@cache
def arrow_schema(*, include_headers: bool) -> pa.Schema:
    """The Arrow schema that Spark demands of the record batches for `spark_schema`.

    Since 4.2 Spark compares it for equality (SPARK-55583): time zone, unit, nullability and the name of the list's
    element all count.  It is what PySpark's ``to_arrow_schema(schema, timezone="UTC")`` returns, written down here
    so that a task need not derive it anew.
    """
    import pyarrow as pa

    fields = [
        pa.field("key", pa.binary()),
        pa.field("value", pa.binary()),
        pa.field("topic", pa.string()),
        pa.field("partition", pa.int32()),
        pa.field("offset", pa.int64()),
        pa.field("timestamp", pa.timestamp("us", tz="UTC")),
        pa.field("timestampType", pa.int32()),
    ]
    if include_headers:
        header = pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())])
        fields.append(pa.field("headers", pa.list_(pa.field("element", header))))
    return pa.schema(fields)
