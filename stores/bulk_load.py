"""`into`: rows into a table of the same columns, by the fastest way that a database has.  In executors' Python."""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark_kafka_group.offsets.errors import ConfigurationError

if TYPE_CHECKING:
    import pyarrow as pa
    import sqlalchemy as sa

_SOURCE_COLUMNS = ("topic", "partition", "offset")


def into(table: str, *, columns: Sequence[str] | None = None, schema: str | None = None) -> BulkLoad:
    """Return a ``write_rows`` that appends rows to a table: by COPY in PostgreSQL, by one prepared statement in SQLite.

    Parameters
    ----------
    table : str
        The table.  It has columns of the same names as the rows.
    columns : sequence of str, optional
        What to write.  By default everything but ``topic``, ``partition`` and ``offset``.
    schema : str, optional
        The table's schema; by default the one where the database looks first.

    Notes
    -----
    PostgreSQL reads the values as text, so a string may go into a column of type ``jsonb`` or ``uuid``.  Arrays, maps
    and structs have to be made strings before, with ``to_json``.  SQLite gets timestamps in UTC, and decimals as text.
    """
    return BulkLoad(table, None if columns is None else tuple(columns), schema)


@dataclass(frozen=True, slots=True)
class BulkLoad:
    """What :func:`into` returns; travels to executors."""

    table: str
    columns: tuple[str, ...] | None
    schema: str | None

    def __call__(self, connection: sa.Connection, rows: pa.RecordBatch) -> None:
        """Append rows.

        Raises
        ------
        ConfigurationError
            If a column is not there, or of a type that has no text.
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
        quote = connection.dialect.identifier_preparer.quote_identifier
        table = ".".join(quote(name) for name in (self.schema, self.table) if name)
        columns = ", ".join(quote(name) for name in rows.schema.names)
        driver: Any = connection.connection.driver_connection
        with driver.cursor() as cursor, cursor.copy(f"COPY {table} ({columns}) FROM STDIN (FORMAT csv)") as copy:
            copy.write(as_csv(rows, self.table))

    def _insert(self, connection: sa.Connection, rows: pa.RecordBatch) -> None:
        import sqlalchemy as sa

        columns = [sa.column(field.name, _sqlite_type(field.type)) for field in rows.schema]
        connection.execute(sa.table(self.table, *columns, schema=self.schema).insert(), as_parameters(rows, self.table))


def as_csv(rows: pa.RecordBatch, table: str) -> bytes:
    """Return rows as PostgreSQL's COPY reads them; what is null has no quotes, everything else has.

    Raises
    ------
    ConfigurationError
        If a column has a type that has no text.
    """
    import pyarrow as pa
    from pyarrow import csv

    columns = []
    for field, column in zip(rows.schema, rows.columns, strict=True):
        _check_type(field, table)
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
    """Return rows as SQLite's driver takes them.

    Raises
    ------
    ConfigurationError
        If a column has a type that has no text.
    """
    import pyarrow as pa

    columns = []
    for field, column in zip(rows.schema, rows.columns, strict=True):
        _check_type(field, table)
        if _is_zoned(field.type):
            columns.append(column.cast(pa.timestamp("us", "UTC")).cast(pa.timestamp("us")))
        elif pa.types.is_decimal(field.type):
            columns.append(column.cast(pa.string()))
        else:
            columns.append(column)
    return pa.RecordBatch.from_arrays(columns, rows.schema.names).to_pylist()  # type: ignore[no-any-return]


def _check_type(field: pa.Field, table: str) -> None:
    import pyarrow as pa

    if pa.types.is_nested(field.type) or pa.types.is_duration(field.type) or pa.types.is_interval(field.type):
        raise ConfigurationError(
            f"into({table!r}): column {field.name!r} is of type {field.type}, which has no text that databases agree "
            f"on. Make it a string before, with to_json or a cast, or write the rows with a function of your own."
        )


def _is_zoned(arrow: pa.DataType) -> bool:
    import pyarrow as pa

    return pa.types.is_timestamp(arrow) and arrow.tz is not None


def _sqlite_type(arrow: pa.DataType) -> sa.types.TypeEngine[Any]:
    import pyarrow as pa
    import sqlalchemy as sa

    if pa.types.is_timestamp(arrow):
        return sa.DateTime()
    return sa.Date() if pa.types.is_date(arrow) else sa.types.NullType()
