"""The jars of Spark's built-in Kafka source, fetched as those of the broker are."""

from __future__ import annotations

from importlib.metadata import version
from pathlib import Path

from pyspark_kafka_group.testing.jars import JarSet, resolve

_SOURCE, _TOKENS = "spark-sql-kafka-0-10_2.13", "spark-token-provider-kafka-0-10_2.13"

_MODULES = {
    # PySpark 4.3.0 is on PyPI, its jars were not in Maven Central when this was written (November 2026), and of the
    # token provider, which only matters with delegation tokens, not the 4.2.0 either.  To be replaced by 4.3.0 when
    # that can be fetched; until then the results name the release that was measured.
    "4.3.0": (
        f"org.apache.spark:{_SOURCE}:4.2.0",
        f"org.apache.spark:{_TOKENS}:4.1.0-preview1",
        "org.apache.kafka:kafka-clients:3.9.2",
        "org.apache.commons:commons-pool2:2.13.1",
    ),
}
"""By PySpark's version: what ``format("kafka")`` needs, and what is not among PySpark's own jars."""

_NEEDED = (_SOURCE, _TOKENS, "kafka-clients", "commons-pool2")


def builtin_source_version() -> str:
    """Return the release of the built-in source that is measured with the installed PySpark."""
    spark = version("pyspark")
    return _MODULES[spark][0].rpartition(":")[2] if spark in _MODULES else spark


def builtin_source_jars() -> list[Path]:
    """Return the jars that ``format("kafka")`` needs; fetched once per user."""
    release = builtin_source_version()
    label = f"Spark's Kafka source {release}"
    known = _MODULES.get(version("pyspark"))
    # With another PySpark, what belongs to it is only said by the modules themselves; that takes a minute once.
    modules = known or (f"org.apache.spark:{_SOURCE}:{release}",)
    files = resolve(JarSet(name=f"spark-kafka-{release}", label=label, modules=modules, transitive=known is None))
    found = {name: next((file for file in files if file.name.startswith(f"{name}-")), None) for name in _NEEDED}
    missing = [name for name, file in found.items() if file is None]
    if missing:
        raise RuntimeError(f"{label} came without {', '.join(missing)}: add them to {files[0].parent}")
    return [file for file in found.values() if file is not None]
