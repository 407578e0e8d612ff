"""The jars of Spark's built-in Kafka source and of its Avro functions, downloaded like those of the broker."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from importlib.metadata import version
from pathlib import Path

from pyspark_kafka_group.testing.jars import JarSet, resolve

_SPARK = "org.apache.spark"
_SOURCE, _TOKENS = "spark-sql-kafka-0-10_2.13", "spark-token-provider-kafka-0-10_2.13"

_4_2_0 = {
    f"{_SPARK}:{_SOURCE}:4.2.0": "64539c45e5d39f7ddb747312c239f38f5208d08c1a0ddf7d70beb2fbd9373705",
    f"{_SPARK}:{_TOKENS}:4.1.0-preview1": "ab6e27a8a47ce63348dd0ecbd5543dc6212b4783180305cde5749e79684ea97b",
    "org.apache.kafka:kafka-clients:3.9.2": "014b4ef36884478a932641818b080c36a8f8e2e92dc771e800c9d2694f4f83d8",
    "org.apache.commons:commons-pool2:2.13.1": "f77a5060d6936a9144023584232f9de3f2248f1abfe156e9d31795f18770674f",
}
_PINNED = {
    # PySpark 4.3.0 is on PyPI, but in November 2026 its jars were not in Maven Central.  The token provider, which only
    # matters with delegation tokens, was not there in 4.2.0 either.  Replace these by 4.3.0 when it is there.  Until
    # then the results name the measured release.
    "4.3.0": _4_2_0,
    "4.2.0": _4_2_0,
}
"""By PySpark's version: the jars of ``format("kafka")`` with their SHA-256, the source first, without PySpark's own."""

_AVRO = "spark-avro_2.13"
# As above: neither 4.3.0 nor 4.2.0 was in Maven Central.
_AVRO_4_1_1 = {f"{_SPARK}:{_AVRO}:4.1.1": "6a19d90bc3b6e88d8db0fa36a19273aa10fea2dbd7a62bb60e4cedd73051b32d"}
_PINNED_AVRO = {"4.3.0": _AVRO_4_1_1, "4.2.0": _AVRO_4_1_1}

_NEEDED = (_SOURCE, _TOKENS, "kafka-clients", "commons-pool2")


def builtin_source_version() -> str:
    """Return the release of the built-in source to measure with the installed PySpark."""
    return _release(_PINNED)


def builtin_source_jars() -> list[Path]:
    """Return the jars that ``format("kafka")`` needs.  The first call of a user downloads them."""
    release = builtin_source_version()
    label = f"Spark's Kafka source {release}"
    name = f"spark-kafka-{release}"
    pinned = _PINNED.get(version("pyspark"))
    if pinned:
        files = resolve(JarSet(name=name, label=label, modules=tuple(pinned), sha256=pinned))
    else:
        # For another PySpark, resolve the dependencies from the modules themselves.  This takes a minute, once.
        files = resolve(JarSet(name=name, label=label, modules=(f"{_SPARK}:{_SOURCE}:{release}",), transitive=True))
    found = {name: next((file for file in files if file.name.startswith(f"{name}-")), None) for name in _NEEDED}
    missing = [name for name, file in found.items() if file is None]
    if missing:
        raise RuntimeError(f"{label} came without {', '.join(missing)}: add them to {files[0].parent}")
    return [file for file in found.values() if file is not None]


def avro_version() -> str:
    """Return the release of Spark's Avro functions to measure with the installed PySpark."""
    return _release(_PINNED_AVRO)


def avro_jars() -> list[Path]:
    """Return the jar that ``from_avro`` needs.  The first call of a user downloads it."""
    release = avro_version()
    pinned = _PINNED_AVRO.get(version("pyspark"))
    modules = tuple(pinned or (f"{_SPARK}:{_AVRO}:{release}",))
    return resolve(
        JarSet(name=f"spark-avro-{release}", label=f"Spark's Avro {release}", modules=modules, sha256=pinned or {})
    )


def _release(pinned: Mapping[str, Iterable[str]]) -> str:
    spark = version("pyspark")
    first = next(iter(pinned.get(spark, ())), None)
    return first.rpartition(":")[2] if first else spark
