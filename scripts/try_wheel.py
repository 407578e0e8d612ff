"""Read from a mock broker with the installed package, and fail unless its C library has read.

With ``--pure`` it fails if the package has a C library.  It needs no other file of the repository and no network.
`try-wheel.sh` runs it where a wheel is installed.

With ``--beside WHEEL [NAME ...]`` it installs a wheel into new virtual environments, beside the packages of `BESIDE`.
It writes to docs/installed.json what pip has changed and what the first query returns.  This needs the package index, a
Python of each version on the path, and 1 GB in the folder for temporary files.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from confluent_kafka import Producer

from pyspark_kafka_group.columns.chunk_reader import CHUNKS
from pyspark_kafka_group.columns.schema import COLUMNS
from pyspark_kafka_group.offsets.types import OffsetRange, TopicPartition
from pyspark_kafka_group.reading.client_cache import CONSUMERS
from pyspark_kafka_group.reading.direct_client import DirectClient
from pyspark_kafka_group.reading.range_reader import ReadOptions
from pyspark_kafka_group.reading.reader_config import reader_config
from pyspark_kafka_group.reading.task_reader import read_ranges
from pyspark_kafka_group.testing import LocalKafka, MockKafka

BESIDE = {
    "nothing": ("3.11", "", ""),
    "nothing, with the extra spark": ("3.14", "", "spark"),
    "PySpark 4.0": ("3.11", "pyspark==4.0.*", ""),
    "PySpark 4.1": ("3.11", "pyspark==4.1.*", ""),
    "PySpark 4.2": ("3.11", "pyspark==4.2.*", ""),
    "PySpark 4.3": ("3.14", "pyspark==4.3.*", ""),
    "databricks-connect": ("3.12", "databricks-connect", ""),
    "pyspark-client": ("3.14", "pyspark-client", ""),
}
"""The environments: the version of Python, what is installed before the wheel, and the extra of the wheel."""

INSTALLED = Path(__file__).resolve().parents[1] / "docs" / "installed.json"

# What a user does first.  A client alone has no Spark that runs a query.
_FIRST_QUERY = """
import importlib.metadata, sys
try:
    import pyspark_kafka_group
    from pyspark_kafka_group.spark_version import check_spark
    check_spark()
    import pyspark
    if "pyspark" not in {found.name for found in importlib.metadata.distributions()}:
        print(f"the client of Spark {pyspark.__version__} is accepted")
        sys.exit()
    from pyspark.sql import SparkSession
    spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
    options = {"kafka.bootstrap.servers": sys.argv[1], "subscribe": "orders"}
    print(spark.read.format("kafka-group").options(**options).load().count(), "records read")
except Exception as problem:
    print(f"{type(problem).__name__}: {str(problem).splitlines()[0]}")
