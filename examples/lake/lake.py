"""Kafka to Parquet: order events go into a lake that several copies write to.

Start a copy with another `--name` whenever you need one more: it takes over a share of the partitions. Each copy has a
folder and a checkpoint of its own, because Spark's file sink keeps one list of files for one query. SIGTERM and
Ctrl-C end it cleanly; `--read` shows what is there.
"""

import argparse
import os
import sys
from functools import reduce
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  # as everybody calls it

import pyspark_kafka_group

ORDER = "order_id STRING, placed_at TIMESTAMP, total DECIMAL(10, 2)"


def orders(events: DataFrame) -> DataFrame:
    """Turn records into rows; each keeps the topic, partition and offset of its record."""
    order = F.from_json(F.col("value").cast("string"), ORDER).alias("order")
    return events.select("topic", "partition", "offset", F.to_date("timestamp").alias("day"), order).select(
        "topic", "partition", "offset", "day", "order.*"
    )


def read(spark: SparkSession, lake: Path) -> DataFrame:
    """Return the rows of all copies, each record once.

    Read one folder after the other, because Spark uses its list of files only then. A copy that was killed may have
    written a batch that the next owner of its partitions has written again. The offset identifies such a record.
    """
    copies = [spark.read.parquet(str(folder)) for folder in sorted(lake.glob("copy=*"))]
    return reduce(DataFrame.unionByName, copies).dropDuplicates(["topic", "partition", "offset"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--lake", required=True, type=Path)
    parser.add_argument("--read", action="store_true")
    for name in ("--name", "--bootstrap-servers", "--topic", "--group"):
        parser.add_argument(name, required="--read" not in sys.argv)
    args = parser.parse_args()
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    spark = SparkSession.builder.appName(args.name or "read").getOrCreate()
    if args.read:
        read(spark, args.lake).groupBy("day").agg(F.count("*"), F.sum("total")).show()
        return

    events = (
        spark.readStream.format("kafka-group")
        .option("kafka.bootstrap.servers", args.bootstrap_servers)
        .option("kafka.group.id", args.group)
        .option("kafka.group.protocol", "consumer")  # omit this before Kafka 4.0
        .option("kafka.client.id", args.name)
        .option("subscribe", args.topic)
        .option("startingOffsets", "earliest")
        .load()
    )
    writer = orders(events).writeStream.format("parquet").partitionBy("day")
    writer = writer.option("checkpointLocation", str(args.lake / "_checkpoints" / args.name))
    query = writer.start(str(args.lake / f"copy={args.name}"))
    pyspark_kafka_group.run_until_signal(query)
    spark.stop()


if __name__ == "__main__":
    main()
