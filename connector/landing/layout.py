"""How the rows of a table are arranged in files: its further columns, and what each file has one value of."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import date
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from pyspark_kafka_group.landing.errors import refused_time

DAY = "day(timestamp)"
"""The day of the record's timestamp, in UTC, which is not a column of the table."""

SNAPPY = "snappy"
"""The codec of Spark's Parquet files, which Delta's are."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """How the rows of a table are arranged in files.  Sent to executors.

    Attributes
    ----------
    table : str
        The id of the table.
    day_column : str or None
        A column for the day of the record's timestamp.  The source does not have it.
    field_columns : mapping of str to str
        Columns that each repeat a field of the source, and that field.
    one_value : tuple of str
        What a file has one value of, besides its topic and partition.  `DAY`, columns, and fields of structs.
    empty_is_null : bool
        Whether an empty text in a column of ``one_value`` becomes null, as Delta reads it.
    file_bytes : int
        A file that has reached this size ends.
    compression : str
        The codec of the files, as pyarrow names it.
    """

    table: str
    day_column: str | None = None
    field_columns: Mapping[str, str] = field(default_factory=dict)
    one_value: tuple[str, ...] = ()
    empty_is_null: bool = False
    file_bytes: int = 256_000_000
    compression: str = SNAPPY

    @classmethod
    def from_json(cls, layout: Mapping[str, Any]) -> Layout:
        """Return the layout of its fields as JSON."""
        return cls(**{**layout, "one_value": tuple(layout["one_value"])})

    def columns(self, source: pa.Schema) -> pa.Schema:
        """Return the columns of the table for the columns of the source."""
        found = source if self.day_column is None else source.append(pa.field(self.day_column, pa.date32()))
        for name, path in self.field_columns.items():
            found = found.append(pa.field(name, field_at(source, path)))
        return found

    def parts(self, rows: pa.Table) -> Iterator[tuple[dict[str, Any], pa.Table]]:
        """Yield the rows of each file, with the further columns, and with what the file has one value of.

        A record has no day if its timestamp is null, or not of the years 1 to 9999: readers in Python cannot read
        others.

        Raises
        ------
        RefusedRecordError
            If a record has no day, and `DAY` needs one.
        """
        shared: dict[str, pa.ChunkedArray] = {}
        if self.day_column is not None or DAY in self.one_value:
            days = _days(rows, must=DAY in self.one_value)
            if self.day_column is not None:
                rows = rows.append_column(pa.field(self.day_column, pa.date32()), days)
            else:
                shared[DAY] = days
        for name, path in self.field_columns.items():
            rows = rows.append_column(name, _values(rows, path))
        if self.empty_is_null:
            for name in self.one_value:
                rows = _without_empty(rows, name)
        shared |= {path: _values(rows, path) for path in self.one_value if path != DAY}
        if not shared:
            yield {}, rows
            return
        # Deliberate: sorted once, and not filtered for each value, of which records may have very many.
        keys = pa.table([*shared.values()], names=[str(number) for number in range(len(shared))])
        by, at = [(name, "ascending") for name in keys.column_names], 0
        rows = rows.take(pc.sort_indices(keys, by))  # keeps the order of offsets
        # Deliberate: sorted as the rows are.  Arrow (26) gives groups whose hashes collide in another order.
        groups = keys.group_by(keys.column_names, use_threads=False).aggregate([([], "count_all")]).sort_by(by)
        for *values, count in zip(*(column.to_pylist() for column in groups.columns), strict=True):
            yield dict(zip(shared, values, strict=True)), rows.slice(at, count)
            at += count


def field_at(schema: pa.Schema, path: str) -> pa.DataType | None:
    """Return the type of a column, or of a field of structs such as ``value.region``; None if there is none."""
    found: Any = schema
    for name in path.split("."):
        if not isinstance(found, pa.Schema | pa.StructType) or name not in found.names:
            return None
        found = found.field(name).type
    return found


def can_be_shared(kind: pa.DataType | None) -> bool:
    """Return whether a file can have one value of this type: a text, a whole number, or a boolean."""
    return kind is not None and (
        pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_integer(kind) or kind == pa.bool_()
    )


def _values(rows: pa.Table, path: str) -> pa.ChunkedArray:
    column, *fields = path.split(".")
    return pc.struct_field(rows.column(column), fields) if fields else rows.column(column)


def _without_empty(rows: pa.Table, name: str) -> pa.Table:
    number, values = rows.column_names.index(name), rows.column(name)
    if not pa.types.is_string(values.type) and not pa.types.is_large_string(values.type):
        return rows
    return rows.set_column(number, rows.field(number), pc.if_else(pc.equal(values, ""), None, values))


def _days(rows: pa.Table, *, must: bool) -> pa.ChunkedArray:
    """Return the days of the timestamps, in UTC.  Python does not know all days: raise if it must, and does not."""
    # Deliberate: in UTC, as Spark's own date of a timestamp would depend on the session's time zone.
    days = rows.column("timestamp").cast(pa.date32())
    known = pc.and_(pc.greater_equal(days, date.min), pc.less_equal(days, date.max))
    days = pc.if_else(known, days, pa.scalar(None, pa.date32()))
    if must and days.null_count > rows.column("timestamp").null_count:
        first = rows.filter(pc.invert(pc.fill_null(known, True))).slice(0, 1)
        raise refused_time(*(first.column(name)[0].as_py() for name in ("topic", "partition", "offset")))
    return days
