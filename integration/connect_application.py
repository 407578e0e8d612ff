"""A query through Spark Connect that writes with the offset table, for a test.

Arguments are the checkpoint, the URL of the database, and up to where each partition shall be written.  Connect is a
matter of the whole process, so this is one of its own.  The stream is Spark's own, of numbers in place of records:
what matters here is where the function of ``foreachBatch`` runs.
"""

from __future__ import annotations

import sys
import time

from pyspark.sql import DataFrame, SparkSession

from pyspark_kafka_group.stores import OffsetTable, into
from pyspark_kafka_group.testing.ports import HOST


def main() -> None:
    folder, url, wanted = sys.argv[1], sys.argv[2], int(sys.argv[3])
    # The port is Spark's usual one: where it starts the server itself, its client looks nowhere else.
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

    query = (
        spark.readStream.format("rate")
        .option("rowsPerSecond", 30)
        .load()
        .selectExpr("'orders' AS topic", "CAST(value % 3 AS INT) AS partition", "value DIV 3 AS offset")
        .writeStream.foreachBatch(take)
        .option("checkpointLocation", folder)
        .start()
    )
    deadline = time.monotonic() + 120
    while query.exception() is None and time.monotonic() < deadline:
        if offsets.offsets() and min(offsets.offsets().values()) >= wanted:
            break
        time.sleep(0.5)
    problem = query.exception()
    query.stop()
    spark.stop()
    assert problem is None, problem


if __name__ == "__main__":
    main()
