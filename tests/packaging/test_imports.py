"""Each module can be imported, and importing it stays light.

Spark imports every top-level `pyspark_*` package when it looks for data sources.  Our import must not take seconds, and
must not fail if a native library is missing.  Each of Spark's processes imports only what it needs of this package.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Collection

import pytest

from tests.packaging.packages import module_name, modules

HEAVY = (
    *("confluent_kafka", "pandas", "pyarrow", "numpy", "testcontainers", "docker", "sqlalchemy", "psycopg"),
    *("deltalake", "pyiceberg", "fastavro", "google", "httpx2", "sqlglot"),
)

# Reports each module whose import fails, or requests heavy packages, installed or not.
PROBE = """
import importlib, json, sys
import pyspark.sql.datasource, pyspark.sql.types

heavy, modules = set(json.loads(sys.argv[1])), json.loads(sys.argv[2])

class Recorder:
    asked = []
    @classmethod
    def find_spec(cls, name, path=None, target=None):
        if name.partition(".")[0] in heavy:
            cls.asked.append(name)

sys.meta_path.insert(0, Recorder)
for module in modules:
    try:
        importlib.import_module(module)
    except BaseException as problem:
        print(module, repr(problem))
    if Recorder.asked:
        print(module, "asks for", *Recorder.asked)
        Recorder.asked = []
"""


def test_each_module_can_be_imported_and_loads_nothing_heavy() -> None:
    """In one process: an import does not depend on earlier ones, because there are no circles (`test_size.py`)."""
    names = [module_name(path) for path in modules() if path.stem != "__main__"]
    # Only a query with the option where imports the first room, and evaluates conditions with Arrow.  Only tasks that
    # land, and the commit of their files, import the others.
    arrow = [
        name
        for name in names
        if (name.startswith("pyspark_kafka_group.where.") and not name.endswith(".patterns"))
        or (name.startswith("pyspark_kafka_group.landing.") and name.endswith(("files", "fitting", "layout")))
    ]
    light = [name for name in names if name not in arrow]
    assert probed(light, HEAVY) == ""
    assert probed(arrow, {*HEAVY} - {"pyarrow", "numpy"}) == ""


def probed(names: list[str], heavy: Collection[str]) -> str:
    command = [sys.executable, "-c", PROBE, json.dumps([*heavy]), json.dumps(names)]
    run = subprocess.run(command, capture_output=True, text=True, timeout=280, check=False)
    assert run.returncode == 0, run.stderr
    return run.stdout


# Runs one process of Spark as far as its imports go, and reports the modules of this package.
BEGUN = """
import sys
import pyspark_kafka_group.source
from pyspark_kafka_group.options.settings import parse
from pyspark_kafka_group.stream_reader_42 import KafkaGroupStreamReader

reader = KafkaGroupStreamReader(parse(
    {"kafka.bootstrap.servers": "127.0.0.1:1", "kafka.group.id": "g", "subscribe": "t", "warmUp": "false"}
))
"""
SOURCE_PROCESS = (
    BEGUN
    + """
reader.initialOffset()
"""
)
WORKER = (
    BEGUN
    + """
from pyspark_kafka_group.stream_reader import TaskPartition

list(reader.read(TaskPartition({})))
"""
)
REPORT = """
print(*(name.removeprefix("pyspark_kafka_group.") for name in sys.modules if name.startswith("pyspark_kafka_group.")))
"""

LOGINS = (
    "wire.login.kerberos",
    "wire.login.oauth",
    "wire.login.tls",
    "wire.login.token_providers",
    "cluster.properties.java_login",
)
OTHER_READS = ("batch_reader", "options.batch_settings", "views.schemas", "formats.planning", "formats.batches")
SINK = ("writers", "wire.transactions")


@pytest.mark.parametrize(
    ("program", "needed", "not_needed"),
    [
        pytest.param(BEGUN, "source", ("query.query", "reading.range_reader", "cluster.cluster"), id="any process"),
        pytest.param(SOURCE_PROCESS, "query.query", ("reading.range_reader", "query.available_now"), id="source"),
        pytest.param(WORKER, "reading.direct_client", ("query.query", "cluster.cluster"), id="worker"),
    ],
)
def test_a_process_of_a_plain_stream_imports_only_what_it_needs(
    program: str, needed: str, not_needed: tuple[str, ...]
) -> None:
    """Each of these modules delays the first row of every query, in several processes one after the other."""
    run = subprocess.run(
        [sys.executable, "-c", program + REPORT], capture_output=True, text=True, timeout=120, check=False
    )
    assert run.returncode == 0, run.stderr
    found = {*run.stdout.split()}
    assert needed in found
    assert found.isdisjoint({*LOGINS, *OTHER_READS, *SINK, *not_needed})
