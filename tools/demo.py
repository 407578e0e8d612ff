"""The programs of ``kafka-group demo`` beside Kafka: a producer of orders, and Spark applications that read them."""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from pyspark_kafka_group.cluster.error_remedies import TryAgainError
from pyspark_kafka_group.testing import KafkaTestingError
from pyspark_kafka_group.testing.process import GuardedProcess
from pyspark_kafka_group.tools.analysis.group_view import UnknownGroupError, view_group
from pyspark_kafka_group.tools.connection import open_inspection

TOPIC, GROUP, PARTITIONS = "orders", "orders-etl", 6

PROGRAM = """\
import sys
import pyspark_kafka_group
from pyspark.sql import SparkSession

spark = SparkSession.builder.getOrCreate()
orders = (spark.readStream.format("kafka-group")
          .option("kafka.bootstrap.servers", "localhost:9092")
          .option("kafka.group.id", "orders-etl")
          .option("kafka.client.id", sys.argv[1])
          .option("subscribe", "orders").load())
query = (orders.selectExpr("partition", "offset", "STRING(value) AS value")
         .writeStream.format("console").options(numRows=5, truncate=False)
         .option("checkpointLocation", f"checkpoint-{sys.argv[1]}")
         .trigger(processingTime="5 seconds").start())
pyspark_kafka_group.run_until_signal(query)
"""
"""The first program of README.md and docs/quick-start.md.  The demo's own applications also run it."""

_PER_SECOND = 100
_PRODUCE_EVERY_S = 0.1
_MOST_AT_ONCE = 10 * _PER_SECOND
_PRICES = {"tea": 6.9, "mug": 12.0, "kettle": 49.0, "filter": 4.2, "beans": 14.8}

# An application joins the group after 10 s on two idle cores, and ends within a batch.
_START_S, _STOP_S = 180.0, 20.0
_POLL_S = 0.5
_LOG_CHARACTERS = 2000

_SPARK = (
    "--master local[1] --driver-memory 512m --conf spark.ui.enabled=false --conf spark.driver.host=127.0.0.1 "
    "--conf spark.driver.bindAddress=127.0.0.1 pyspark-shell"
)


def introduction(servers: str) -> str:
    """Return what to do with the Kafka at ``servers``."""
    return f"""\
Kafka listens at {servers}. The topic '{TOPIC}' gets {_PER_SECOND} records a second.

Save this as first.py:

{_program(servers)}
Run it in a second terminal, and a copy of it in a third one. Activate this
environment in both. The two share the {PARTITIONS} partitions:

python first.py one
python first.py two

See which one has which partitions:

kafka-group describe -b {servers} {GROUP}

Press Ctrl-C to stop Kafka. This deletes its data."""


def _program(servers: str) -> str:
    return PROGRAM.replace("localhost:9092", servers)


@contextmanager
def orders_to(servers: str) -> Iterator[None]:
    """Write orders at a steady rate during the block."""
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": servers, "log_level": 2})
    stop = threading.Event()

    def produce() -> None:
        begin, produced = time.monotonic(), 0
        while not stop.wait(_PRODUCE_EVERY_S):
            due = int((time.monotonic() - begin) * _PER_SECOND)
            if due - produced > _MOST_AT_ONCE:  # after a pause, as with Ctrl-Z: all of it may not fit into the client
                begin, due = time.monotonic() - produced / _PER_SECOND, produced
            for number in range(produced + 1, due + 1):
                item = random.choice([*_PRICES])
                order = {"order": number, "item": item, "price": _PRICES[item]}
                producer.produce(TOPIC, key=f"customer-{number % 100}", value=json.dumps(order))
            producer.poll(0)
            produced = due

    thread = threading.Thread(target=produce, name="orders", daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


@contextmanager
def applications_of(servers: str, count: int) -> Iterator[None]:
    """Run copies of the program during the block.  The block begins when one of them has joined the group."""
    python = {"PYSPARK_PYTHON": sys.executable, "PYSPARK_DRIVER_PYTHON": sys.executable}
    environment = {**os.environ, **python, "PYSPARK_SUBMIT_ARGS": _SPARK, "SPARK_LOCAL_IP": "127.0.0.1"}
    started: dict[Path, GuardedProcess] = {}
    with tempfile.TemporaryDirectory(prefix="kafka-group-demo-", ignore_cleanup_errors=True) as folder:
        program = Path(folder, "first.py")
        program.write_text(_program(servers), encoding="utf-8")
        try:
            for number in range(1, count + 1):
                log = Path(folder, f"etl-{number}.log")
                started[log] = GuardedProcess([sys.executable, str(program), log.stem], log, environment)
            _await_group(servers, started)
            yield
        finally:
            for process in started.values():
                process.send(signal.SIGTERM)
            deadline = time.monotonic() + _STOP_S
            for process in started.values():
                process.end(max(0.0, deadline - time.monotonic()))


def _await_group(servers: str, started: dict[Path, GuardedProcess]) -> None:
    deadline = time.monotonic() + _START_S
    with closing(open_inspection({"bootstrap.servers": servers})) as inspection:
        while True:
            for log, process in started.items():
                if process.exit_status() is not None or time.monotonic() > deadline:
                    sys.stderr.write(log.read_text(errors="replace")[-_LOG_CHARACTERS:])
                    raise KafkaTestingError(f"{log.stem} has not joined the group. The end of its output is above.")
            try:
                view_group(inspection, GROUP).check_exists()
            except (TryAgainError, UnknownGroupError):
                time.sleep(_POLL_S)
            else:
                return
