"""On Databricks the engine has a PySpark of its own, whose classes are others: the source must not ask for classes."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys

import pytest


@pytest.mark.skipif(
    importlib.util.find_spec("pyspark.sql.streaming.datasource") is None, reason="Spark before 4.2 has no limits"
)
def test_limits_triggers_and_schemas_of_an_engine_with_a_copy_of_pyspark() -> None:
    """Regression: `maxOffsetsPerTrigger` and `availableNow` were ignored without a word, and typed streams refused."""
    run = [sys.executable, "-m", "tests.connector.engine_copy"]
    found = json.loads(subprocess.run(run, check=True, capture_output=True, text=True).stdout)
    assert found == {
        "flags": 3,  # a limit for each batch, and availableNow
        "default limit": {"max_rows": 7, "_type": "ReadMaxRows"},
        "asked": ["target", 7, None, "refused"],
        "batch read": "KafkaGroupBatchReader",
        "writer": "KafkaGroupWriter",
        "stream writer": "KafkaGroupStreamWriter",
    }
