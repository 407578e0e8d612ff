"""The jars of Spark's own source that a benchmark fetches."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from benchmarks import spark_jars
from pyspark_kafka_group.testing.jars import JarSet

JARS = {
    spark_jars.builtin_source_version: (spark_jars.builtin_source_jars, "spark-sql-kafka-0-10", spark_jars._NEEDED),
    spark_jars.avro_version: (spark_jars.avro_jars, "spark-avro", ["spark-avro"]),
}


@pytest.mark.parametrize(
    ("version_of", "pyspark", "release", "pinned"),
    [
        (spark_jars.builtin_source_version, next(iter(spark_jars._PINNED)), "4.2.0", True),
        (spark_jars.builtin_source_version, "4.9.9", "4.9.9", False),
        (spark_jars.avro_version, next(iter(spark_jars._PINNED_AVRO)), "4.1.1", True),
        (spark_jars.avro_version, "4.9.9", "4.9.9", False),
    ],
)
def test_another_pyspark_gets_the_jars_of_its_release_unpinned(
    version_of: Callable[[], str], pyspark: str, release: str, pinned: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[JarSet] = []
    jars, module, names = JARS[version_of]

    def resolve(wanted: JarSet) -> list[Path]:
        asked.append(wanted)
        return [Path(f"{name}-1.jar") for name in names]

    monkeypatch.setattr(spark_jars, "version", lambda _: pyspark)
    monkeypatch.setattr(spark_jars, "resolve", resolve)
    assert version_of() == release
    assert [path.name for path in jars()] == [f"{name}-1.jar" for name in names]
    assert f"org.apache.spark:{module}_2.13:{release}" in asked[0].modules
    assert asked[0].modules[1:] == () or pinned
    assert (set(asked[0].sha256) == set(asked[0].modules)) is pinned
    assert asked[0].transitive is (len(names) > 1 and not pinned)
