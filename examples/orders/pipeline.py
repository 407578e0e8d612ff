"""The ETL job: read order events as a member of a consumer group, parse, enrich, write Parquet.

Start it as often as you like with the same `--group`: the copies share the partitions. SIGTERM and Ctrl-C end it
cleanly.
"""

from __future__ import annotations

import argparse

import pyspark.sql.functions as F  # noqa: N812  # as everybody calls it
from pyspark.sql import DataFrame, SparkSession

import pyspark_kafka_group

ORDER = """
    order_id STRING, customer_id STRING, status STRING, currency STRING, sequence BIGINT, occurred_at TIMESTAMP,
    items ARRAY<STRUCT<sku: STRING, quantity: INT, unit_price: DOUBLE>>
"""
EURO_RATES = {"EUR": 1.0, "CHF": 1.06, "GBP": 1.17, "USD": 0.92}


def enrich(events: DataFrame) -> DataFrame:
    """Turn Kafka records into order rows: JSON parsed, amounts summed up and converted to euros."""
    rates = F.create_map(*(F.lit(value) for pair in EURO_RATES.items() for value in pair))
    amount = F.aggregate("order.items", F.lit(0.0), lambda total, item: total + item["quantity"] * item["unit_price"])
    return events.withColumn("order", F.from_json(F.col("value").cast("string"), ORDER)).select(
        "topic",
        "partition",
        "offset",
        F.col("timestamp").alias("kafka_time"),
        *("order." + name for name in ("order_id", "customer_id", "sequence", "status", "occurred_at")),
        F.size("order.items").alias("item_lines"),
        F.round(amount * rates[F.col("order.currency")], 2).alias("amount_eur"),
    )


def main() -> None:
    """Run the job until SIGTERM or Ctrl-C."""
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("--name", "--bootstrap-servers", "--topic", "--group", "--output", "--checkpoint"):
        parser.add_argument(name, required=True)
    parser.add_argument("--option", action="append", default=[], metavar="KEY=VALUE", help="for the source")
    args = parser.parse_args()

    def write(orders: DataFrame, batch_id: int) -> None:
        orders.coalesce(1).write.mode("overwrite").parquet(f"{args.output}/batch={batch_id}")

    spark = SparkSession.builder.appName(args.name).getOrCreate()
    events = (
        spark.readStream.format("kafka-group")
        .option("kafka.bootstrap.servers", args.bootstrap_servers)
        .option("kafka.group.id", args.group)
        .option("kafka.client.id", args.name)
        .option("subscribe", args.topic)
        .option("startingOffsets", "earliest")
        .options(**dict(option.split("=", 1) for option in args.option))
        .load()
    )
    query = (
        enrich(events)
        .writeStream.foreachBatch(write)
        .option("checkpointLocation", args.checkpoint)
        .trigger(processingTime="1 second")
        .start()
    )
    pyspark_kafka_group.run_until_signal(query)
    spark.stop()


if __name__ == "__main__":
    main()
