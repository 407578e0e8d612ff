"""How executors decode: the description that a reader takes to them, and the function that does it."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql.types import StructType

from pyspark_kafka_group.formats.batches import BatchDecoder, columns_to_read
from pyspark_kafka_group.formats.planning import ColumnPlan, column_plans
from pyspark_kafka_group.options.format_settings import Formats

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True, slots=True, kw_only=True)
class TypedReading:
    """How the records of a query are decoded.  Sent to executors.

    Attributes
    ----------
    schema : StructType
        The columns that Spark expects.
    columns : tuple of str
        What a reader of bytes has to give.
    plans : tuple of ColumnPlan
        How columns are decoded.
    formats : Formats
        What the options say.
    """

    schema: StructType
    columns: tuple[str, ...]
    plans: tuple[ColumnPlan, ...]
    formats: Formats


def typed_reading(formats: Formats, columns: tuple[str, ...], schema: StructType) -> TypedReading:
    """Return how to decode, to give a schema; raises what `planning.column_plans` does."""
    return TypedReading(
        schema=schema,
        columns=columns_to_read(columns, formats),
        plans=column_plans(formats, columns, schema),
        formats=formats,
    )


def decoded(
    batches: Iterator[pa.RecordBatch], typed: TypedReading, properties: Mapping[str, str], reader_name: str
) -> Iterator[pa.RecordBatch]:
    """Decode the batches of a task.

    Parameters
    ----------
    batches
        As they are read, with ``typed.columns``.
    typed
        How.
    properties
        The user's ``kafka.*`` properties, for dead letters.
    reader_name
        What the reader is called.
    """
    send = None
    if typed.formats.dead_letter_topic is not None:
        # Deliberate: not at the top.  It brings a producer.
        from pyspark_kafka_group.formats.dead_letters import DeadLetters

        send = DeadLetters(properties, typed.formats.dead_letter_topic, f"{reader_name}-dead-letters").send
    decoder = BatchDecoder(typed.schema, typed.plans, typed.formats, send)
    if isinstance(batches, Generator):
        with closing(batches):
            yield from decoder.decode(batches)
    else:
        yield from decoder.decode(batches)
