"""Drops the rows of a task that the option ``where`` does not want, as early as possible.

The parts of a condition that ``AND`` connects are tested one by one: those that need no decoded column first.  So a
value that they drop is not decoded, and cannot be malformed.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from pyspark_kafka_group.columns.schema import COLUMNS, arrow_schema
from pyspark_kafka_group.offsets.errors import ConditionError
from pyspark_kafka_group.where.expressions import And, Expression

_ORIGIN = ("topic", "partition", "offset")


@dataclass(frozen=True, slots=True)
class RowFilter:
    """The option ``where`` of a query, parsed.  Sent to executors.

    Attributes
    ----------
    text : str
        The option, for errors.
    parts : tuple of Expression
        The parts that ``AND`` connects, in the order of the text.
    """

    text: str
    parts: tuple[Expression, ...]

    def columns_to_read(self, columns: Collection[str]) -> tuple[str, ...]:
        """Return the columns to read, for rows with some columns."""
        needed = {*columns}.union(*(part.names for part in self.parts))
        if any(part.can_fail for part in self.parts):
            needed.update(_ORIGIN)
        return tuple(name for name in COLUMNS if name in needed)

    def test(self) -> RowTest:
        """Begin the test of a batch."""
        return RowTest(self)

    def rows(self, batches: Iterator[pa.RecordBatch], columns: tuple[str, ...]) -> Iterator[pa.RecordBatch]:
        """Yield the wanted rows of batches of bytes, with some columns.  Close the batches at the end.

        Raises
        ------
        ConditionError
            If the condition fails for a record.
        """
        try:
            for batch in batches:
                mask = self.test().step({name: batch.column(name) for name in batch.schema.names}, batch.num_rows)
                found = batch.select(columns) if mask is None else batch.select(columns).filter(mask)
                if found.num_rows:
                    yield found
        finally:
            close = getattr(batches, "close", None)
            if close is not None:
                close()


class RowTest:
    """The test of one batch.  Each step tests the parts whose columns are there."""

    def __init__(self, wanted: RowFilter) -> None:
        self._text = wanted.text
        self._parts = list(wanted.parts)

    def step(
        self, columns: Mapping[str, pa.Array], rows: int, malformed: Mapping[str, Collection[int]] | None = None
    ) -> pa.BooleanArray | None:
        """Return which rows to keep; None for all.

        Parameters
        ----------
        columns : mapping of str to pyarrow.Array
            The columns that are there, and those that only errors need.
        rows : int
            The number of rows.
        malformed : mapping of str to collection of int
            The rows in which a column could not be decoded.  A part that needs it decides nothing for them.

        Raises
        ------
        ConditionError
            If a part fails for a row that the parts before it keep.
        """
        kept: pa.BooleanArray | None = None
        waiting: list[Expression] = []
        for part in self._parts:
            # Deliberate: a part that may fail is tested after all parts before it, which may exclude that.
            if not part.names <= columns.keys() or (part.can_fail and waiting):
                waiting.append(part)
                continue
            found = part.evaluate(columns, rows)
            unknown = {row for name in part.names for row in (malformed or {}).get(name, ())}
            mask = pc.fill_null(found.values, False)
            failed = found.failed
            if unknown:
                undecided = pa.array([row in unknown for row in range(rows)])
                mask = pc.or_(mask, undecided)
                failed = None if failed is None else pc.and_(failed, pc.invert(undecided))
            if failed is not None:
                self._check(failed if kept is None else pc.and_(failed, kept), columns)
            kept = mask if kept is None else pc.and_(kept, mask)
        self._parts = waiting
        return None if kept is None or pc.all(kept).as_py() else kept

    def _check(self, failed: pa.BooleanArray, columns: Mapping[str, pa.Array]) -> None:
        row = failed.index(True).as_py()
        if row >= 0:
            topic, partition, offset = (columns[name][row].as_py() for name in _ORIGIN)
            raise ConditionError(topic=topic, partition=partition, offset=offset, condition=self._text)


def row_filter(text: str, schema: pa.Schema) -> RowFilter:
    """Return the parsed option ``where``.

    Parameters
    ----------
    text : str
        The option.
    schema : pyarrow.Schema
        The columns of the rows, with the types of decoded ones.  The other columns of the source may be used, too.

    Raises
    ------
    OptionError
        If it cannot be parsed, or has a part that is not supported.
    """
    from pyspark_kafka_group.where.parsing import parse_condition  # only the driver needs it

    types = {field.name: field.type for field in [*arrow_schema(COLUMNS), *schema]}
    return RowFilter(text, tuple(_parts(parse_condition(text, types))))


def _parts(condition: Expression) -> list[Expression]:
    if isinstance(condition, And):
        return [*_parts(condition.left), *_parts(condition.right)]
    return [condition]
