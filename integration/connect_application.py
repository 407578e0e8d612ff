"""A query through Spark Connect that writes with the offset table, for a test.

The arguments are the checkpoint, the URL of the database, the offset that each partition must reach, and the options
of the source, as JSON.  Spark Connect applies to a whole process, so this program is a process of its own.
"""

from __future__ import annotations

import json
import sys
import time

from pyspark.sql import DataFrame, SparkSession

from pyspark_kafka_group.stores import OffsetTable, into
from pyspark_kafka_group.testing.ports import HOST


def main() -> None:
    folder, url, wanted = sys.argv[1], sys.argv[2], int(sys.argv[3])
    # The port is Spark's default.  If Spark starts the server itself, its client connects to no other port.
    spark = (
        SparkSession.builder.remote("local[2]")
        .config("spark.connect.grpc.binding.address", HOST)
        .config("spark.ui.enabled", "false")
        .getOrCreate()
    )
    assert "connect" in type(spark).__module__
    offsets = OffsetTable(url, "etl", connections=2, checkpoint=folder)

    def take(batch: DataFrame, batch_id: int) -> None:
        offsets.write(batch, batch_id, into("orders", columns=["topic", "partition", "offset"]))

    rows = spark.readStream.format("kafka-group").options(**json.loads(sys.argv[4])).load()
    query = (
        rows.select("topic", "partition", "offset")
        .where("partition < 2")
        .writeStream.foreachBatch(take)
        .option("checkpointLocation", folder)
        .start()
    )
    deadline = time.monotonic() + 120
    while query.exception() is None and time.monotonic() < deadline:
        found = offsets.offsets()
        if len(found) == 3 and min(found.values()) >= wanted and query.recentProgress:
            break  # and Spark has finished a batch
        time.sleep(0.5)
    problem = query.exception()
    query.stop()
    spark.stop()
    assert problem is None, problem


if __name__ == "__main__":
    main()
