"""A program with one query for each topic that runs until a signal, like a user's program.

The arguments are the bootstrap servers, the group, a folder, and topics.  The folder contains these files:

* ``TOPIC.nap`` holds the batch of a topic while the file exists.
* ``TOPIC.begun`` shows that a batch has begun.
* ``TOPIC.N.json`` contains the rows of batch N.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

import pyspark_kafka_group


def main() -> None:
    servers, group, folder, *topics = sys.argv[1:]
    spark = SparkSession.builder.getOrCreate()

    def started(topic: str) -> StreamingQuery:
        stream = (
            spark.readStream.format("kafka-group")
            .option("kafka.bootstrap.servers", servers)
            .option("kafka.group.id", group)
            .option("kafka.client.id", topic)
            .option("subscribe", topic)
            .option("startingOffsets", "earliest")
            .option("eventLog", f"{folder}/{topic}.events.jsonl")
            .load()
        )
        writer = stream.writeStream.foreachBatch(into(Path(folder), topic))
        return writer.option("checkpointLocation", f"{folder}/{topic}.checkpoint").start()

    clean = pyspark_kafka_group.run_until_signal(*map(started, topics))
    print("clean" if clean else "in the middle of a batch")


def into(folder: Path, topic: str) -> Callable[[DataFrame, int], None]:
    """Return a function for ``foreachBatch``."""

    def write(batch: DataFrame, batch_id: int) -> None:
        rows = [[row.partition, row.offset] for row in batch.select("partition", "offset").collect()]
        (folder / f"{topic}.begun").touch()
        while (folder / f"{topic}.nap").exists():
            time.sleep(0.05)
        (folder / f"{topic}.{batch_id}.json").write_text(json.dumps(rows))

    return write


if __name__ == "__main__":
    main()
