"""`into`, which appends rows to a table with the same columns, in the fastest way of each database.  In executors."""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark_kafka_group.offsets.errors import ConfigurationError
from pyspark_kafka_group.stores.errors import CopyError, RefusedValueError, named

if TYPE_CHECKING:
    import pyarrow as pa
    import sqlalchemy as sa

_SOURCE_COLUMNS = ("topic", "partition", "offset")


def into(table: str, *, columns: Sequence[str] | None = None, schema: str | None = None) -> BulkLoad:
    """Return a ``write_rows`` that appends rows to a table: by COPY in PostgreSQL, by one prepared statement in SQLite.

    Parameters
    ----------
    table : str
        The table.  Its columns have the names of the rows' columns.
    columns : sequence of str, optional
        The columns to write.  By default all but ``topic``, ``partition`` and ``offset``.
    schema : str, optional
        The schema of the table.  By default the first one in the database's search path.

    Notes
    -----
    PostgreSQL reads the values as text, so you can write a string to a column of type ``jsonb`` or ``uuid``.  Convert
    arrays, maps and structs to strings first, with ``to_json``.  SQLite gets timestamps in UTC, and decimals and times
    of the day as text.
    A timestamp without a zone counts as UTC in a column with a zone.
    """
    return BulkLoad(table, None if columns is None else tuple(columns), schema)


@dataclass(frozen=True, slots=True)
class BulkLoad:
    """The result of :func:`into`.  Sent to executors."""

    table: str
    columns: tuple[str, ...] | None
    schema: str | None

    def __call__(self, connection: sa.Connection, rows: pa.RecordBatch) -> None:
        """Append rows.

        Raises
        ------
        ConfigurationError
            If a column does not exist, or has a type without a text form.
        """
        usual = [name for name in rows.schema.names if name not in _SOURCE_COLUMNS]
        names = usual if self.columns is None else list(self.columns)
        missing = [name for name in names if name not in rows.schema.names]
        if missing or not names:
            raise ConfigurationError(
                f"into({self.table!r}): no column {', '.join(missing)} in the rows: they have "
                f"{', '.join(rows.schema.names)}."
            )
        chosen = rows.select(names)
        if connection.dialect.name == "postgresql":
            self._copy(connection, chosen)
        else:
            self._insert(connection, chosen)

    def _copy(self, connection: sa.Connection, rows: pa.RecordBatch) -> None:
        import psycopg

        # Deliberate: not SQLAlchemy's quotes.  They double a percent sign, which COPY does not undo
        # (`test_names_may_have_any_character`).
        table = ".".join(_quoted(name) for name in (self.schema, self.table) if name)
        columns = ", ".join(_quoted(name) for name in rows.schema.names)
        # Deliberate: with the encoding.  The default is the client encoding, which a database, a role or the
        # environment of an executor sets (`test_text_is_utf_8_whatever_the_client_encoding`).
        statement = f"COPY {table} ({columns}) FROM STDIN (FORMAT csv, ENCODING 'UTF8')"
        text = as_csv(rows, self.table)
        driver: Any = connection.connection.driver_connection
        try:
            with driver.cursor() as cursor, cursor.copy(statement) as copy:
                copy.write(text)
        except psycopg.Error as e:
            # Deliberate: from None.  The text of the cause shows data
            # (`test_a_refused_record_is_named_without_its_data_and_can_be_set_aside`).
            raise CopyError(
                f"COPY into {self.table!r}: {named(e, rows.schema.names)}{_reason(e)}.", sqlstate=e.sqlstate or ""
            ) from None

    def _insert(self, connection: sa.Connection, rows: pa.RecordBatch) -> None:
        import sqlalchemy as sa

        columns = [sa.column(field.name, _sqlite_type(field.type)) for field in rows.schema]
        connection.execute(sa.table(self.table, *columns, schema=self.schema).insert(), as_parameters(rows, self.table))


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _reason(error: Any) -> str:
    """Return the text of an error that contains no data: syntax, rights, missing tables."""
    primary = error.diag.message_primary if (error.sqlstate or "").startswith("42") else None
    return f": {primary}" if primary else ""


