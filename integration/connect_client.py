"""A client of Spark Connect that uses ``kafka-group`` like a user, for a test.

The arguments are the server's address, and a JSON file with the configuration.  The client prints a line of JSON for
each step, and continues when it reads a line.  Spark Connect applies to a whole process, so this program is a process
of its own.  It refuses to connect to Unix sockets, because a client on another machine could not reach the driver's
sockets.
"""

from __future__ import annotations

import json
import sys
import time
import uuid
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

import pyspark_kafka_group


def no_unix_sockets(event: str, arguments: tuple[Any, ...]) -> None:
    if event == "socket.connect" and isinstance(arguments[1], str | bytes):
        raise PermissionError(f"a client on another machine cannot reach {arguments[1]!r}")


def told(**what: Any) -> None:
    """Print the result of a step, and wait for a line before the next step."""
    print(json.dumps(what), flush=True)
    sys.stdin.readline()


def started(spark: SparkSession, config: dict[str, Any], trigger: str, **more: str) -> StreamingQuery:
    rows, nap = Path(config["rows"]), Path(config["nap"])

    def take(batch: DataFrame, batch_id: int) -> None:
        """Write the rows of a batch, on the server."""
        found = [
            [row.topic, row.partition, row.offset] for row in batch.select("topic", "partition", "offset").collect()
        ]
        attempt = uuid.uuid4().hex
        (rows / f"{attempt}.begun").touch()
        while nap.exists():
            time.sleep(0.05)
        (rows / f"{batch_id}.json").write_text(json.dumps(found))
        (rows / f"{attempt}.ended").touch()

    return (
        spark.readStream.format("kafka-group")
        .options(**config["options"], **more)
        .load()
        .writeStream.foreachBatch(take)
        .option("checkpointLocation", config["checkpoint"])
        .trigger(processingTime=trigger)
        .start()
    )


def main() -> None:
    sys.addaudithook(no_unix_sockets)
    config = json.loads(Path(sys.argv[2]).read_text())
    spark = SparkSession.builder.remote(sys.argv[1]).getOrCreate()
    assert "connect" in type(spark).__module__
    pyspark_kafka_group.register(spark)

    found = spark.read.format("kafka-group").options(**config["batch"]).load().count()
    told(step="batch read", rows=found)

    query = started(spark, config, "1 hour")
    told(step="started")  # the first batch is finished; the next trigger is an hour away
    progress = query.lastProgress
    assert progress is not None
    told(step="progress", rows=progress.numInputRows, source=json.loads(progress.json)["sources"][0])
    begin = time.monotonic()
    told(step="stopped", clean=pyspark_kafka_group.stop(query), active=query.isActive, took_s=time.monotonic() - begin)

    query = started(spark, config, "1 second")
    told(step="again")  # a batch is running now, and ends after SIGTERM
    told(step="stopped", clean=pyspark_kafka_group.run_until_signal(query), active=query.isActive)

    query = started(spark, config, "1 second")
    told(step="again")  # a batch is running
    query.stop()
    told(step="interrupted")
    query = started(spark, config, "1 second")
    told(step="replayed")  # the batch has run again, and no other batch has
    begin = time.monotonic()
    told(step="stopped", clean=pyspark_kafka_group.stop(query), active=query.isActive, took_s=time.monotonic() - begin)
    spark.stop()


if __name__ == "__main__":
    main()
