"""What this Python and its Spark have of what the source needs.  No cluster, no session."""

from __future__ import annotations

import os
import platform
import socket
import sys
import tempfile
from collections.abc import Mapping
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from pyspark_kafka_group.cluster.properties.permissions import VARIABLE
from pyspark_kafka_group.columns.record_batches import BATCHES
from pyspark_kafka_group.tools.doctor.facts import Finding, Severity
from pyspark_kafka_group.wire.private_folder import private_folder

_PACKAGES = ("pyspark-kafka-group", "pyspark", "pyspark-client", "databricks-connect", "confluent-kafka", "pyarrow")
_ENGINE = "_engine_pyspark"
"""The second copy of PySpark that workers of Databricks may run."""

_VARIABLES = ("DATABRICKS_RUNTIME_VERSION", "PYSPARK_PYTHON", "SPARK_HOME", "SPARK_REMOTE")


def spark_facts(environment: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Return the facts about this process, by name.  No value shows a secret.

    Parameters
    ----------
    environment : mapping of str to str
        The variables of the process.
    """
    facts = {"Python": f"{platform.python_version()}, {sys.executable}", "system": platform.platform(terse=True)}
    for name in _PACKAGES:
        try:
            facts[name] = version(name)
        except PackageNotFoundError:
            facts[name] = "-"
    spark = find_spec("pyspark")
    facts["PySpark is in"] = str(Path(spark.origin).parent) if spark and spark.origin else "-"
    facts["engine's copy of PySpark"] = "loaded" if _ENGINE in sys.modules else "found" if find_spec(_ENGINE) else "-"
    facts["format kafka-group"] = _format_problem() or "found"
    facts["C library"] = BATCHES.problem or "loaded"
    facts["folder for sockets"] = _folder_problem() or "works"
    facts |= {name: environment.get(name, "-") for name in _VARIABLES}
    allowed = [entry.partition(":")[0].strip() for entry in environment.get(VARIABLE, "").split(",")]
    facts[VARIABLE] = ", ".join(sorted({*allowed} - {""})) or "-"
    return facts


def judge_spark(facts: Mapping[str, str]) -> list[Finding]:
    """Return what the facts mean for a query, the worst first."""
    findings = []

    def found(severity: Severity, code: str, subject: str, remedy: str) -> None:
        findings.append(Finding(severity, code, subject, facts[subject], remedy))

    if facts["format kafka-group"] != "found":
        found(Severity.ERROR, "NO_FORMAT", "format kafka-group", "install what is missing into this Python")
    if facts["folder for sockets"] != "works":
        remedy = "set TMPDIR, for the driver and the executors, to a folder that this user may write to"
        found(Severity.ERROR, "NO_SOCKETS", "folder for sockets", remedy)
    if facts["C library"] != "loaded":
        found(Severity.WARNING, "NO_C_LIBRARY", "C library", "everything works, but reading is slower")
    named = facts["PYSPARK_PYTHON"]
    if named != "-" and Path(named).is_absolute() and Path(named) != Path(sys.executable):
        found(Severity.NOTE, "OTHER_PYTHON", "PYSPARK_PYTHON", "run this command with that Python: Spark uses it")
    if facts["engine's copy of PySpark"] != "-":
        remedy = "check limits and availableNow as docs/databricks.md says"
        found(Severity.NOTE, "ENGINE_COPY", "engine's copy of PySpark", remedy)
    return sorted(findings, key=lambda finding: -finding.severity)


def spark_document(facts: Mapping[str, str], findings: list[Finding]) -> dict[str, Any]:
    """Return the document of ``doctor --spark``."""
    return {
        "healthy": all(finding.severity is Severity.NOTE for finding in findings),
        "facts": dict(facts),
        "findings": [finding.document() for finding in findings],
    }


def _format_problem() -> str:
    """Import the format as Spark does, and return why that fails."""
    try:
        import_module("pyspark_kafka_group").DefaultSource  # noqa: B018
    except Exception as problem:  # whatever prevents the import
        return f"{type(problem).__name__}: {problem}"
    return ""


def _folder_problem() -> str:
    """Create a Unix socket as queries do, and return why that fails."""
    try:
        private_folder("queries")
        with (
            tempfile.TemporaryDirectory(prefix="kafka-group-") as folder,
            socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe,
        ):
            probe.bind(f"{folder}/control")
            probe.listen(1)
    except OSError as problem:
        return str(problem)
    return ""
