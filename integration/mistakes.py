"""A program that makes one typical mistake after another in one Spark session, each as a user's own program would.

The arguments are the bootstrap servers, those with a login, a topic and a folder.  Before and after each mistake,
standard error gets a line with a time, so that a test can read what a user would have seen.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

from pyspark.sql import SparkSession

import pyspark_kafka_group

BEGIN, END = "=== mistake:", "=== the program ends:"

SPARK_CHECKPOINT = "a checkpoint of Spark's own source"


class Mistake(NamedTuple):
    """Options that differ from those of a program that works; None takes one out."""

    name: str
    options: Mapping[str, str | None]
    format: str = "kafka-group"
    sink: Mapping[str, str] = {}


_LOGIN = {
    "kafka.security.protocol": "SASL_PLAINTEXT",
    "kafka.sasl.mechanism": "PLAIN",
    "kafka.sasl.username": "etl",
    "kafka.sasl.password": "wrong",
}


def mistakes(secured: str) -> list[Mistake]:
    """Return the mistakes; ``secured`` are the servers that need a login."""
    return [
        Mistake("a typing mistake in an option", {"startingOfsets": "earliest"}),
        Mistake("no group", {"kafka.group.id": None}),
        Mistake("a closed port", {"kafka.bootstrap.servers": "127.0.0.1:9"}),
        Mistake("an unknown host", {"kafka.bootstrap.servers": "no-such-host.invalid:9092"}),
        Mistake("no such topic", {"subscribe": "ordres"}),
        Mistake("a wrong format", {}, format="kafkagroup"),
        Mistake("a property of Java's client", {"kafka.max.poll.records": "500"}),
        Mistake("no number", {"maxOffsetsPerTrigger": "many"}),
        Mistake("a wrong password", {"kafka.bootstrap.servers": secured, **_LOGIN}),
        Mistake("a login where none is", _LOGIN),
        Mistake("a typing mistake in a property", {"kafka.session.timeout.mss": "6000"}),
        Mistake("a group of an eager consumer", {"kafka.group.id": "eager"}),
        Mistake(SPARK_CHECKPOINT, {}),
        Mistake("a value that is no JSON", {"valueFormat": "json", "valueSchema": "id LONG"}),
        Mistake("no such target topic", {}, sink={"topic": "shouted"}),
    ]


def main() -> None:
    servers, secured, topic, folder, *chosen = sys.argv[1:]
    spark = SparkSession.builder.getOrCreate()
    for number, mistake in enumerate(mistakes(secured)):
        if chosen and mistake.name not in chosen:
            continue
        usual = {"kafka.bootstrap.servers": servers, "kafka.group.id": f"mistake-{number}", "subscribe": topic}
        options = {**usual, "startingOffsets": "earliest", **mistake.options}
        sink = {"kafka.bootstrap.servers": servers, **mistake.sink} if mistake.sink else {}
        checkpoint = Path(folder, str(number))
        if mistake.name == SPARK_CHECKPOINT:
            _write_checkpoint(checkpoint, topic)

        def run(
            mistake: Mistake = mistake,
            options: Mapping[str, str | None] = options,
            sink: dict[str, str] = sink,
            checkpoint: Path = checkpoint,
        ) -> None:
            reader = spark.readStream.format(mistake.format)
            rows = reader.options(**{name: value for name, value in options.items() if value is not None}).load()
            if sink:
                writer = rows.selectExpr("value").writeStream.format("kafka-group").options(**sink)
            else:
                writer = rows.writeStream.format("noop")
            query = writer.option("checkpointLocation", str(checkpoint)).start()
            pyspark_kafka_group.run_until_signal(query)

        _as_a_program(mistake.name, run)


def _as_a_program(name: str, run: Callable[[], None]) -> None:
    """Run what a program does, and print what the interpreter prints at its end."""
    begin = time.monotonic()
    print(BEGIN, name, file=sys.stderr, flush=True)
    try:
        run()
        code = "0"
    except SystemExit as left:
        code = str(left.code)
    except Exception:
        sys.excepthook(*sys.exc_info())  # as the interpreter does
        code = "1"
    print(END, json.dumps({"seconds": round(time.monotonic() - begin, 1), "code": code}), file=sys.stderr, flush=True)


def _write_checkpoint(folder: Path, topic: str) -> None:
    """Write what Spark's own Kafka source leaves after one batch."""
    for part in ("offsets", "commits", "sources/0"):
        (folder / part).mkdir(parents=True)
    (folder / "metadata").write_text(json.dumps({"id": "3a1f9c52-6b0e-4f7d-9d52-0c6f3a4f8a11"}))
    offset = json.dumps({topic: {"0": 1, "1": 1}})
    settings = json.dumps({"batchWatermarkMs": 0, "batchTimestampMs": 1, "conf": {}})
    (folder / "offsets/0").write_text(f"v1\n{settings}\n{offset}")
    (folder / "commits/0").write_text('v1\n{"nextBatchWatermarkMs":0}')
    (folder / "sources/0/0").write_text(f"v1\n{offset}")


if __name__ == "__main__":
    main()
