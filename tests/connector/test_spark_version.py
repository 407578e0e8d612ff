"""A PySpark that is missing or too old gets a clear error."""

from __future__ import annotations

import subprocess
import sys

import pytest
from pyspark.sql import SparkSession

import pyspark_kafka_group
from pyspark_kafka_group.offsets.errors import ConfigurationError
from pyspark_kafka_group.spark_version import check_spark


@pytest.mark.parametrize("version", ["4.0.0", "4.1.2", "4.2.0.dev3", "4.10.1", "5.0.0"])
def test_a_new_enough_version_is_taken(version: str) -> None:
    check_spark(version)


def test_an_older_version_is_refused() -> None:
    with pytest.raises(ConfigurationError, match=r"need PySpark 4\.0 or newer, and this is PySpark 3\.5\.6"):
        check_spark("3.5.6")


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
    for used in ("DefaultSource", "bookmark(object(), {})", "register(None)"):
        command = [sys.executable, "-c", program.replace("{used}", used)]
        found = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
        first, second = found.stdout.splitlines()
        assert "this Python has none" in first
        assert "pip install 'pyspark-kafka-group[spark]'" in first
        assert second.endswith(pyspark_kafka_group.__version__)


def test_the_pyspark_of_the_tests_is_new_enough() -> None:
    assert SparkSession is not None
    assert pyspark_kafka_group.DefaultSource.__name__ == "KafkaGroupDataSource"
