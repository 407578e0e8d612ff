"""A Spark application that reads into the ``noop`` sink: ``python -m benchmarks.scaling_application SETTINGS``.

The settings are a JSON object with ``name``, ``cores``, ``source``, ``options`` and ``checkpoint``.  The application
first prints ``{"ready": true}``.  Then it prints a JSON object for each batch with rows, with ``end`` in seconds since
1970 and ``rows``.  It stops at the end of its input.
"""

from __future__ import annotations

import json
import sys
import threading

from pyspark.sql import SparkSession

import pyspark_kafka_group
from benchmarks.queries import batches_of, progress_of
from benchmarks.spark_jars import builtin_source_jars
from benchmarks.views import OURS


def main(given: str) -> None:
    """Read until standard input ends."""
    settings = json.loads(given)
    jars = ",".join(map(str, builtin_source_jars()))
    spark = (
        SparkSession.builder.master(f"local[{settings['cores']}]")
        .appName(settings["name"])
        .config("spark.jars", jars)
        .config("spark.driver.extraClassPath", jars.replace(",", ":"))
        .config("spark.driver.memory", "1g")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.sql.streaming.numRecentProgressUpdates", "10000")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    stream = spark.readStream.format(settings["source"]).options(**settings["options"]).load()
    query = stream.writeStream.format("noop").option("checkpointLocation", settings["checkpoint"]).start()
    print(json.dumps({"ready": True}), flush=True)
    over = threading.Event()

    def wait_for_the_end() -> None:
        sys.stdin.read()
        over.set()

    threading.Thread(target=wait_for_the_end, daemon=True).start()
    told = 0
    while not over.wait(0.1):
        problem = query.exception()
        if problem is not None:
            raise problem
        found = batches_of(progress_of(query))
        for batch in found[told:]:
            print(json.dumps({"end": batch.end, "rows": batch.rows}), flush=True)
        told = len(found)
    if settings["source"] == OURS:
        pyspark_kafka_group.stop(query)
    else:
        query.stop()
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1])
