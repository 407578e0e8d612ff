"""The combinations of versions to test, and the table of their results.  Pure."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

RESULTS = Path(__file__).parents[2] / "docs" / "compatibility.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One combination.

    Attributes
    ----------
    name : str
        The name of the row on the command line.
    pins : mapping of str to str
        The version that pip installs, by package.  Other packages get their newest version.
    kafka : str
        The brokers' version; empty if the tests need no broker.
    python : str
        The version of Python, as in ``python3.13``.  If empty, the version of this environment.
    tests : tuple of str
        The files of tests to run, or single tests as pytest names them.
    variables : mapping of str to str
        Environment variables for the tests.
    extras : str
        The extras of the package under test.
    """

    name: str
    pins: Mapping[str, str]
    kafka: str
    python: str = ""
    tests: tuple[str, ...] = ("integration/test_main_paths.py",)
    variables: Mapping[str, str] = field(default_factory=dict)
    extras: str = "spark,cli,sql,testing"

    @property
    def environment(self) -> str:
        """The name of the virtual environment.  Rows with the same pins and Python share one."""
        pins = {**self.pins, **({"python": self.python} if self.python else {})}
        return "-".join(f"{package}-{pin}" for package, pin in sorted(pins.items())) or "newest"


_GROUP = (
    *(f"integration/test_{name}.py" for name in ("leaving", "hand_over", "exit", "replay", "static_crash")),
    # The others need `availableNow` with several batches, which Spark has from 4.2 on.
    "integration/test_available_now.py::test_run_beside_a_busy_member_reads_its_share",
)
"""Members join, leave, are killed, hand over, start again, and run a batch again."""

_OLDEST = {"pyspark": "4.2.0", "confluent-kafka": "2.15.0"}

ROWS = (
    *(
        Row(name=f"kafka-{version}", pins={}, kafka=version)
        for version in ("3.9.1", "4.0.1", "4.1.1", "4.2.0", "4.4.0")
    ),
    Row(
        name="kafka-4.4.0-group",
        pins={},
        kafka="4.4.0",
        tests=tuple(f"integration/test_{name}.py" for name in ("leaving", "hand_over", "protocol_upgrade")),
    ),
    Row(name="newest", pins={}, kafka="4.3.1"),
    *(Row(name=f"python-{version}", pins={}, kafka="4.3.1", python=version) for version in ("3.12", "3.13", "3.14")),
    Row(name="oldest-clients", pins=_OLDEST, kafka="4.3.1"),
    Row(name="oldest-everything", pins=_OLDEST, kafka="3.9.1"),
    Row(
        name="delta",
        pins={"pyspark": "4.2.0"},
        kafka="4.3.1",
        tests=("integration/compatibility/check_delta.py",),
    ),
    *(
        Row(
            name=f"lake-{name}",
            pins={"pyspark": pin},
            kafka="4.3.1",
            tests=(f"integration/compatibility/{file}.py",),
            variables=variables,
        )
        for name, pin, file, variables in (
            ("delta", "4.2.0", "check_lake", {}),
            ("delta-catalog", "4.2.0", "check_lake", {"LAKE_CATALOG": "session"}),
            ("delta-example", "4.2.0", "check_lake_example", {}),
            ("iceberg", "4.1.1", "check_lake", {}),
            ("iceberg-jdbc", "4.1.1", "check_lake", {"LAKE_CATALOG": "jdbc"}),
            ("iceberg-rest", "4.1.1", "check_lake", {"LAKE_CATALOG": "rest"}),
            ("iceberg-example", "4.1.1", "check_lake_example", {}),
        )
    ),
    *(
        Row(
            name=f"landing-{name}",
            pins={"pyspark": pin},
            kafka="4.3.1",
            tests=("integration/compatibility/check_landing.py",),
            variables=variables,
            extras="spark,cli,sql,testing,delta,iceberg",
        )
        for name, pin, variables in (
            ("delta", "4.2.0", {}),
            ("iceberg", "4.1.1", {"LAKE_CATALOG": "rest"}),
        )
    ),
    Row(
        name="sail",
        pins={"pysail": "0.7.2", "pyspark-client": "4.1.3"},
        kafka="",
        tests=("integration/compatibility/check_sail.py",),
        extras="testing",
    ),
    *(
        Row(name=f"engine-copy-{pin}", pins={"pyspark": pin}, kafka="", tests=("tests/connector/test_engine_copy.py",))
        for pin in ("4.2.0", "4.3.0")
    ),
    Row(name="image", pins={}, kafka="4.3.1", tests=("integration/compatibility/check_image.py",)),
    Row(name="spark-4.2-group", pins={"pyspark": "4.2.0"}, kafka="4.3.1", tests=_GROUP),
    *(
        Row(name=f"spark-{pin[:3]}{suffix}", pins={"pyspark": pin}, kafka="4.3.1", tests=tests)
        for pin in ("4.1.1", "4.0.1")
        for suffix, tests in (
            ("", ("integration/test_main_paths.py",)),
            ("-group", _GROUP),
            ("-and-newest", ("integration/compatibility/check_versions.py",)),
        )
    ),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """The result of a row.

    Attributes
    ----------
    row : str
        The name of the row.
    date : str
        The date of the run.
    versions : mapping of str to str
        The installed versions: ``kafka``, ``pyspark``, ``confluent-kafka``, ``librdkafka``, ``python``, ``java``.
    passed, skipped, failed : sequence of str
        The names of the tests.
    """

    row: str
    date: str
    versions: Mapping[str, str]
    passed: Sequence[str] = ()
    skipped: Sequence[str] = ()
    failed: Sequence[str] = field(default=())

    @property
    def good(self) -> bool:
        """Whether a test passed, and none failed."""
        return bool(self.passed) and not self.failed


def load(path: Path = RESULTS) -> dict[str, Result]:
    """Return the stored results, by row."""
    if not path.exists():
        return {}
    return {found["row"]: Result(**found) for found in json.loads(path.read_text(encoding="utf-8"))}


def store(results: Iterable[Result], path: Path = RESULTS) -> None:
    """Store results in place of older results of the same rows.

    Keep the results of rows that did not run.  Drop the results of rows that no longer exist.
    """
    newest = load(path) | {result.row: result for result in results}
    kept = [asdict(newest[row.name]) for row in ROWS if row.name in newest]
    path.write_text(json.dumps(kept, indent=1) + "\n", encoding="utf-8")


def table(results: Mapping[str, Result]) -> str:
    """Return the table for the page, with a line for each row, including rows that never ran."""
    lines = [
        "| Kafka | PySpark | confluent-kafka | librdkafka | Python | run on | tests | result |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for row in ROWS:
        result = results.get(row.name)
        files = [Path(file).name for file in row.tests] + [f"{name}={value}" for name, value in row.variables.items()]
        tests = "group tests" if row.tests == _GROUP else ", ".join(f"`{name}`" for name in files)
        if result is None:
            pins = [
                row.kafka,
                *(row.pins.get(name, "newest") for name in ("pyspark", "confluent-kafka")),
                "",
                row.python,
                "",
            ]
            lines.append(f"| {' | '.join(pins)} | {tests} | **not run** |")
            continue
        failed = f"**{len(result.failed)} failed**: {', '.join(result.failed)}"
        said = f"{len(result.passed)} passed" if result.good else failed
        shown = ("kafka", "pyspark", "confluent-kafka", "librdkafka", "python")
        versions = [result.versions.get(name, "-") for name in shown]
        lines.append(f"| {' | '.join(versions)} | {result.date} | {tests} | {said} |")
    return "\n".join(lines) + "\n"
