"""With a PySpark that is too old: its own sources go on, and this one says what is wrong.  See `rows`."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

import pyspark_kafka_group

REFUSED = r"need PySpark 4\.2 or newer, and this is PySpark 4\.1"


@pytest.fixture(scope="module")
def old_spark() -> Iterator[SparkSession]:
    os.environ["PYSPARK_PYTHON"] = sys.executable
    session = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
    yield session
    session.stop()


def test_a_stream_is_refused(old_spark: SparkSession) -> None:
    with pytest.raises(PySparkException, match=REFUSED):
        old_spark.readStream.format("kafka-group").load()


def test_a_batch_read_is_refused(old_spark: SparkSession) -> None:
    with pytest.raises(PySparkException, match=REFUSED):
        old_spark.read.format("kafka-group").load()


def test_a_write_is_refused(old_spark: SparkSession) -> None:
    with pytest.raises(PySparkException, match=REFUSED):
        old_spark.range(1).write.format("kafka-group").mode("append").save()


def test_registering_is_refused(old_spark: SparkSession) -> None:
    with pytest.raises(Exception, match=REFUSED):
        pyspark_kafka_group.register(old_spark)


def test_other_formats_go_on(old_spark: SparkSession, tmp_path: Path) -> None:
    old_spark.range(3).write.parquet(str(tmp_path / "rows"))
    assert old_spark.read.parquet(str(tmp_path / "rows")).count() == 3
