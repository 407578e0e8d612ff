"""The environment of the benchmarks: one broker, and one Spark session at a time on two cores."""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
import tempfile
import uuid
from collections.abc import Callable, Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path

from pyspark.sql import SparkSession

from benchmarks.spark_jars import avro_jars, builtin_source_jars
from pyspark_kafka_group.testing import LocalKafka, TlsFiles

_ROOT = Path(__file__).resolve().parent.parent

# The options of Kafka's own scripts.  Those of LocalKafka make a broker start quickly.
_BROKER_JVM = (
    "-Xms1g",
    "-Xmx1g",
    "-server",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
)
_NOT_FOR_BENCHMARKS = ("-Xmx", "-XX:TieredStopAtLevel", "-XX:+UseSerialGC")

Say = Callable[[str], None]


class BenchmarkKafka(LocalKafka):
    """A local broker with the JVM settings of a production broker."""

    def _java(self, java: Path, jars: list[Path], folder: Path) -> list[str]:
        program, *options = super()._java(java, jars, folder)
        return [program, *_BROKER_JVM, *(option for option in options if not option.startswith(_NOT_FOR_BENCHMARKS))]


class Bench:
    """Holds the session, the broker and the temporary folders of a benchmark.

    Parameters
    ----------
    kafka : LocalKafka
        The running broker.
    folder : Path
        The folder for checkpoints.
    say : callable
        Prints a line for each step.
    settings : mapping of str to str, optional
        More settings of the session.

    Attributes
    ----------
    spark : SparkSession
        The session, ``local[2]``.
    """

    def __init__(self, kafka: LocalKafka, folder: Path, say: Say, settings: Mapping[str, str] | None = None) -> None:
        self.kafka = kafka
        self.say = say
        self._folder = folder
        self.spark = session(settings or {})

    @property
    def servers(self) -> str:
        """The broker's address."""
        return self.kafka.bootstrap_servers

    def checkpoint(self) -> str:
        """Return a new folder for a checkpoint."""
        return str(self._folder / uuid.uuid4().hex)

    def topic(self, partitions: int, **config: str) -> str:
        """Create a topic and return its name."""
        name = f"bench-{uuid.uuid4().hex[:8]}"
        # A small index, because a broker maps two index files into memory for each of 10,000 partitions.
        self.kafka.create_topic(name, partitions, config={"segment.index.bytes": "1048576", **config})
        return name

    def new_session(self, settings: Mapping[str, str] | None = None) -> None:
        """Stop the session and start another, with new Python workers in the same JVM.

        ``settings`` are added to those of the benchmarks.
        """
        self.spark.stop()
        self.spark = session(settings or {})


@contextlib.contextmanager
def bench(
    say: Say,
    *,
    tls: TlsFiles | None = None,
    sasl_users: Mapping[str, str] | None = None,
    python: str = sys.executable,
    settings: Mapping[str, str] | None = None,
    **properties: str,
) -> Iterator[Bench]:
    """Yield a broker with a session.

    ``properties`` are the broker's properties, with ``_`` for ``.`` in their names.  ``tls`` and ``sasl_users`` are
    parameters of `LocalKafka`.  ``python`` is the program of Spark's Python processes.  ``settings`` are Spark's.
    """
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = python
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    # Spark's Python processes import the sources of this folder.
    os.environ["PYTHONPATH"] = str(_ROOT)
    # An installed package has byte code.  Without it, each of these processes would compile this package anew.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    folder = Path(tempfile.mkdtemp(prefix="benchmark-"))
    say("starting a broker and Spark")
    try:
        given = {name.replace("_", "."): value for name, value in properties.items()}
        with BenchmarkKafka(properties=given, tls=tls, sasl_users=sasl_users) as kafka:
            made = Bench(kafka, folder, say, settings)
            try:
                yield made
            finally:
                made.spark.stop()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def session(settings: Mapping[str, str]) -> SparkSession:
    """Return a new session, ``local[2]``, with the jars of the built-in source and those of ``settings``."""
    more = [jar for jar in settings.get("spark.jars", "").split(",") if jar]
    jars = ",".join([*map(str, [*builtin_source_jars(), *avro_jars()]), *more])
    builder = (
        SparkSession.builder.master("local[2]")
        .appName("benchmarks")
        .config("spark.driver.extraClassPath", jars.replace(",", ":"))
        .config("spark.driver.memory", "2g")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.sql.shuffle.partitions", "1")
        .config("spark.sql.streaming.numRecentProgressUpdates", "10000")
    )
    for name, value in {**settings, "spark.jars": jars}.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    if find_spec("pyspark.sql.streaming.datasource") is not None:  # since PySpark 4.2
        from benchmarks.ceiling import CeilingDataSource
        from benchmarks.without_commits import WithoutCommitsDataSource

        session.dataSource.register(CeilingDataSource)
        session.dataSource.register(WithoutCommitsDataSource)
    return session
