"""Make the checkpoints in ``checkpoints/`` with a real Spark and a real Kafka.  Run it with the project's Python.

There is one checkpoint per version of Spark's offset log.  Its query has two sources, ours and one of Spark's.  The
query has finished the batches 0 and 1, and has only logged batch 2.  The script keeps only the files that the source
reads.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from pathlib import Path

from confluent_kafka import Producer
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import col

from pyspark_kafka_group.testing import LocalKafka

FOLDER = Path(__file__).with_name("checkpoints")


def main() -> None:
    os.environ["PYSPARK_PYTHON"] = sys.executable
    spark = (
        SparkSession.builder.master("local[1]")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .getOrCreate()
    )
    with LocalKafka() as kafka:
        kafka.create_topic("orders", 2)
        producer = Producer({"bootstrap.servers": kafka.bootstrap_servers})
        for n in range(30):
            producer.produce("orders", str(n), partition=n % 2)
        producer.flush()
        for version in (1, 2):
            make(spark, kafka.bootstrap_servers, version)
    spark.stop()


def make(spark: SparkSession, servers: str, version: int) -> None:
    spark.conf.set("spark.sql.streaming.offsetLog.formatVersion", version)
    ours = (
        spark.readStream.format("kafka-group")
        .option("kafka.bootstrap.servers", servers)
        .option("kafka.group.id", f"checkpoints-{version}")
        .option("subscribe", "orders")
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", 10)
        .load()
    )
    other = spark.readStream.format("rate").load()

    def fail_in_batch_2(_: DataFrame, batch: int) -> None:
        if batch == 2:
            raise RuntimeError("the sink is down")

    with tempfile.TemporaryDirectory() as checkpoint:
        query = (
            ours.select("timestamp")
            .union(other.select(col("timestamp")))
            .writeStream.foreachBatch(fail_in_batch_2)
            .option("checkpointLocation", checkpoint)
            .start()
        )
        try:
            query.awaitTermination()
        except Exception as expected:
            print(type(expected).__name__)
        target = FOLDER / f"v{version}"
        shutil.rmtree(target, ignore_errors=True)
        for part in ("offsets", "commits"):
            shutil.copytree(Path(checkpoint) / part, target / part)


if __name__ == "__main__":
    main()
