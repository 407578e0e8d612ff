"""Decodes the Arrow batches of a reader in executors, and handles malformed records by the policy.

A reader sends :class:`TypedReading` to executors, which describes how to decode.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark.sql import types as t

from pyspark_kafka_group.columns.limits import TooLargeError
from pyspark_kafka_group.columns.schema import COLUMNS, to_arrow
from pyspark_kafka_group.formats.decoder import TOO_LARGE, Decoded, Decoder, TextDecoder
from pyspark_kafka_group.formats.planning import ColumnPlan, column_plans
from pyspark_kafka_group.formats.registry import Definition, registry_of
from pyspark_kafka_group.offsets.errors import MalformedRecordError
from pyspark_kafka_group.options.format_settings import MALFORMED_COLUMN, Format, Formats, OnMalformed

if TYPE_CHECKING:
    import pyarrow as pa

    from pyspark_kafka_group.where.filtering import RowFilter, RowTest

Reasons = dict[int, dict[str, str]]
"""The reasons why values are malformed, by row and column."""

SendLetters = Callable[["pa.RecordBatch", Mapping[int, str]], None]
"""Writes rows of a batch to the dead letter topic, with the reason for each."""

_ORIGIN = ("topic", "partition", "offset")
_LETTER = ("key", "value", "headers", *_ORIGIN)


def columns_to_read(columns: tuple[str, ...], formats: Formats) -> tuple[str, ...]:
    """Return the columns to read, including the origin of each record and the columns for dead letters."""
    needed = {*columns, *(_LETTER if formats.on_malformed is OnMalformed.DEAD_LETTER else _ORIGIN)}
    return tuple(name for name in COLUMNS if name in needed)


class BatchDecoder:
    """Decodes batches of one task.

    Parameters
    ----------
    schema : StructType
        The columns that Spark expects.
    plans : tuple of ColumnPlan
        How to decode the columns.
    formats : Formats
        The options about formats.
    send : callable or None
        Writes dead letters and waits until Kafka has them.  Required for that policy.
    where : RowFilter or None
        Which records become rows; None for all.
    """

    def __init__(
        self,
        schema: t.StructType,
        plans: tuple[ColumnPlan, ...],
        formats: Formats,
        send: SendLetters | None = None,
        where: RowFilter | None = None,
    ) -> None:
        self._where = where
        self._schema = to_arrow(schema)
        self._policy = formats.on_malformed
        self._send = send
        self._decoders = {
            plan.format.column: _decoder(plan, self._schema.field(plan.format.column).type, formats.registry)
            for plan in plans
        }

    def decode(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Decode batches, each with the columns of `columns_to_read`.

        Raises
        ------
        MalformedRecordError
            If a record is malformed, and the policy is to fail.
        KafkaGroupError
            If the registry does not answer, or dead letters cannot be written.
        """
        for batch in batches:
            yield from self._in_parts(batch)

    def _in_parts(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Decode a batch as a whole, or in halves if its columns would be too large."""
        try:
            found = self._decoded(batch)
        except TooLargeError:
            found = None  # Deliberate: continue outside of `except`, whose error would keep the decoded columns alive
        if found is None:
            half = batch.num_rows // 2
            yield from self._in_parts(batch.slice(0, half))
            yield from self._in_parts(batch.slice(half))
        elif found.num_rows:
            yield found

    def _decoded(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        import pyarrow as pa

        columns: dict[str, pa.Array] = {}
        reasons: Reasons = {}
        test = None if self._where is None else self._where.test()
        if test is not None:
            batch = self._wanted(test, batch, columns, reasons)
        for name, decoder in self._decoders.items():
            columns[name], malformed = self._column(decoder, name, batch.column(name))
            for row, reason in malformed.items():
                reasons.setdefault(row, {})[name] = reason
            if test is not None:
                batch = self._wanted(test, batch, columns, reasons)
        if self._policy is OnMalformed.NULL:
            columns[MALFORMED_COLUMN] = _texts(reasons, batch.num_rows)
            if test is not None:
                batch = self._wanted(test, batch, columns, reasons)
        if reasons and self._policy is OnMalformed.FAIL:
            raise _error(batch, reasons)
        arrays = [columns[name] if name in columns else batch.column(name) for name in self._schema.names]
        found = pa.RecordBatch.from_arrays(arrays, schema=self._schema)
        if reasons and self._policy is OnMalformed.DEAD_LETTER:
            assert self._send is not None
            self._send(batch, {row: _text(found) for row, found in reasons.items()})
            found = found.filter(pa.array([row not in reasons for row in range(batch.num_rows)]))
        return found

    def _wanted(
        self, test: RowTest, batch: pa.RecordBatch, columns: dict[str, pa.Array], reasons: Reasons
    ) -> pa.RecordBatch:
        """Test the parts of the condition whose columns are there.  Drop rows from the batch, columns and reasons."""
        there = {name: batch.column(name) for name in batch.schema.names if name not in self._decoders} | columns
        malformed: dict[str, list[int]] = {}
        if self._policy is not OnMalformed.NULL:
            for row, found in reasons.items():
                for name in found:
                    malformed.setdefault(name, []).append(row)
        mask = test.step(there, batch.num_rows, malformed)
        if mask is None:
            return batch
        for name, values in columns.items():
            columns[name] = values.filter(mask)
        if reasons:
            kept = [row for row, keep in enumerate(mask.to_pylist()) if keep]
            left = {new: reasons[old] for new, old in enumerate(kept) if old in reasons}
            reasons.clear()
            reasons.update(left)
        return batch.filter(mask)

    def _column(self, decoder: Decoder, name: str, values: pa.BinaryArray) -> Decoded:
        """Decode a column.  A single record that is too large is malformed."""
        import pyarrow as pa

        try:
            return decoder.decode(values)
        except TooLargeError:
            if len(values) > 1:
                raise
        return Decoded(pa.nulls(1, self._schema.field(name).type), {0: TOO_LARGE})


def _decoder(plan: ColumnPlan, arrow_type: pa.DataType, registry: Mapping[str, str]) -> Decoder:
    """Return the decoder of a column.  Import only the modules of its format."""
    kind, definition = plan.format.format, plan.definition

    def definition_of(number: int) -> Definition:
        return registry_of(registry).by_id(number, kind.name)

    if kind is Format.STRING:
        return TextDecoder(arrow_type)
    if kind is Format.JSON:
        from pyspark_kafka_group.formats.json_decoder import JsonDecoder

        assert isinstance(plan.type, t.StructType)
        return JsonDecoder(plan.type, arrow_type)
    assert definition is not None
    if kind is Format.AVRO:
        from pyspark_kafka_group.formats.native_decoder import avro_decoder

        return avro_decoder(arrow_type, definition, definition_of if registry else None)
    from pyspark_kafka_group.formats.native_decoder import protobuf_decoder

    return protobuf_decoder(arrow_type, definition, plan.format.message, definition_of)


def _error(batch: pa.RecordBatch, reasons: Reasons) -> MalformedRecordError:
    row = min(reasons)
    column, reason = next(iter(reasons[row].items()))
    where: dict[str, Any] = {name: batch.column(name)[row].as_py() for name in _ORIGIN}
    return MalformedRecordError(**where, column=column, reason=reason)


def _text(reasons: Mapping[str, str]) -> str:
    """Return the reasons of a malformed record in one line."""
    return "; ".join(f"{column}: {reason}" for column, reason in reasons.items())


def _texts(reasons: Reasons, rows: int) -> pa.Array:
    import pyarrow as pa

    if not reasons:
        return pa.nulls(rows, pa.string())
    return pa.array([_text(reasons[row]) if row in reasons else None for row in range(rows)], pa.string())


@dataclass(frozen=True, slots=True, kw_only=True)
class TypedReading:
    """How to decode the records of a query.  Sent to executors.

    Attributes
    ----------
    schema : StructType
        The columns that Spark expects.
    columns : tuple of str
        The columns to read.
    plans : tuple of ColumnPlan
        How to decode the columns.
    formats : Formats
        The options about formats.
    """

    schema: t.StructType
    columns: tuple[str, ...]
    plans: tuple[ColumnPlan, ...]
    formats: Formats


def typed_reading(formats: Formats, columns: tuple[str, ...], schema: t.StructType) -> TypedReading:
    """Return how to decode to a schema; raise the errors of `planning.column_plans`."""
    return TypedReading(
        schema=schema,
        columns=columns_to_read(columns, formats),
        plans=column_plans(formats, columns, schema),
        formats=formats,
    )


def decoded(
    batches: Iterator[pa.RecordBatch], typed: TypedReading, send: SendLetters | None, where: RowFilter | None = None
) -> Iterator[pa.RecordBatch]:
    """Decode the batches of a task, which have at least the columns ``typed.columns``.  See `BatchDecoder`."""
    decoder = BatchDecoder(typed.schema, typed.plans, typed.formats, send, where)
    if isinstance(batches, Generator):
        with closing(batches):
            yield from decoder.decode(batches)
    else:
        yield from decoder.decode(batches)
