"""A sink that writes each batch to two tables: to one with the offset table, and to one without it.

Both tables get the same batches, and so meet the same faults.  The surplus rows of the second table show what the
offset table prevents.  A pause between the write of the rows and their commit gives faults a chance to happen there.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import pyarrow as pa
import sqlalchemy as sa
from pyspark.sql import DataFrame

from integration.postgres import execute, new_schema, postgres_from_environment
from pyspark_kafka_group.stores import OffsetTable, into
from pyspark_kafka_group.stores.database import Database

WITH_TABLE = "with_offset_table"
WITHOUT = "without"
COLUMNS = ("topic", "partition", "offset", "number")

_CREATE = [
    f'CREATE TABLE {name} (topic text, "partition" int, "offset" bigint, number bigint)'
    for name in (WITH_TABLE, WITHOUT)
]

_PAUSE_S = 0.15


def create_tables(url: str) -> str:
    """Create both tables in a database, and return its URL."""
    for statement in _CREATE:
        execute(url, statement)
    return url


@contextmanager
def tables() -> Iterator[str]:
    """Yield the URL of a database with both tables, and drop them at the end."""
    with postgres_from_environment() as server, new_schema(server) as url:
        yield create_tables(url)


def rows_of(url: str, table: str) -> tuple[int, int, int]:
    """Return the number of rows, the number of different records, and the sum of the numbers."""
    found = execute(url, f'SELECT count(*), count(DISTINCT ("partition", "offset")), sum(number) FROM {table}')
    count, different, total = found[0]
    return int(count), int(different), int(total or 0)


class DatabaseSink:
    """A sink for batches of records whose values are numbers.

    Parameters
    ----------
    url : str
        A PostgreSQL database with the tables of :func:`tables`.
    consumer : str
        The consumer whose offsets the table keeps.
    """

    def __init__(self, url: str, consumer: str) -> None:
        self._url = url
        self._offsets = OffsetTable(url, consumer, connections=2)

    def write(self, batch: DataFrame, batch_id: int) -> None:
        """Write a batch to both tables."""
        rows = batch.selectExpr("topic", "partition", "offset", "CAST(CAST(value AS STRING) AS LONG) AS number")
        url = self._url

        def append(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            database = Database.checked(url, lock_timeout_s=60.0, idle_timeout_s=60.0)
            load = into(WITHOUT, columns=COLUMNS)
            for found in batches:
                with database.transaction() as connection:
                    load(connection, found)
                yield from ()

        rows.mapInArrow(append, "n INT").collect()
        self._offsets.write(rows, batch_id, _write_slowly)


def _write_slowly(connection: sa.Connection, rows: pa.RecordBatch) -> None:
    into(WITH_TABLE, columns=COLUMNS)(connection, rows)
    time.sleep(_PAUSE_S)
