"""The stops of "Follow a batch" in CONTRIBUTING are functions through which a batch really goes, in this order."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

_, _, SECTION = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8").partition("\n## Follow a batch\n")
STOPS = re.findall(r"^\| (\d+) \| `([\w/]+\.py)` `([\w.]+)` \|", SECTION.partition("\n## ")[0], re.MULTILINE)

PROGRAM = """
import sys, threading, time
from pathlib import Path

ROOT, STOPS = Path(sys.argv[1]), {stop.partition(" ")[2]: stop for stop in sys.argv[2:]}
calls = []

def note(frame, event, _):
    code = frame.f_code
    if event == "call" and code.co_qualname in STOPS:
        calls.append((code.co_filename, code.co_qualname))

from confluent_kafka import Producer
from pyspark.sql.streaming.datasource import ReadMaxRows
from pyspark_kafka_group.options.settings import parse
from pyspark_kafka_group.stream_reader_42 import KafkaGroupStreamReader
from pyspark_kafka_group.testing import MockKafka

with MockKafka() as kafka:
    kafka.create_topic("orders", 1)
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers})
    producer.produce("orders", b"tea")
    producer.flush(30)
    reader = KafkaGroupStreamReader(parse({
        "kafka.bootstrap.servers": kafka.bootstrap_servers, "kafka.group.id": "etl", "subscribe": "orders",
        "startingOffsets": "earliest", "commitMode": "plain", "warmUp": "false",
    }))
    threading.setprofile(note)
    sys.setprofile(note)
    most, until = ReadMaxRows(100), time.monotonic() + 60
    start = end = reader.initialOffset()
    while end is start and time.monotonic() < until:
        end = reader.latestOffset(start, most)
    rows = sum(batch.num_rows for task in reader.partitions(start, end) for batch in reader.read(task))
    reader.latestOffset(end, most)
    while reader.reportLatestOffset()["committedAt"] is None and time.monotonic() < until:
        time.sleep(0.05)
    sys.setprofile(None)
    threading.setprofile(None)
    reader.stop()
print(rows, "rows")
for path, name in calls:
    path = Path(path).resolve()
    if path.is_relative_to(ROOT):
        print(path.relative_to(ROOT).as_posix(), name)
"""


@pytest.fixture(scope="module")
def way() -> list[str]:
    """Return the calls of the stops during one batch, in their order."""
    command = [sys.executable, "-c", PROGRAM, str(ROOT), *(f"{path} {name}" for _, path, name in STOPS)]
    run = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    rows, _, called = run.stdout.partition("\n")
    assert rows == "1 rows", run.stderr
    return called.splitlines()


def test_there_are_ten_stops() -> None:
    assert [number for number, _, _ in STOPS] == [str(number) for number in range(1, 11)]


@pytest.mark.parametrize(("number", "path", "name"), STOPS)
def test_a_batch_goes_through_each_stop(number: str, path: str, name: str, way: list[str]) -> None:
    assert f"{path} {name}" in way, "correct the table, or the name in it"


def test_the_stops_are_in_the_order_of_a_batch(way: list[str]) -> None:
    calls = iter(way)
    for _, path, name in STOPS:
        assert f"{path} {name}" in calls, "it is not called after the stop before it"
