"""A Spark application with one query, for tests.  Runs until its standard input is closed.

Started by :class:`integration.pipelines.Application`, with the path of its configuration.  SIGTERM stops the query as
``query.stop()`` does.  A file that the configuration names as ``nap`` makes the next batch slow, once.  Some keys are
switches:

* ``fail_in_batch``: the sink fails in this batch, after it was written.
* ``database``: the sink is this database, see :mod:`integration.database_sink`.
* ``write``: the sink is ``kafka-group``, with these options; it gets keys and values.
* ``spark_stop``: at the end stop Spark and not the query; then ``exit``, or ``live`` on until killed, as a notebook.
"""

from __future__ import annotations

import contextlib
import json
import signal
import sys
import threading
import time
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

import pyspark_kafka_group
from integration.database_sink import DatabaseSink
from integration.sink import BatchFolder


def main() -> None:
    config = json.loads(Path(sys.argv[1]).read_text())
    terminated = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: terminated.set())
    spark = (
        SparkSession.builder.master("local[1]")
        .appName(config["name"])
        .config("spark.ui.enabled", "false")
        .config("spark.driver.memory", "512m")
        .config("spark.driver.extraJavaOptions", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")  # starts sooner
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("WARN")
    folder = BatchFolder(Path(config["rows"]))
    database = DatabaseSink(config["database"], config["options"]["kafka.group.id"]) if "database" in config else None
    nap = Path(config["nap"])

    def take(batch: DataFrame, batch_id: int) -> None:
        sleep_before, sleep_after = take_nap(nap)
        time.sleep(sleep_before)
        if database is not None:
            database.write(batch, batch_id)
        elif not folder.has(batch_id):
            folder.write(batch_id, batch.select("topic", "partition", "offset").collect())
        time.sleep(sleep_after)
        if batch_id == config.get("fail_in_batch"):
            raise RuntimeError("the sink is down")

    stream = spark.readStream.format("kafka-group").options(**config["options"]).load()
    if "write" in config:
        writer = stream.select("key", "value").writeStream.format("kafka-group").options(**config["write"])
    else:
        writer = stream.writeStream.foreachBatch(take)
    query = writer.option("checkpointLocation", config["checkpoint"]).trigger(processingTime=config["trigger"]).start()

    def stop_with_stdin() -> None:
        sys.stdin.read()
        if config.get("spark_stop"):
            spark.stop()
        elif not pyspark_kafka_group.stop(query):
            print("The running batch was not finished in time.")

    def stop_when_terminated() -> None:
        terminated.wait()
        query.stop()

    stopper = threading.Thread(target=stop_with_stdin, daemon=True)
    stopper.start()
    threading.Thread(target=stop_when_terminated, daemon=True).start()
    if config.get("spark_stop"):
        stopper.join()
        if config["spark_stop"] == "live":
            threading.Event().wait()
        return
    query.awaitTermination()
    spark.stop()


def take_nap(file: Path) -> tuple[float, float]:
    """Return how long to sleep before and after the batch is written, and forget it."""
    with contextlib.suppress(FileNotFoundError):
        content = json.loads(file.read_text())
        file.unlink()
        return content["before"], content["after"]
    return 0.0, 0.0


if __name__ == "__main__":
    main()
