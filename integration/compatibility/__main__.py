"""Run the main paths with other versions of Kafka, PySpark and confluent-kafka: ``make compatibility``.

Each row of `rows.ROWS` gets a virtual environment with a wheel of this tree, and runs its tests there.  The results
go into docs/compatibility.json.  ``scripts/render_docs.py`` writes them from there into the page.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from xml.etree import ElementTree

from integration.compatibility.rows import ROWS, Result, Row, store

ROOT = Path(__file__).parents[2]
PLACE = ROOT / "build" / "compatibility"

# The tests import these packages, besides the extras of the package under test.
TOOLS = ("hypothesis", "pytest", "pytest-timeout", "pytest-xdist", "psutil", "setuptools")

VERSIONS = """
import json, platform, pyspark
found = {"pyspark": pyspark.__version__, "python": platform.python_version()}
try:
    import confluent_kafka
    found["confluent-kafka"] = confluent_kafka.__version__
    found["librdkafka"] = confluent_kafka.libversion()[0]
    import pysail
    found["pyspark"] += f" on Sail {pysail.__version__}"
except ImportError:
    pass
print(json.dumps(found))
"""


def wheel() -> Path:
    """Build a wheel of this tree."""
    folder = PLACE / "wheel"
    shutil.rmtree(folder, ignore_errors=True)
    pip = [
        sys.executable,
        "-m",
        "pip",
        "wheel",
        "--quiet",
        "--no-deps",
        "--no-build-isolation",
        "--wheel-dir",
        str(folder),
    ]
    subprocess.run([*pip, str(ROOT)], check=True)
    (built,) = folder.glob("*.whl")
    return built


def environment(row: Row, built: Path) -> Path:
    """Install the wheel into the row's environment, and return the Python of that environment."""
    folder = PLACE / row.environment
    python = folder / "bin" / "python"
    if not python.exists():
        base = shutil.which(f"python{row.python}") if row.python else sys.executable
        if base is None:
            raise SystemExit(f"{row.name}: python{row.python} is not on the PATH")
        subprocess.run([base, "-m", "venv", str(folder)], check=True)
    pins = [f"{package}=={version}" for package, version in row.pins.items()]
    pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, f"{built}[{row.extras}]", *TOOLS, *pins, "pandas<3"], check=True)
    subprocess.run([*pip, "--no-deps", "--force-reinstall", str(built)], check=True)  # the tree may have changed
    return python


def run(row: Row, python: Path, arguments: Sequence[str]) -> Result:
    """Run a row's tests."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder, "report.xml")
        command = [str(python), "-m", "pytest", *row.tests, "-n0", "-q", f"--junitxml={report}", *arguments]
        variables = {**os.environ, "PYSPARK_PYTHON": str(python), "PYSPARK_DRIVER_PYTHON": str(python)}
        variables |= {
            "KAFKA_VERSION": row.kafka,
            "SPARK_LOCAL_IP": "127.0.0.1",
            "NEWEST_PYTHON": sys.executable,
            **row.variables,
        }
        subprocess.run(command, cwd=ROOT, env=variables, check=False)
        cases = ElementTree.parse(report).getroot().iter("testcase") if report.exists() else []
        outcomes: dict[str, list[str]] = {"passed": [], "skipped": [], "failed": []}
        for case in cases:
            kinds = {child.tag for child in case}
            outcome = "failed" if kinds & {"failure", "error"} else "skipped" if "skipped" in kinds else "passed"
            outcomes[outcome].append(case.attrib["name"])
    if not any(outcomes.values()):
        outcomes["failed"].append("the run itself")
    found = subprocess.run([str(python), "-c", VERSIONS], capture_output=True, text=True, check=True).stdout
    versions = {"kafka": row.kafka, **json.loads(found)}
    return Result(row=row.name, date=datetime.date.today().isoformat(), versions=versions, **outcomes)


def main() -> int:
    """Run the selected rows, and return 1 if one of them is not good."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("rows", nargs="*", metavar="ROW", help=f"by default all: {', '.join(row.name for row in ROWS)}")
    parser.add_argument("-k", dest="only", help="goes to pytest; the results are not kept then")
    parser.add_argument("--no-record", action="store_true", help="leave docs/compatibility.json as it is")
    args = parser.parse_args()
    if unknown := {*args.rows} - {row.name for row in ROWS}:
        parser.error(f"no such row: {', '.join(sorted(unknown))}")
    built, good = wheel(), True
    for row in ROWS:
        if args.rows and row.name not in args.rows:
            continue
        print(f"== {row.name}", flush=True)
        result = run(row, environment(row, built), ["-k", args.only] if args.only else [])
        print(f"== {row.name}: {len(result.passed)} passed, {len(result.failed)} failed", flush=True)
        good = good and result.good
        if not (args.only or args.no_record):
            store([result])
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
