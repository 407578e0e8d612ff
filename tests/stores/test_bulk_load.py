"""Rows become text for COPY, or parameters for SQLite.  Another test loads the text into a real PostgreSQL."""

from __future__ import annotations

import pickle
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest

from pyspark_kafka_group.offsets.errors import ConfigurationError
from pyspark_kafka_group.stores.bulk_load import as_csv, as_parameters, into
from pyspark_kafka_group.stores.database import Database
from pyspark_kafka_group.stores.errors import RefusedValueError


def batch(**columns: pa.Array) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays(list(columns.values()), list(columns))


def test_null_has_no_quotes_and_everything_else_has() -> None:
    rows = batch(
        text=pa.array(['a "b",\nc', "", None]),
        number=pa.array([1, None, -3]),
        raw=pa.array([b"\x00\xff", None, b""]),
        at=pa.array([datetime(2024, 1, 1, 12, tzinfo=UTC), None, None], pa.timestamp("us", "Europe/Berlin")),
    )
    assert as_csv(rows, "t") == (b'"a ""b"",\nc","1","\\x00ff","2024-01-01 12:00:00.000000Z"\n"",,,\n,"-3","\\x",\n')


@pytest.mark.parametrize(
    "column",
    [pa.array([[1]]), pa.array([{"a": 1}]), pa.array([[("k", 1)]], pa.map_(pa.string(), pa.int64()))],
    ids=lambda column: str(column.type),
)
def test_a_nested_column_is_refused_with_its_name(column: pa.Array) -> None:
    with pytest.raises(ConfigurationError, match=r"column 'items' is of type .*to_json"):
        as_csv(batch(items=column), "t")


def test_values_reach_sqlite(tmp_path: Path) -> None:
    database = Database.checked(f"sqlite:///{tmp_path}/rows.db", lock_timeout_s=1.0, idle_timeout_s=60.0)
    rows = batch(
        topic=pa.array(["a"]),
        partition=pa.array([0]),
        offset=pa.array([7]),
        at=pa.array([datetime(2024, 1, 1, 12, tzinfo=UTC)], pa.timestamp("us", "Europe/Berlin")),
        day=pa.array([date(2024, 1, 1)]),
        price=pa.array([Decimal("1.20")]),
        raw=pa.array([b"\x00"]),
        none=pa.array([None], pa.string()),
    )
    with database.transaction() as connection:
        connection.exec_driver_sql("CREATE TABLE t (at TEXT, day TEXT, price TEXT, raw BLOB, none TEXT)")
        into("t")(connection, rows)
        found = connection.exec_driver_sql("SELECT * FROM t").all()
    assert found == [("2024-01-01 12:00:00.000000", "2024-01-01", "1.20", b"\x00", None)]


def test_columns_can_be_chosen_those_of_the_source_too(tmp_path: Path) -> None:
    database = Database.checked(f"sqlite:///{tmp_path}/rows.db", lock_timeout_s=1.0, idle_timeout_s=60.0)
    with database.transaction() as connection:
        connection.exec_driver_sql('CREATE TABLE t ("offset" INTEGER)')
        into("t", columns=["offset"])(connection, batch(offset=pa.array([7]), other=pa.array(["x"])))
        assert connection.exec_driver_sql("SELECT * FROM t").all() == [(7,)]
        with pytest.raises(ConfigurationError, match=r"into\('t'\): no column prize in the rows: they have price"):
            into("t", columns=["prize"])(connection, batch(price=pa.array([1])))


def test_it_travels_to_executors() -> None:
    load = into("t", columns=["a"], schema="s")
    assert pickle.loads(pickle.dumps(load)) == load


@pytest.mark.parametrize(
    "column",
    [
        pa.array([253402300800000000], pa.timestamp("us", "UTC")),
        pa.array([-62135596800000001], pa.timestamp("us")),
        pa.array([2**63 - 1], pa.timestamp("us", "UTC")),
        pa.array([2932897], pa.date32()),
        pa.array([None, -719163], pa.date32()),
    ],
    ids=str,
)
def test_a_time_outside_of_the_years_1_to_9999_is_refused(column: pa.Array) -> None:
    """Arrow would write a wrong year, or a text that is not a time."""
    with pytest.raises(RefusedValueError, match="column 'at' has a time outside of the years 1 to 9999"):
        as_csv(batch(at=column), "t")
    with pytest.raises(RefusedValueError):
        as_parameters(batch(at=column), "t")


def test_the_first_and_the_last_moment_are_written() -> None:
    rows = batch(
        at=pa.array([-62135596800000000, 253402300799999999, None], pa.timestamp("us", "UTC")),
        day=pa.array([-719162, 2932896, None], pa.date32()),
    )
    assert as_csv(rows, "t") == (
        b'"0001-01-01 00:00:00.000000Z","0001-01-01"\n"9999-12-31 23:59:59.999999Z","9999-12-31"\n,\n'
    )
    assert len(as_parameters(rows, "t")) == 3


def test_nan_is_refused_where_it_would_be_null() -> None:
    with pytest.raises(RefusedValueError, match="column 'x' has a NaN"):
        as_parameters(batch(x=pa.array([1.0, float("nan")])), "t")
    assert as_parameters(batch(x=pa.array([1.0, None])), "t") == [{"x": 1.0}, {"x": None}]


def test_sqlite_gets_a_time_of_the_day_as_text() -> None:
    """Its driver refuses Python's times, and these have no nanoseconds."""
    rows = batch(at=pa.array([3_723_000_000_001, None], pa.time64("ns")))
    assert as_parameters(rows, "t") == [{"at": "01:02:03.000000001"}, {"at": None}]


def test_text_that_is_not_utf_8_is_refused_with_its_column() -> None:
    """Regression: the query ended with an error of Python that named no record."""
    texts = pa.array([b"\xff", b"a", None], pa.binary()).view(pa.string())
    with pytest.raises(RefusedValueError, match="column 's' has text that is not UTF-8"):
        as_parameters(batch(s=texts), "t")
    assert as_parameters(batch(s=texts.slice(1)), "t") == [{"s": "a"}, {"s": None}]
