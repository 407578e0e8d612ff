"""Kafka to two lake tables: orders go into one, and records that are no orders into the other.

Start a copy with another `--name` whenever you need one more: it takes over a share of the partitions. All copies fill
the same two tables, and each record is in one of them once. SIGTERM and Ctrl-C end a copy cleanly.
"""

import argparse
import os
import sys

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  # as everybody calls it

import pyspark_kafka_group
from pyspark_kafka_group.stores import LakeTable

ORDER = "order_id STRING, placed_at TIMESTAMP, total DECIMAL(10, 2)"
POSITION = "topic STRING NOT NULL, partition INT NOT NULL, offset BIGINT NOT NULL"


def create_tables(spark: SparkSession, orders: str, refused: str, using: str) -> None:
    """Create both tables, unless another copy has created them."""
    parts = "PARTITIONED BY (topic, partition)" if using == "delta" else ""  # so that copies do not conflict
    for table, columns in ((orders, ORDER), (refused, "value BINARY")):
        spark.sql(f"CREATE TABLE IF NOT EXISTS {table} ({POSITION}, {columns}) USING {using} {parts}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("--name", "--bootstrap-servers", "--topic", "--group", "--checkpoints", "--orders", "--refused"):
        parser.add_argument(name, required=True)
    parser.add_argument("--using", choices=("delta", "iceberg"), default="delta")
    args = parser.parse_args()
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    spark = SparkSession.builder.appName(args.name).getOrCreate()
    pyspark_kafka_group.register(spark)
    create_tables(spark, args.orders, args.refused, args.using)
    orders, refused = LakeTable(args.orders), LakeTable(args.refused)

    def write(batch: DataFrame, batch_id: int) -> None:
        """Write a batch. If it runs again, each table skips the records that it has."""
        events = batch.withColumn("order", F.from_json(F.col("value").cast("string"), ORDER))
        fine, position = F.col("order.order_id").isNotNull(), ["topic", "partition", "offset"]
        refused.write(events.where(~fine).select(*position, "value"), batch_id)
        orders.write(events.where(fine).select(*position, "order.*"), batch_id)

    events = (
        spark.readStream.format("kafka-group")
        .option("kafka.bootstrap.servers", args.bootstrap_servers)
        .option("kafka.group.id", args.group)
        .option("kafka.client.id", args.name)
        .option("subscribe", args.topic)
        .option("startingOffsets", "earliest")
        .load()
    )
    writer = events.writeStream.foreachBatch(write).trigger(processingTime="5 seconds")
    query = writer.option("checkpointLocation", f"{args.checkpoints}/{args.name}").start()
    pyspark_kafka_group.run_until_signal(query)
    spark.stop()


if __name__ == "__main__":
    main()
