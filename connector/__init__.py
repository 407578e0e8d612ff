"""A Kafka source for Spark whose queries are members of a Kafka consumer group.

    spark.readStream.format("kafka-group")

Spark finds the format without a call if the package is installed in the Python that Spark uses.  It looks for packages
whose name begins with ``pyspark_``, and that have a ``DefaultSource``.  :func:`register` does more: see there.

Deliberate: this module imports little.  Spark imports every ``pyspark_*`` package in a process that only looks for data
sources.  A package that fails to import hides all others.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import TracebackType

    import pyarrow as pa
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from pyspark_kafka_group.batch.bookmark import Bookmark
    from pyspark_kafka_group.source import KafkaGroupDataSource as DefaultSource

__all__ = ["DefaultSource", "__version__", "bookmark", "read_arrow", "register", "run_until_signal", "stop"]

__version__ = "0.1.0"


def register(spark: SparkSession) -> None:
    """Make ``kafka-group`` known to a session, and let its sources learn at once that a batch is finished.

    Call it if triggers are far apart.  Without it a source learns that a batch is finished only at the next trigger:
    see docs/guarantees.md.  Sessions of ``newSession()`` find the format only with it.  A second call does nothing.
    With Spark Connect the server also needs the package.

    Parameters
    ----------
    spark : SparkSession
        The session that starts the queries.
    """
    from pyspark_kafka_group.spark_version import check_spark

    check_spark()
    from pyspark.errors import AnalysisException

    from pyspark_kafka_group.session.listener import listen
    from pyspark_kafka_group.source import KafkaGroupDataSource

    try:
        spark.dataSource.register(KafkaGroupDataSource)
    except AnalysisException as problem:
        # Spark 4.0 and 4.1 refuse a format that they have found by the name of its package.
        if problem.getCondition() != "DATA_SOURCE_ALREADY_EXISTS":
            raise
    listen(spark)


def bookmark(spark: SparkSession | None, options: Mapping[str, str]) -> Bookmark:
    """Return what a group has not read yet, to process it as a batch and then commit it.

    For jobs that a scheduler starts.  The group's committed offsets say where the last run ended.

        with pyspark_kafka_group.bookmark(spark, {"kafka.bootstrap.servers": ..., "kafka.group.id": ...,
                                                  "subscribe": "orders"}) as new:
            new.records.write.mode("append").parquet(...)

    The end of the block commits the offsets, unless an exception leaves it.  If the run dies before, the next run reads
    the same records.

    Parameters
    ----------
    spark : SparkSession or None
        The session that reads.  None without Spark: :func:`read_arrow` reads the bookmark.
    options : mapping of str to str
        Options of ``spark.read.format("kafka-group")``, except ``startingOffsets`` and the like.  This process also
        connects to the cluster.

    Returns
    -------
    Bookmark
        With ``records``, ``ranges`` and ``commit()``.

    Raises
    ------
    KafkaGroupError
        Of :mod:`pyspark_kafka_group.errors`: an option is wrong, or the cluster or the group refuses.
    """
    if spark is not None:
        from pyspark_kafka_group.spark_version import check_spark

        check_spark()
    from pyspark_kafka_group.batch.bookmark import Bookmark

    return Bookmark(spark, options)


def read_arrow(source: Mapping[str, str] | Bookmark) -> pa.RecordBatchReader:
    """Read records in this process, without Spark and Java: for Polars, DuckDB, pandas or tests.

        table = pyspark_kafka_group.read_arrow({"kafka.bootstrap.servers": ..., "subscribe": "orders"}).read_all()

    Parameters
    ----------
    source : mapping of str to str, or Bookmark
        Options of ``spark.read.format("kafka-group")``.  Or the result of ``bookmark(None, options)``, which commits
        at the end of its block, if all was read by then.

    Returns
    -------
    pyarrow.RecordBatchReader
        An iterator of record batches, with the columns of the source.  A batch has records of one partition, in order.
        It has at most 32 MB of bytes, unless a single record is larger.

    Raises
    ------
    KafkaGroupError
        Of :mod:`pyspark_kafka_group.errors`, here or while records are read: an option is wrong, the cluster refuses,
        or records are lost.

    Notes
    -----
    Types for keys and values, such as ``valueFormat``, need the package ``pyspark`` or ``pyspark-client``, but no Java.
    """
    from pyspark_kafka_group.arrow_reads import read_arrow as read

    return read(source)


def stop(query: StreamingQuery, timeout_s: float = 120.0) -> bool:
    """Stop a query between two batches, so that no other member repeats its work.

    The query finishes and commits the running batch, and leaves the group.  Then it is stopped.  ``query.stop()``
    interrupts the running batch, and the new owners of the partitions process it again.

    Parameters
    ----------
    query : StreamingQuery
        A query with at least one ``kafka-group`` source, started in this process; also through Spark Connect.
    timeout_s : float
        How long the running batch may take, in seconds.  After that the query is stopped in any case.  Spark cannot
        interrupt a Python function of ``foreachBatch``: then this call returns 10 s later, and the query ends with the
        function.  The default is that of the option ``drainTimeoutMs``.

    Returns
    -------
    bool
        Whether the batch was finished in time.  If not, the new owners of the partitions repeat it.

    Raises
    ------
    RuntimeError
        If it is called in the query's own ``foreachBatch``.
    """
    from pyspark_kafka_group.session.stopping import stop as stop_between_batches

    return stop_between_batches(query, timeout_s)


def run_until_signal(query: StreamingQuery, *more: StreamingQuery, timeout_s: float = 120.0) -> bool:
    """Wait for queries, and at SIGTERM or Ctrl-C stop them as :func:`stop` does.

    The last line of a program:

        pyspark_kafka_group.run_until_signal(query)

    A signal lets the running batch finish and commits it, and the query leaves the group.  A second Ctrl-C does not
    wait for that.  Without a signal it returns when all queries have ended.  If one fails, it stops the others and
    raises the error.

    Call it in the main thread.  It takes over SIGINT and SIGTERM, and gives them back at the end.  The signals must
    reach this process, as they do with ``python program.py``, and not with ``spark-submit``: see docs/stopping.md.

    Parameters
    ----------
    query, *more : StreamingQuery
        Queries as :func:`stop` takes them.
    timeout_s : float
        How long the running batches may take after a signal, in seconds.  After that the queries are stopped in any
        case.  What ends the process, such as Kubernetes, must wait 30 s longer.

    Returns
    -------
    bool
        Whether each query that was stopped had finished its batch.

    Raises
    ------
    StreamingQueryException
        If a query has failed.
    KeyboardInterrupt
        At a second Ctrl-C.
    RuntimeError
        If it is called outside of the main thread.
    """
    from pyspark_kafka_group.session.waiting import run_until_signal as wait

    return wait((query, *more), timeout_s)


_excepthook = sys.excepthook


def _print_error(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """Print an error that ends the program, and then one line with its cause and its remedy.

    Deliberate: a hook of the interpreter.  Most mistakes show at ``load()``, before any other call of this package.
    """
    from pyspark_kafka_group.session.last_line import print_error

    print_error(_excepthook, kind, error, trace)


sys.excepthook = _print_error


def __getattr__(name: str) -> Any:
    if name == "DefaultSource":
        from pyspark_kafka_group.spark_version import check_spark

        check_spark()
        from pyspark_kafka_group.source import KafkaGroupDataSource

        return KafkaGroupDataSource
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
