"""The tasks of a worker that Spark keeps."""

from __future__ import annotations

import subprocess
import sys

from pyspark_kafka_group.testing import MockKafka
from tests.connector.reading.test_read_ranges import filled_topic, numbered

# Of a new process, as in an executor: this one has imported what tasks only need if all goes wrong.
TASKS = """
import sys
from pyspark_kafka_group.columns.schema import DEFAULT_COLUMNS
from pyspark_kafka_group.offsets.types import OffsetRange, TopicPartition
from pyspark_kafka_group.read_task import read_task
from pyspark_kafka_group.reading.range_reader import ReadOptions

class Spy:
    def find_spec(self, name, path=None, target=None):
        print("looked for", name)

servers, topic = sys.argv[1:]
options = ReadOptions(columns=DEFAULT_COLUMNS, fail_on_data_loss=True, timeout_s=20)
for task in range(3):
    if task == 2:
        sys.meta_path.insert(0, Spy())
    read = {TopicPartition(topic, 0): OffsetRange.checked(0, 5)}
    rows = read_task(read, options, None, None, properties={"bootstrap.servers": servers}, reader_name="etl")
    print(sum(batch.num_rows for batch in rows))
"""


def test_a_later_task_looks_for_no_module() -> None:
    """Each look went through all files of Python's path, and made PySpark 4.1 read Spark's jar before the next task."""
    with MockKafka() as kafka:
        topic = filled_topic(kafka, numbered(5))
        command = [sys.executable, "-c", TASKS, kafka.bootstrap_servers, topic]
        told = subprocess.run(command, capture_output=True, text=True, check=True).stdout

    assert told.split("\n") == ["5", "5", "5", ""]
