"""The jars of Spark's own source that a benchmark fetches."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks import spark_jars
from pyspark_kafka_group.testing.jars import JarSet


@pytest.mark.parametrize(
    ("pyspark", "release", "pinned"), [(next(iter(spark_jars._PINNED)), "4.2.0", True), ("4.9.9", "4.9.9", False)]
)
def test_another_pyspark_gets_the_jars_of_its_release_unpinned(
    pyspark: str, release: str, pinned: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[JarSet] = []

    def resolve(wanted: JarSet) -> list[Path]:
        asked.append(wanted)
        return [Path(f"{name}-1.jar") for name in spark_jars._NEEDED]

    monkeypatch.setattr(spark_jars, "version", lambda _: pyspark)
    monkeypatch.setattr(spark_jars, "resolve", resolve)
    assert spark_jars.builtin_source_version() == release
    assert len(spark_jars.builtin_source_jars()) == 4
    assert f"org.apache.spark:spark-sql-kafka-0-10_2.13:{release}" in asked[0].modules
    assert (set(asked[0].sha256) == set(asked[0].modules)) is pinned
    assert asked[0].transitive is not pinned


@pytest.mark.parametrize(
    ("pyspark", "release", "pinned"), [(next(iter(spark_jars._PINNED_AVRO)), "4.1.1", True), ("4.9.9", "4.9.9", False)]
)
def test_another_pyspark_gets_the_avro_functions_of_its_release_unpinned(
    pyspark: str, release: str, pinned: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[JarSet] = []

    def resolve(wanted: JarSet) -> list[Path]:
        asked.append(wanted)
        return [Path("spark-avro-1.jar")]

    monkeypatch.setattr(spark_jars, "version", lambda _: pyspark)
    monkeypatch.setattr(spark_jars, "resolve", resolve)
    assert spark_jars.avro_version() == release
    assert spark_jars.avro_jars() == [Path("spark-avro-1.jar")]
    assert asked[0].modules == (f"org.apache.spark:spark-avro_2.13:{release}",)
    assert bool(asked[0].sha256) is pinned
