"""Kafka to PostgreSQL, each record once: order events become one row per item.

Start it as often as you like with the same `--group`: the copies share the partitions, and may be killed and started
again at any time. SIGTERM and Ctrl-C end it cleanly.
"""

import argparse
import os
import sys

import psycopg
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  # as everybody calls it

import pyspark_kafka_group
from pyspark_kafka_group.stores import OffsetTable, into

ORDER = "order_id STRING, placed_at TIMESTAMP, items ARRAY<STRUCT<sku: STRING, quantity: INT, price: DECIMAL(10, 2)>>"
# The lock ends with the transaction. Without it, two copies that start together would both create a table.
TABLES = """
    SELECT pg_advisory_xact_lock(hashtext('order_items'));
    CREATE TABLE IF NOT EXISTS order_items (
        order_id text, sku text, quantity int, price numeric(10, 2), placed_at timestamptz, PRIMARY KEY (order_id, sku)
    );
    CREATE TABLE IF NOT EXISTS refused_items (topic text, partition int, "offset" bigint, error text)
"""
# Rows that the table refuses go here with the reason: items without a sku, and orders that were sent twice.
REFUSED = into("refused_items", columns=["topic", "partition", "offset", "error"])


def items(events: DataFrame) -> DataFrame:
    """Turn records into rows; each keeps the topic, partition and offset of its record."""
    order = F.from_json(F.col("value").cast("string"), ORDER).alias("order")
    rows = events.select("topic", "partition", "offset", order).where("order.order_id IS NOT NULL")
    exploded = rows.select("topic", "partition", "offset", "order", F.explode("order.items").alias("item"))
    return exploded.select("topic", "partition", "offset", "order.order_id", "order.placed_at", "item.*")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("--name", "--bootstrap-servers", "--topic", "--group", "--checkpoint"):
        parser.add_argument(name, required=True)
    args = parser.parse_args()
    database = os.environ["DATABASE_URL"]  # it has a password, and every user of the machine sees arguments
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)

    spark = SparkSession.builder.appName(args.name).getOrCreate()
    offsets = OffsetTable(database, args.group)
    with psycopg.connect(database) as connection:
        connection.execute(TABLES)

    def write(batch: DataFrame, batch_id: int) -> None:
        offsets.write(batch, batch_id, into("order_items"), refused=REFUSED)

    events = (
        spark.readStream.format("kafka-group")
        .option("kafka.bootstrap.servers", args.bootstrap_servers)
        .option("kafka.group.id", args.group)
        .option("kafka.client.id", args.name)
        .option("subscribe", args.topic)
        .option("startingOffsets", "earliest")
        .load()
    )
    writer = items(events).writeStream.foreachBatch(write).option("checkpointLocation", args.checkpoint)
    query = writer.trigger(processingTime="1 second").start()
    pyspark_kafka_group.run_until_signal(query)
    spark.stop()


if __name__ == "__main__":
    main()
