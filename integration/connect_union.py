"""A client of Spark Connect that reads one stream twice in a query, for a test.

The arguments are the server's address, and a JSON file with the options of the source and the folders.  The query
writes the rows of both sides as Parquet.  Spark Connect applies to a whole process, so this program is a process of its
own.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession


def main() -> None:
    config: dict[str, Any] = json.loads(Path(sys.argv[2]).read_text())
    spark = SparkSession.builder.remote(sys.argv[1]).getOrCreate()
    assert "connect" in type(spark).__module__
    # Deliberate: nothing here asks for the schema.  The server would then keep the plan, and make one source.
    one = spark.readStream.format("kafka-group").options(**config["options"]).load()
    query = (
        one.union(one.filter("offset >= 0"))
        .writeStream.format("parquet")
        .option("path", config["rows"])
        .option("checkpointLocation", config["checkpoint"])
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(150)
    assert query.exception() is None, query.exception()
    spark.stop()


if __name__ == "__main__":
    main()
