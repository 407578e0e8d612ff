"""A query that reads bytes does not import the formats."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import sys
from pyspark_kafka_group.source import KafkaGroupDataSource
from pyspark_kafka_group.reading import task_reader
options = {"kafka.bootstrap.servers": "b:9092", "kafka.group.id": "g", "subscribe": "t"}
options |= dict(argument.split("=") for argument in sys.argv[1:])
source = KafkaGroupDataSource(options)
schema = source.schema()
source.streamReader(schema), source.reader(schema)
print(any(name.startswith("pyspark_kafka_group.formats") for name in sys.modules))
"""


def imported(*options: str) -> bool:
    run = subprocess.run(
        [sys.executable, "-c", PROGRAM, *options], capture_output=True, text=True, check=True, timeout=60
    )
    return run.stdout.strip() == "True"


def test_formats_are_imported_only_by_those_who_ask_for_one() -> None:
    assert not imported()
    assert imported("valueFormat=string")
