"""The sentence below an error that ends a program."""

from __future__ import annotations

import subprocess
import sys
from unittest.mock import MagicMock

import pytest
from pyspark import SparkContext
from pyspark.errors.exceptions.base import AnalysisException, StreamingQueryException

from pyspark_kafka_group.session.last_line import last_line, print_error

OF_QUERY = """[STREAM_FAILED] Query [id = 1, runId = 2] terminated with exception: [PYTHON_ERROR] Traceback:
  File "query.py", line 5, in start
pyspark_kafka_group.wire.types.RefusedCredentialsError: the inner reason

Traceback (most recent call last):
  File "query.py", line 7, in latestOffset
pyspark_kafka_group.offsets.errors.OptionError: Option 'subscribe': the reason. The remedy.
 SQLSTATE: 38000
=== Streaming Query ===
Identifier: [id = 1, runId = 2]
"""

OF_USER = """[STREAM_FAILED] Query [id = 1] terminated with exception: Traceback (most recent call last):
  File "etl.py", line 5, in write
    raise ValueError("the table is full")
ValueError: the table is full
 SQLSTATE: XXKST
=== Streaming Query ===
"""


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (
            StreamingQueryException(OF_QUERY),
            "kafka-group: the query ended: Option 'subscribe': the reason. The remedy.",
        ),
        (AnalysisException(OF_QUERY), "kafka-group: Option 'subscribe': the reason. The remedy."),
        (StreamingQueryException(OF_USER), "kafka-group: the query ended: ValueError: the table is full"),
        (
            StreamingQueryException(
                "[STREAM_FAILED] Query [id = 1] terminated with exception: [X] It broke. SQLSTATE: 1\nat"
            ),
            "kafka-group: the query ended: [X] It broke.",
        ),
        (
            AnalysisException("[DATA_SOURCE_NOT_FOUND] Failed to find the data source: kafkagroup. Make sure"),
            "kafka-group: Spark knows no format 'kafkagroup'. Write format(\"kafka-group\").",
        ),
        (AnalysisException("[DATA_SOURCE_NOT_FOUND] Failed to find the data source: delta. Make sure"), None),
        (
            AnalysisException(
                '[UNSUPPORTED_DATA_SOURCE_SAVE_MODE] The data source "kafka-group" cannot be written in the '
                '"ErrorIfExists" mode. Please use either the "Append" or "Overwrite" mode instead. SQLSTATE: 0A000'
            ),
            'kafka-group: "kafka-group" cannot be written in the "ErrorIfExists" mode. '
            'Add .mode("append") before .save().',
        ),
        (
            StreamingQueryException("Data source kafka-group does not support continuous processing."),
            "kafka-group: the query ended: kafka-group does not support continuous processing. "
            "Use trigger(processingTime='1 second').",
        ),
        (ValueError("of the user"), None),
    ],
)
def test_the_sentence_of_an_error(error: Exception, line: str | None) -> None:
    assert last_line(error) == line


def test_a_python_without_the_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYSPARK_PYTHON", "/usr/bin/python3")
    monkeypatch.setattr("pyspark.SparkContext._active_spark_context", None)
    line = last_line(AnalysisException("[DATA_SOURCE_NOT_FOUND] Failed to find the data source: kafka-group. Make"))
    assert line == (
        f"kafka-group: the Python that Spark starts (/usr/bin/python3) does not have the package pyspark-kafka-group. "
        f"Set PYSPARK_PYTHON={sys.executable}, or install the package there."
    )


def test_a_python_that_does_not_start_in_time_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYSPARK_PYTHON", "/usr/bin/python3")
    monkeypatch.setattr("pyspark.SparkContext._active_spark_context", None)
    head = "[STREAM_FAILED] Query [id = 1, runId = 2] terminated with exception: "
    assert last_line(StreamingQueryException(f"{head}Python worker failed to connect back. SQLSTATE: XXKST")) == (
        "kafka-group: the query ended: Python worker failed to connect back. Spark started /usr/bin/python3, which did "
        "not report within 10 s. Start fewer applications at once if the machine is busy, or correct PYSPARK_PYTHON if "
        "that Python does not start."
    )


@pytest.mark.parametrize(
    ("level", "appender", "twice"), [(True, "Console", False), (True, "File", True), (False, "Console", True)]
)
def test_the_error_of_a_query_is_printed_unless_sparks_log_on_the_terminal_has_it(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, level: bool, appender: str, twice: bool
) -> None:
    """Regression: with Spark's log off, or in a file, the line of the user's code that failed stood nowhere."""
    jvm = MagicMock()
    root = jvm.org.apache.logging.log4j.LogManager.getRootLogger.return_value
    root.isErrorEnabled.return_value = level
    (found,) = root.getAppenders.return_value.values.return_value = [MagicMock()]
    found.getClass.return_value.getSimpleName.return_value = f"{appender}Appender"
    monkeypatch.setattr(SparkContext, "_jvm", jvm)
    printed: list[BaseException] = []
    for error in (StreamingQueryException(OF_QUERY), AnalysisException(OF_QUERY)):
        print_error(lambda _kind, error, _trace: printed.append(error), type(error), error, None)
    assert [type(error) for error in printed] == [StreamingQueryException] * twice + [AnalysisException]
    lines = capsys.readouterr().err.splitlines()
    assert [line.split(": ", 1)[0] for line in lines] == ["", "kafka-group"] * 2, "below a progress bar"


def test_a_program_that_imports_the_package_ends_with_the_sentence() -> None:
    program = (
        "import pyspark_kafka_group\n"
        "raise RuntimeError('in a trace\\npyspark_kafka_group.offsets.errors.OptionError: Option x: no. Write y.\\nX')"
    )
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert ended.returncode == 1
    assert ended.stderr.splitlines()[-1] == "kafka-group: Option x: no. Write y."
    assert "Traceback" in ended.stderr
