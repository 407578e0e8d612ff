"""A Spark application with one query, for tests.  It runs until its standard input is closed.

:class:`integration.pipelines.Application` starts it with the path of its configuration.  SIGTERM stops the query like
``query.stop()``, and Ctrl-C like ``pyspark_kafka_group.stop``.  The configuration names a file as ``nap``.  If this
file exists, the next batch is slow, once.  Another file beside it ends the nap early.  Some keys are switches:

* ``database``: the sink is this database, see :mod:`integration.database_sink`.
* ``lake``: write to this Delta or Iceberg table first, which gets each record once.
* ``landing``: land in the table of this folder instead, see :mod:`integration.landing_tables`.  A nap is between the
  look and the commit, or after the commit.
* ``write``: the sink is ``kafka-group``, with these options.  It gets keys and values.
* ``submitted``: ``spark-submit`` has decided where and how Spark runs.  The file ``stop_file`` then stops the query,
  instead of the standard input.
* ``spark``: settings of Spark, for example ``spark.master`` if Spark does not run in the driver.
* ``register``: call ``pyspark_kafka_group.register``.  The format needs this if the package was shipped in a zip.
* ``spark_stop``: at the end, stop Spark instead of the query.  Then ``exit``, or ``live`` until killed, like a
  notebook.
"""

from __future__ import annotations

import contextlib
import faulthandler
import json
import logging
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.readwriter import DataStreamWriter

import pyspark_kafka_group
from integration.sink import BatchFolder
from pyspark_kafka_group.stores import LakeTable


def main() -> None:
    config = json.loads(Path(sys.argv[1]).read_text())
    faulthandler.register(signal.SIGUSR1)
    terminated = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: terminated.set())
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell sets it to "ignore" in the background
    builder = SparkSession.builder if "submitted" in config else local(SparkSession.builder)
    for setting, value in config.get("spark", {}).items():
        builder = builder.config(setting, value)
    spark = builder.appName(config["name"]).getOrCreate()
    if config.get("register"):
        pyspark_kafka_group.register(spark)
    spark.sparkContext.setLogLevel("WARN")
    folder = BatchFolder(Path(config["rows"]))
    database = None
    if "database" in config:
        from integration.database_sink import DatabaseSink  # it loads SQLAlchemy, which most applications do not need

        database = DatabaseSink(config["database"], config["options"]["kafka.group.id"])
    lake = LakeTable(config["lake"]) if "lake" in config else None
    nap = Path(config["nap"])

    def take(batch: DataFrame, batch_id: int) -> None:
        sleep_before, sleep_after = take_nap(nap)
        sleep(sleep_before, unless=nap.with_suffix(".over"))
        if lake is not None:
            lake.write(batch.select("topic", "partition", "offset"), batch_id)
        if database is not None:
            database.write(batch, batch_id)
        elif not folder.has(batch_id):
            folder.write(batch_id, batch.select("topic", "partition", "offset").collect())
        sleep(sleep_after, unless=nap.with_suffix(".over"))

    if "landing" in config:
        writer = landing_writer(spark, config, nap)
    elif "write" in config:
        stream = spark.readStream.format("kafka-group").options(**config["options"]).load()
        writer = stream.select("key", "value").writeStream.format("kafka-group").options(**config["write"])
    else:
        stream = spark.readStream.format("kafka-group").options(**config["options"]).load()
        writer = stream.writeStream.foreachBatch(take)
    query = writer.option("checkpointLocation", config["checkpoint"]).trigger(processingTime=config["trigger"]).start()

    def stop_with_stdin() -> None:
        wait_to_be_stopped(config.get("stop_file"))
        if config.get("spark_stop"):
            spark.stop()
        elif not pyspark_kafka_group.stop(query):
            print("The running batch was not finished in time.")

    def stop_when_terminated() -> None:
        terminated.wait()
        query.stop()

    stopper = threading.Thread(target=stop_with_stdin, daemon=True)
    stopper.start()
    threading.Thread(target=stop_when_terminated, daemon=True).start()
    if config.get("spark_stop"):
        stopper.join()
        if config["spark_stop"] == "live":
            threading.Event().wait()
        return
    try:
        query.awaitTermination()
    except KeyboardInterrupt:
        print("clean" if pyspark_kafka_group.stop(query) else "in the middle of a batch")
    spark.stop()


def landing_writer(spark: SparkSession, config: dict[str, Any], nap: Path) -> DataStreamWriter:
    """Return the writer of a stream that lands."""
    from integration.landing_tables import landing_in  # it loads deltalake and pyiceberg
    from pyspark_kafka_group.landing.delta import DeltaState
    from pyspark_kafka_group.landing.iceberg import IcebergState

    state = IcebergState if Path(config["landing"]).name == "iceberg" else DeltaState
    real = state.commit

    def commit(*arguments: Any, **more: Any) -> None:
        sleep_before, sleep_after = take_nap(nap)
        sleep(sleep_before, unless=nap.with_suffix(".over"))
        real(*arguments, **more)
        sleep(sleep_after, unless=nap.with_suffix(".over"))

    state.commit = commit  # type: ignore[method-assign]
    logging.basicConfig(level=logging.INFO)  # shows the conflicts
    return landing_in(Path(config["landing"])).stream(spark, config["options"])


def local(builder: SparkSession.Builder) -> SparkSession.Builder:
    """Configure Spark to run in the driver alone."""
    return (
        builder.master("local[1]")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.memory", "512m")
        .config("spark.driver.extraJavaOptions", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")  # starts sooner
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
    )


def wait_to_be_stopped(file: str | None) -> None:
    """Wait until the standard input is closed, or until ``file`` exists if it is not None."""
    if file is None:
        sys.stdin.read()
        return
    while not Path(file).exists():
        time.sleep(0.1)


def take_nap(file: Path) -> tuple[float, float]:
    """Return how long to sleep before and after the batch is written, and delete the file."""
    with contextlib.suppress(FileNotFoundError):
        content = json.loads(file.read_text())
        file.unlink()
        return content["before"], content["after"]
    return 0.0, 0.0


def sleep(seconds: float, *, unless: Path) -> None:
    """Sleep for ``seconds``, or until the file ``unless`` exists."""
    end = time.monotonic() + seconds
    while time.monotonic() < end and not unless.exists():
        time.sleep(0.05)


if __name__ == "__main__":
    main()
