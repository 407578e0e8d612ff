"""Says so if PySpark is missing or too old.

PySpark is an extra, because clusters bring their own, and clients of Databricks and of Spark Connect have another
package of that name.
"""

from __future__ import annotations

from contextlib import suppress

from pyspark_kafka_group.offsets.errors import ConfigurationError

_found: str | None = None
with suppress(ModuleNotFoundError):
    from pyspark import __version__ as _found

OLDEST = (4, 0)
"""The first Spark whose streams can have a Python source that reads Arrow batches."""


def check_spark(version: str | None = _found) -> None:
    """Raise if PySpark is missing or too old.

    Raises
    ------
    ConfigurationError
        It names the version, and the remedy.
    """
    needed = f"The kafka-group source and sink need PySpark {'.'.join(map(str, OLDEST))} or newer"
    if version is None:
        raise ConfigurationError(
            f"{needed}, and this Python has none. Use the Python of your Spark, or run "
            f"pip install 'pyspark-kafka-group[spark]'."
        )
    major, minor = version.split(".")[:2]
    if (int(major), int(minor)) >= OLDEST:
        return
    raise ConfigurationError(
        f"{needed}, and this is PySpark {version}, whose streams cannot read from Python as fast. Use a newer PySpark."
    )
