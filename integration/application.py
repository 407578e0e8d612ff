"""A Spark application with one query, for tests.  Runs until its standard input is closed.

Started by :class:`integration.pipelines.Application`, with the path of its configuration.  Two keys are switches:

* ``fail_in_batch``: the sink fails in this batch, after it was written.
* ``spark_stop``: at the end stop Spark and not the query; then ``exit``, or ``live`` on until killed, as a notebook.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

import pyspark_kafka_group


def main() -> None:
    config = json.loads(Path(sys.argv[1]).read_text())
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

    def take(batch: DataFrame, batch_id: int) -> None:
        found = batch.select("topic", "partition", "offset").collect()
        now = time.time()
        with Path(config["rows"]).open("a") as sink:
            sink.writelines(json.dumps([now, batch_id, *row]) + "\n" for row in found)
        if batch_id == config.get("fail_in_batch"):
            raise RuntimeError("the sink is down")

    query = (
        spark.readStream.format("kafka-group")
        .options(**config["options"])
        .load()
        .writeStream.foreachBatch(take)
        .option("checkpointLocation", config["checkpoint"])
        .trigger(processingTime="500 milliseconds")  # back to back, the batches of three applications fill two cores
        .start()
    )

    def stop_with_stdin() -> None:
        sys.stdin.read()
        if config.get("spark_stop"):
            spark.stop()
        else:
            pyspark_kafka_group.stop(query)

    stopper = threading.Thread(target=stop_with_stdin, daemon=True)
    stopper.start()
    if config.get("spark_stop"):
        stopper.join()
        if config["spark_stop"] == "live":
            threading.Event().wait()
        return
    query.awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main()