def as_csv(rows: pa.RecordBatch, table: str) -> bytes:
    """Return rows as CSV for PostgreSQL's COPY: nulls without quotes, all values with quotes.

    Raises
    ------
    ConfigurationError
        If a column has a type without a text form.
    """
    import pyarrow as pa
    from pyarrow import csv

    columns = []
    for field, column in zip(rows.schema, rows.columns, strict=True):
        _check_type(field, table)
        _check_years(field, column, table)
        if pa.types.is_binary(field.type) or pa.types.is_large_binary(field.type):
            hexadecimal = [None if value is None else f"\\x{value.hex()}" for value in column.to_pylist()]
            columns.append(pa.array(hexadecimal, pa.string()))
        elif _is_zoned(field.type):
            columns.append(column.cast(pa.timestamp("us", "UTC")))  # written with Z, and not with a zone's offset
        else:
            columns.append(column)
    text = io.BytesIO()
    options = csv.WriteOptions(include_header=False, quoting_style="all_valid")
    csv.write_csv(pa.RecordBatch.from_arrays(columns, rows.schema.names), text, options)
    return text.getvalue()


def as_parameters(rows: pa.RecordBatch, table: str) -> list[dict[str, Any]]:
    """Return rows as parameters for SQLite's driver.

    Raises
    ------
    ConfigurationError
        If a column has a type without a text form.
    """
    import pyarrow as pa

    columns = []
    for field, column in zip(rows.schema, rows.columns, strict=True):
        _check_type(field, table)
        _check_years(field, column, table)
        _check_numbers(field, column, table)
        _check_text(field, column, table)
        if _is_zoned(field.type):
            columns.append(column.cast(pa.timestamp("us", "UTC")).cast(pa.timestamp("us")))
        elif pa.types.is_decimal(field.type) or pa.types.is_time(field.type):
            columns.append(column.cast(pa.string()))
        else:
            columns.append(column)
    return pa.RecordBatch.from_arrays(columns, rows.schema.names).to_pylist()  # type: ignore[no-any-return]


def _check_type(field: pa.Field, table: str) -> None:
    import pyarrow as pa

    if pa.types.is_nested(field.type) or pa.types.is_duration(field.type) or pa.types.is_interval(field.type):
        raise ConfigurationError(
            f"into({table!r}): column {field.name!r} is of type {field.type}, which has no text form that databases "
            f"agree on. Convert it to a string first, with to_json or a cast, or write the rows with your own function."
        )


_DAYS = (-719_162, 2_932_896)  # from 0001-01-01 to 9999-12-31
_PER_DAY = {"s": 86_400, "ms": 86_400_000, "us": 86_400_000_000, "ns": 86_400_000_000_000}


def _check_years(field: pa.Field, column: pa.Array, table: str) -> None:
    """Refuse dates outside of SQL's years 1 to 9999.  Arrow would write another year."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if pa.types.is_timestamp(field.type):
        per_day = _PER_DAY[field.type.unit]
        numbers = column.cast(pa.int64())
    elif pa.types.is_date32(field.type):
        per_day = 1
        numbers = column.cast(pa.int32()).cast(pa.int64())
    elif pa.types.is_date64(field.type):
        per_day = _PER_DAY["ms"]
        numbers = column.cast(pa.int64())
    else:
        return
    found = pc.min_max(numbers).as_py()
    if found["min"] is None:
        return
    if found["min"] < _DAYS[0] * per_day or found["max"] >= (_DAYS[1] + 1) * per_day:
        raise RefusedValueError(
            f"into({table!r}): column {field.name!r} has a time outside of the years 1 to 9999. Perhaps a producer has "
            f"used another unit."
        )


def _check_numbers(field: pa.Field, column: pa.Array, table: str) -> None:
    """Refuse NaN, which SQLite would store as NULL."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if pa.types.is_floating(field.type) and pc.any(pc.is_nan(column)).as_py():
        raise RefusedValueError(f"into({table!r}): column {field.name!r} has a NaN, which SQLite stores as NULL.")


def _check_text(field: pa.Field, column: pa.Array, table: str) -> None:
    """Refuse text that is not UTF-8, which PostgreSQL refuses itself."""
    import pyarrow as pa

    if pa.types.is_string(field.type) or pa.types.is_large_string(field.type):
        try:
            column.validate(full=True)
        except pa.ArrowInvalid:
            raise RefusedValueError(f"into({table!r}): column {field.name!r} has text that is not UTF-8.") from None


def _is_zoned(arrow: pa.DataType) -> bool:
    import pyarrow as pa

    return pa.types.is_timestamp(arrow) and arrow.tz is not None


def _sqlite_type(arrow: pa.DataType) -> sa.types.TypeEngine[Any]:
    import pyarrow as pa
    import sqlalchemy as sa

    if pa.types.is_timestamp(arrow):
        return sa.DateTime()
    return sa.Date() if pa.types.is_date(arrow) else sa.types.NullType()
