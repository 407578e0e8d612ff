"""`Database` accepts PostgreSQL and SQLite files, and shows no password."""

from __future__ import annotations

import pickle
import socket
import sqlite3
import traceback
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pyspark_kafka_group.offsets.errors import ConfigurationError
from pyspark_kafka_group.stores import database as module
from pyspark_kafka_group.stores.database import Database
from pyspark_kafka_group.stores.errors import DatabaseError, PartitionsLockedError


def checked(url: str) -> Database:
    return Database.checked(url, lock_timeout_s=1.0, idle_timeout_s=1.0)


@pytest.mark.parametrize("scheme", ["postgresql", "postgres", "postgresql+psycopg"])
def test_postgresql_is_reached_with_psycopg_and_shows_no_password(scheme: str) -> None:
    found = checked(f"{scheme}://etl:s3cret@db:5433/shop")
    assert found.url == "postgresql+psycopg://etl:s3cret@db:5433/shop"
    assert "s3cret" not in repr(found)
    assert pickle.loads(pickle.dumps(found)) == found


@pytest.mark.parametrize(
    ("url", "text"),
    [
        ("mysql+pymysql://etl:s3cret@db/shop", "'mysql\\+pymysql' is not supported"),
        ("postgresql+psycopg2://etl:s3cret@db/shop", "'postgresql\\+psycopg2' is not supported"),
        ("sqlite://", "the executors cannot reach an SQLite database in memory"),
        ("sqlite:///:memory:", "the executors cannot reach an SQLite database in memory"),
        ("etl:s3cret@db/shop", "the URL is invalid"),
        ("postgresql://etl:p@s3cret@db/shop", "the host or the database in the URL has an @"),
        ("postgresql://etl:p?w@s3cret@db/shop", "the host or the database in the URL has an @"),
        ("postgresql://etl:p@s3:cret@db/shop", "the URL is invalid.*Encode an @ in the password as %40"),
        ("postgresql://etl:p@db/s3cret@db/shop", "the host or the database in the URL has an @"),
    ],
)
def test_another_url_is_refused_and_shows_no_password(url: str, text: str) -> None:
    with pytest.raises(ConfigurationError, match=text) as refused:
        checked(url)
    shown = "".join(traceback.format_exception(refused.value))
    assert "s3cret" not in shown
    assert "cret@" not in shown


@pytest.mark.parametrize("package", ["sqlalchemy", "psycopg", "pandas"])
def test_a_missing_package_is_named_with_the_extra(package: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "find_spec", lambda name: None if name == package else object())
    with pytest.raises(ConfigurationError, match=rf"'{package}' on the driver.*pyspark-kafka-group\[sql\]"):
        checked("postgresql://db/shop")


@pytest.mark.parametrize(
    "version",
    [
        "CockroachDB CCL v23.1.11 (x86_64-pc-linux-gnu)",
        "PostgreSQL 11.2-YB-2.18.0.0-b0 on x86_64-pc-linux-gnu, compiled by clang",
        "PostgreSQL 8.0.2 on i686-pc-linux-gnu, compiled by GCC gcc (GCC) 3.4.2, Redshift 1.0.12103",
        "PostgreSQL 9.4.26 (Greenplum Database 6.24.3) on x86_64-unknown-linux-gnu",
    ],
)
def test_a_server_that_only_speaks_postgresql_is_refused(version: str) -> None:
    with pytest.raises(ConfigurationError, match="the server is not PostgreSQL"):
        module.check_server(server(version))


def test_postgresql_is_not_refused() -> None:
    module.check_server(server("PostgreSQL 15.18 on x86_64-pc-linux-gnu, compiled by gcc 12.2.0, 64-bit"))


def server(version: str) -> Any:
    answer = SimpleNamespace(scalar_one=lambda: version)
    return SimpleNamespace(dialect=SimpleNamespace(name="postgresql"), exec_driver_sql=lambda _: answer)


@pytest.mark.parametrize("query", ["", "?connect_timeout=5&password=s3cret"])
def test_a_database_that_does_not_answer_is_named_without_its_password(query: str) -> None:
    """Regression: 800 lines of traces of SQLAlchemy and psycopg, without a sentence of this project."""
    with closing(socket.socket()) as bound:
        bound.bind(("127.0.0.1", 0))  # nobody listens
        port = bound.getsockname()[1]
        database = checked(f"postgresql://etl:s3cret@127.0.0.1:{port}/shop{query}")
        with pytest.raises(DatabaseError) as found, database.transaction():
            pass
    text = str(found.value)
    assert text.startswith(f"OffsetTable: cannot connect to postgresql://etl@127.0.0.1:{port}/shop: connection")
    assert "refused" in text
    shown = "".join(traceback.format_exception(found.value))
    assert "s3cret" not in shown
    assert "sqlalchemy" not in shown.replace("sa.", "")
    assert shown.rstrip().endswith("reach the database.")


def test_a_file_that_cannot_be_opened_is_named() -> None:
    problem = r"sqlite:////no/such/folder/rows\.db: unable to open database file\."
    with pytest.raises(DatabaseError, match=problem), checked("sqlite:////no/such/folder/rows.db").transaction():
        pass


@pytest.mark.parametrize(
    ("url", "limit"),
    [("postgresql://db/shop", {"connect_timeout": 30}), ("postgresql://db/shop?connect_timeout=5", {})],
)
def test_connecting_has_a_limit(url: str, limit: dict[str, int]) -> None:
    assert module._limit(url) == limit


def test_a_database_that_is_locked_while_connecting_is_not_unreachable(tmp_path: Path) -> None:
    database = Database.checked(f"sqlite:///{tmp_path}/rows.db", lock_timeout_s=0.0, idle_timeout_s=1.0)
    with closing(sqlite3.connect(tmp_path / "rows.db", isolation_level=None)) as other:
        other.execute("BEGIN EXCLUSIVE")
        with pytest.raises(PartitionsLockedError), database.transaction():
            pass