"""

VALUES = [b"%d" % number for number in range(10_000)]


def main(*, pure: bool = False) -> None:
    """Read some records, and print which library has read them."""
    library = CHUNKS.library
    assert (library is None) == pure, CHUNKS.problem
    with MockKafka() as kafka:
        kafka.create_topic("orders")
        produce(kafka)
        config = reader_config({"bootstrap.servers": kafka.bootstrap_servers}, "etl")
        ranges = {TopicPartition("orders", 0): OffsetRange.checked(0, len(VALUES))}
        options = ReadOptions(columns=COLUMNS, fail_on_data_loss=True, timeout_s=30)
        batches = list(read_ranges(config, ranges, options))
        assert [value for batch in batches for value in batch["value"].to_pylist()] == VALUES
        with CONSUMERS.lease(config) as client:
            assert isinstance(client, DirectClient) != pure, f"{type(client).__name__} has read"
        CONSUMERS.close_idle()
    where = f"{platform.system()} {platform.machine()}, Python {platform.python_version()}"
    print(f"{len(VALUES):,} records read on {where}, by {library._name if library else 'Python'}")


def beside(wheel: Path, names: list[str]) -> None:
    """Install a wheel into the environments with these names, or into all, and store the results."""
    if unknown := {*names} - {*BESIDE}:
        raise SystemExit(f"no such environment: {', '.join(sorted(unknown))}. There are {', '.join(BESIDE)}")
    stored: dict[str, Any] = json.loads(INSTALLED.read_text()) if INSTALLED.exists() else {}
    with LocalKafka() as kafka:
        kafka.create_topic("orders")
        kafka.produce("orders", ["tea", "mug"])
        for name in names or BESIDE:
            with tempfile.TemporaryDirectory() as folder:
                stored[name] = _installed(name, wheel.resolve(), Path(folder), kafka.bootstrap_servers)
            print(f"{name}: {stored[name]}", flush=True)
            kept = {one: stored[one] for one in BESIDE if one in stored}
            INSTALLED.write_text(json.dumps(kept, indent=1, ensure_ascii=False) + "\n")


def _installed(name: str, wheel: Path, folder: Path, servers: str) -> dict[str, Any]:
    """Install a wheel into a new environment, and return what that changed and what the first query returns."""
    version, before, extra = BESIDE[name]
    base = shutil.which(f"python{version}")
    if base is None:
        raise SystemExit(f"{name}: python{version} is not on the PATH")
    subprocess.run([base, "-m", "venv", folder], check=True)
    python = folder / "bin" / "python"
    pip: list[str | Path] = [python, "-m", "pip", "--disable-pip-version-check", "--quiet"]
    if before:
        subprocess.run([*pip, "install", before], check=True)
    packages, files = _packages(python), _files(folder)
    subprocess.run([*pip, "install", f"{wheel}[{extra}]" if extra else str(wheel)], check=True)
    packages_after, files_after = _packages(python), _files(folder)
    # As in an activated environment: Spark starts its processes with the first python3 on the path.
    path = f"{folder / 'bin'}{os.pathsep}{os.environ['PATH']}"
    variables = {name: value for name, value in os.environ.items() if not name.startswith("PYSPARK_")} | {"PATH": path}
    found = subprocess.run(
        [python, "-c", _FIRST_QUERY, servers], capture_output=True, text=True, check=False, cwd=folder, env=variables
    ).stdout
    return {
        "python": subprocess.run([python, "--version"], capture_output=True, text=True, check=True).stdout.split()[1],
        "before": {
            one: packages[one] for one in ("pyspark", "pyspark-client", "databricks-connect") if one in packages
        },
        "added": {one: number for one, number in packages_after.items() if one not in packages},
        "changed": sorted(one for one, number in packages.items() if packages_after.get(one) != number),
        "files": len(files),
        "changed files": sorted(one for one, digest in files.items() if files_after.get(one) != digest),
        "first query": found.strip().splitlines()[-1] if found.strip() else "",
    }


def _packages(python: Path) -> dict[str, str]:
    pip: list[str | Path] = [python, "-m", "pip", "--disable-pip-version-check", "list", "--format", "json"]
    found = json.loads(subprocess.run(pip, capture_output=True, text=True, check=True).stdout)
    return {one["name"].lower(): one["version"] for one in found}


def _files(environment: Path) -> dict[str, str]:
    """Return the hash of each file of PySpark, or of its client.  Leave out byte code, which Python writes itself."""
    packages = next((environment / "lib").glob("python3*")) / "site-packages"
    files = [file for folder in ("pyspark", "databricks") for file in (packages / folder).rglob("*") if file.is_file()]
    return {
        str(file.relative_to(packages)): hashlib.sha256(file.read_bytes()).hexdigest()
        for file in files
        if file.suffix != ".pyc"
    }


def produce(kafka: MockKafka) -> None:
    """Write all values.  The producer ends here, before the broker ends."""
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers, "compression.type": "zstd"})
    for value in VALUES:
        producer.produce("orders", value, partition=0, headers=[("n", value)])
    assert producer.flush(30) == 0


if __name__ == "__main__":
    if sys.argv[1:2] == ["--beside"]:
        beside(Path(sys.argv[2]), sys.argv[3:])
    else:
        main(pure="--pure" in sys.argv[1:])
