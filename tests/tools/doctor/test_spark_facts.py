"""``kafka-group doctor --spark``: the facts about this Python, and what each one means for a query."""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from types import ModuleType

import pytest
from click.testing import CliRunner, Result

from pyspark_kafka_group.columns.record_batches import BATCHES
from pyspark_kafka_group.tools.commands import kafka_group
from pyspark_kafka_group.tools.doctor.facts import Severity
from pyspark_kafka_group.tools.doctor.spark_facts import judge_spark, spark_facts


def doctor(*options: str) -> Result:
    return CliRunner().invoke(kafka_group, ["doctor", *options])


def codes(facts: dict[str, str]) -> list[str]:
    return [finding.code for finding in judge_spark(facts)]


@pytest.fixture
def well() -> dict[str, str]:
    return spark_facts({}) | {"C library": "loaded"}


def test_a_python_that_has_everything_is_well(well: dict[str, str]) -> None:
    assert codes(well) == []
    assert (well["format kafka-group"], well["folder for sockets"], well["engine's copy of PySpark"]) == (
        "found",
        "works",
        "-",
    )


def test_the_command_needs_no_group_and_no_cluster() -> None:
    found = doctor("--spark")
    lines = found.stdout.splitlines()
    assert any(line.startswith("Python: ") and line.endswith(sys.executable) for line in lines)
    assert lines[-1] == "this Python: nothing is wrong" or BATCHES.problem
    assert found.exit_code == (1 if BATCHES.problem else 0)
    document = json.loads(doctor("--spark", "--json").stdout)
    assert document["facts"]["format kafka-group"] == "found"


def test_without_a_group_the_error_names_both_ways() -> None:
    found = doctor("-b", "localhost:1")
    assert found.exit_code == 2
    assert "Missing argument 'GROUP'. Without one, use --spark." in found.stderr


def test_variables_are_shown_and_secrets_are_not() -> None:
    allowed = "file:/etc/kafka/secret, env:KAFKA_PASSWORD,env:X"
    facts = spark_facts({"DATABRICKS_RUNTIME_VERSION": "19.3", "KAFKA_GROUP_ALLOW": allowed})
    assert facts["DATABRICKS_RUNTIME_VERSION"] == "19.3"
    assert facts["KAFKA_GROUP_ALLOW"] == "env, file"


def test_an_engine_with_a_copy_of_pyspark_is_a_note(well: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "_engine_pyspark", ModuleType("_engine_pyspark"))
    assert spark_facts({})["engine's copy of PySpark"] == "loaded"
    (finding,) = judge_spark(well | {"engine's copy of PySpark": "loaded"})
    assert (finding.code, finding.severity) == ("ENGINE_COPY", Severity.NOTE)


def test_a_folder_for_sockets_that_cannot_be_made_is_an_error(
    well: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "missing"))
    problem = spark_facts({})["folder for sockets"]
    assert "missing" in problem
    assert codes(well | {"folder for sockets": problem}) == ["NO_SOCKETS"]


def test_a_format_that_cannot_be_imported_is_an_error(well: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pyspark_kafka_group.spark_version._found", None)
    monkeypatch.setattr("pyspark_kafka_group.spark_version.check_spark.__defaults__", (None,))
    problem = spark_facts({})["format kafka-group"]
    assert problem.startswith("ConfigurationError: The kafka-group source and sink need PySpark 4.0")
    assert codes(well | {"format kafka-group": problem}) == ["NO_FORMAT"]


def test_no_c_library_and_another_python(well: dict[str, str]) -> None:
    other = well | {"C library": "its C library is missing", "PYSPARK_PYTHON": "/opt/etl/bin/python"}
    assert codes(other) == ["NO_C_LIBRARY", "OTHER_PYTHON"]
    assert codes(well | {"PYSPARK_PYTHON": sys.executable}) == []
    assert codes(well | {"PYSPARK_PYTHON": "python3"}) == []
