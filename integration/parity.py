"""Compare Spark's own Kafka source and sink with those of this project, in the session of the tests.

A scenario is a function of a :class:`Run`.  It runs once with each of the two formats, on topics of its own.  A test
compares the two results.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from benchmarks.spark_jars import builtin_source_jars
from pyspark_kafka_group.testing import Kafka

BUILT_IN, OURS = FORMATS = ("kafka", "kafka-group")
_AT_A_TIME = 4


@dataclass
class Run:
    """One scenario with one of the two formats."""

    spark: SparkSession
    kafka: Kafka
    format: str

    @property
    def servers(self) -> str:
        return self.kafka.bootstrap_servers

    def topic(self, partitions: int = 3, **config: str) -> str:
        """Create a topic.  Its name begins in the same way with both formats."""
        name = f"topic-{uuid.uuid4().hex[:8]}"
        config = {key.replace("__", "."): value for key, value in config.items()}
        self.kafka.create_topic(name, partitions, config=config)
        return name

    def options(self, given: dict[str, Any]) -> dict[str, str]:
        """Return options for Spark; ``__`` in a name means ``.``."""
        return {
            "kafka.bootstrap.servers": self.servers,
            **{name.replace("__", "."): str(value) for name, value in given.items()},
        }

    def read(self, **options: Any) -> DataFrame:
        """Return the DataFrame of a batch read."""
        return self.spark.read.format(self.format).options(**self.options(options)).load()

    def write(self, rows: DataFrame, mode: str = "append", **options: Any) -> None:
        """Write a batch."""
        rows.write.format(self.format).options(**self.options(options)).mode(mode).save()


Scenario = Callable[[Run], Any]


def with_builtin_source(spark: SparkSession) -> SparkSession:
    """Add Spark's own source and sink to the session, and return it."""
    for jar in builtin_source_jars():
        spark.sql(f"ADD JAR '{jar}'")
    return spark


def outcomes(spark: SparkSession, kafka: Kafka, scenarios: dict[str, Scenario]) -> dict[str, dict[str, Any]]:
    """Return the result of each scenario with each format, or the text of its error as ``{"error": text}``.

    Several scenarios run at a time, because small queries spend most of their time waiting.
    """

    def outcome(scenario: Scenario, name: str) -> Any:
        try:
            return scenario(Run(spark, kafka, name))
        except Exception as problem:  # the tests compare errors
            return {"error": str(problem)}

    def activate() -> None:
        """Set the session in this thread, and the jars in its JVM thread.  Spark looks for both there."""
        spark.createDataFrame([], "value STRING")
        with_builtin_source(spark)

    with ThreadPoolExecutor(_AT_A_TIME, initializer=activate) as pool:
        running = {
            name: {of: pool.submit(outcome, scenario, of) for of in FORMATS} for name, scenario in scenarios.items()
        }
        return {name: {of: one.result() for of, one in both.items()} for name, both in running.items()}
