"""A PySpark that is too old gets a clear error, and keeps its other data sources."""

from __future__ import annotations

import subprocess
import sys
from functools import partial

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

import pyspark_kafka_group
from pyspark_kafka_group import old_spark
from pyspark_kafka_group.offsets.errors import ConfigurationError

REFUSED = r"need PySpark 4\.0 or newer, and this is PySpark 3\."


@pytest.mark.parametrize(
    ("version", "refused"),
    [
        (None, True),
        ("3.5.6", True),
        ("4.0.0", False),
        ("4.1.2", False),
        ("4.2.0.dev3", False),
        ("4.10.1", False),
        ("5.0.0", False),
    ],
)
def test_versions(version: str | None, refused: bool) -> None:
    assert old_spark.is_too_old(version) is refused


def test_the_source_that_spark_finds_says_what_is_wrong_when_it_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(old_spark, "is_too_old", lambda *_: True)
    monkeypatch.setattr(old_spark, "check_spark", partial(old_spark.check_spark, "3.5.6"))
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


def test_without_pyspark_the_command_line_runs_and_the_first_use_of_spark_says_what_is_missing() -> None:
    program = """
import sys
sys.modules["pyspark"] = None  # as if it were not there
import pyspark_kafka_group.errors
from pyspark_kafka_group.tools.commands import kafka_group
try:
    pyspark_kafka_group.{used}
except pyspark_kafka_group.errors.ConfigurationError as problem:
    print(problem)
kafka_group(["--version"])
"""
    for used in ("DefaultSource", "bookmark(None, {})", "register(None)"):
        command = [sys.executable, "-c", program.replace("{used}", used)]
        found = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
        first, second = found.stdout.splitlines()
        assert "this Python has none" in first
        assert "pip install 'pyspark-kafka-group[spark]'" in first
        assert second.endswith(pyspark_kafka_group.__version__)


def test_the_pyspark_of_the_tests_is_new_enough() -> None:
    assert SparkSession is not None
    assert pyspark_kafka_group.DefaultSource.__name__ == "KafkaGroupDataSource"
