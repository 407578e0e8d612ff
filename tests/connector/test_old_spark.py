"""A PySpark that is too old gets a clear error, and keeps its other data sources."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

import pyspark_kafka_group
from pyspark_kafka_group import old_spark
from pyspark_kafka_group.offsets.errors import ConfigurationError

REFUSED = r"need PySpark 4\.2 or newer, and this is PySpark 4\."


@pytest.mark.parametrize(
    ("version", "refused"),
    [("3.5.6", True), ("4.1.2", True), ("4.2.0", False), ("4.2.0.dev3", False), ("4.10.1", False), ("5.0.0", False)],
)
def test_versions(version: str, refused: bool) -> None:
    assert old_spark.is_too_old(version) is refused


def test_the_source_that_spark_finds_says_what_is_wrong_when_it_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(old_spark, "is_too_old", lambda: True)
    found = pyspark_kafka_group.DefaultSource
    assert found.name() == "kafka-group"
    source = found({})
    with pytest.raises(ConfigurationError, match=REFUSED):
        source.schema()
    for writer in (source.writer, source.streamWriter):
        with pytest.raises(ConfigurationError, match=REFUSED):
            writer(StructType(), False)
    with pytest.raises(ConfigurationError, match=REFUSED):
        pyspark_kafka_group.register(None)  # type: ignore[arg-type]


def test_the_pyspark_of_the_tests_is_new_enough() -> None:
    assert SparkSession is not None
    assert pyspark_kafka_group.DefaultSource.__name__ == "KafkaGroupDataSource"
