"""A Kafka source for Spark whose queries are members of a Kafka consumer group.

    spark.readStream.format("kafka-group")

Spark finds the format by itself where the package is installed, because the name begins with ``pyspark_`` and the
package has a ``DefaultSource``.  :func:`register` does it explicitly, and does more: see there.

Importing this package is light on purpose: to find data sources Spark imports every ``pyspark_*`` package in a
process of its own, and one that fails to import hides all others.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from pyspark_kafka_group.batch.bookmark import Bookmark
    from pyspark_kafka_group.source import KafkaGroupDataSource as DefaultSource

__all__ = ["DefaultSource", "__version__", "bookmark", "register", "stop"]

__version__ = "0.1.0"


def register(spark: SparkSession) -> None:
    """Make ``kafka-group`` known to a session, and let its sources learn at once that a batch is finished.

    Where the package is installed in the Python that Spark uses, Spark finds the format without this, unless the
    session was created by ``newSession()``.  But then a source learns that a batch is finished only with the next
    trigger, which matters if triggers are far apart: see docs/guarantees.md.  May be called more than once.  With Spark
    Connect the server needs the package, too.

    Parameters
    ----------
    spark : SparkSession
        The session that starts the queries.
    """
    from pyspark_kafka_group.old_spark import is_too_old, refuse

    if is_too_old():
        refuse()
    from pyspark_kafka_group.session.listener import listen
    from pyspark_kafka_group.source import KafkaGroupDataSource

    spark.dataSource.register(KafkaGroupDataSource)
    listen(spark)


def bookmark(spark: SparkSession, options: Mapping[str, str]) -> Bookmark:
    """Return what a group has not read yet, to be processed as a batch and then committed.

    For jobs that a scheduler starts: the group keeps where the last one has ended.

        with pyspark_kafka_group.bookmark(spark, {"kafka.bootstrap.servers": ..., "kafka.group.id": ...,
                                                  "subscribe": "orders"}) as new:
            new.records.write.mode("append").parquet(...)

    The offsets are committed when the block has ended well.  A run that dies in between is repeated by the next one.

    Parameters
    ----------
    spark : SparkSession
        The session that reads.
    options : mapping of str to str
        Those of ``spark.read.format("kafka-group")``, without ``startingOffsets`` and the like.  This process connects
        to the cluster, too.

    Returns
    -------
    Bookmark
        With ``records``, ``ranges`` and ``commit()``.
    """
    from pyspark_kafka_group.batch.bookmark import Bookmark

    return Bookmark(spark, options)


def stop(query: StreamingQuery, timeout_s: float = 60.0) -> bool:
    """Stop a query between two batches, so that nobody repeats what it has done.

    ``query.stop()`` interrupts the running batch; the members that take the partitions over then process it again,
    although this query's sink may have it already.  This function lets the batch finish and commits it first.

    Parameters
    ----------
    query : StreamingQuery
        A query with at least one ``kafka-group`` source, started in this process; also through Spark Connect.
    timeout_s : float
        How long the running batch may take, in seconds.  After that the query is stopped all the same.

    Returns
    -------
    bool
        Whether the batch was finished in time.
    """
    from pyspark_kafka_group.session.stopping import stop as stop_between_batches

    return stop_between_batches(query, timeout_s)


def __getattr__(name: str) -> Any:
    if name == "DefaultSource":
        from pyspark_kafka_group.old_spark import is_too_old, stand_in

        if is_too_old():
            return stand_in()
        from pyspark_kafka_group.source import KafkaGroupDataSource

        return KafkaGroupDataSource
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
