"""An application that reads what Kerberos users can read with the wheels of confluent-kafka.

It reads the options as JSON from its standard input, and prints its results as JSON.
"""

from __future__ import annotations

import json
import os
import sys

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession


def main() -> None:
    options = json.load(sys.stdin)
    os.environ["PYSPARK_PYTHON"] = sys.executable
    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.sql.shuffle.partitions", "1")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    topic = {**options, "subscribe": "orders"}
    found = {
        "rows": spark.read.format("kafka-group").options(**topic).load().count(),
        "lag": spark.read.format("kafka-group").options(**options, show="lag").load().count(),
        "stream": "",
    }
    stream = spark.readStream.format("kafka-group").options(**topic).load().writeStream.format("noop")
    query = stream.option("checkpointLocation", os.environ["CHECKPOINT"]).start()
    try:
        query.awaitTermination(60)
    except PySparkException as problem:
        found["stream"] = str(problem)
    print("FOUND", json.dumps(found), flush=True)
    spark.stop()


if __name__ == "__main__":
    main()
