"""Which databases there may be, and that no password shows."""

from __future__ import annotations

import pickle

import pytest

from pyspark_kafka_group.offsets.errors import ConfigurationError
from pyspark_kafka_group.stores import database as module
from pyspark_kafka_group.stores.database import Database


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
        ("sqlite://", "in memory is not seen by the executors"),
        ("sqlite:///:memory:", "in memory is not seen by the executors"),
        ("etl:s3cret@db/shop", "cannot be understood"),
    ],
)
def test_another_url_is_refused_and_shows_no_password(url: str, text: str) -> None:
    with pytest.raises(ConfigurationError, match=text) as refused:
        checked(url)
    assert "s3cret" not in str(refused.value)


@pytest.mark.parametrize("package", ["sqlalchemy", "psycopg", "pandas"])
def test_a_missing_package_is_named_with_the_extra(package: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "find_spec", lambda name: None if name == package else object())
    with pytest.raises(ConfigurationError, match=rf"'{package}' on the driver.*pyspark-kafka-group\[sql\]"):
        checked("postgresql://db/shop")
