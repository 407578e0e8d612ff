"""Says so if PySpark is missing or too old, in place of the data source.

PySpark is an extra, because clusters bring their own, and clients of Databricks and of Spark Connect have another
package of that name.

Spark imports every ``pyspark_*`` package to find data sources.  One package that cannot be imported hides all others.
So this package always registers a source.  With an old PySpark, that source raises an error when a query uses it.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

from pyspark_kafka_group.offsets.errors import ConfigurationError

_found: str | None = None
with suppress(ModuleNotFoundError):
    from pyspark import __version__ as _found

if TYPE_CHECKING:
    from pyspark.sql.datasource import DataSource

OLDEST = (4, 0)
"""The first Spark whose streams can have a Python source that reads Arrow batches."""


def is_too_old(version: str | None = _found) -> bool:
    """Return whether this PySpark is missing, or too old to run the source."""
    if version is None:
        return True
    major, minor = version.split(".")[:2]
    return (int(major), int(minor)) < OLDEST


def check_spark(version: str | None = _found) -> None:
    """Raise if PySpark is missing or too old.

    Raises
    ------
    ConfigurationError
        It names the version, and the remedy.
    """
    if not is_too_old(version):
        return
    needed = f"The kafka-group source and sink need PySpark {'.'.join(map(str, OLDEST))} or newer"
    if version is None:
        raise ConfigurationError(
            f"{needed}, and this Python has none. Use the Python of your Spark, or run "
            f"pip install 'pyspark-kafka-group[spark]'."
        )
    raise ConfigurationError(
        f"{needed}, and this is PySpark {version}, whose streams cannot read from Python as fast. Use a newer PySpark."
    )


def stand_in() -> type[DataSource]:
    """Return a data source of the same name whose use raises an error."""
    if _found is None:
        check_spark()
    from pyspark.sql.datasource import DataSource

    class TooOldForKafkaGroup(DataSource):
        @classmethod
        def name(cls) -> str:
            return "kafka-group"

        def schema(self) -> Any:
            check_spark()

        def writer(self, schema: Any, overwrite: bool) -> Any:
            check_spark()

        def streamWriter(self, schema: Any, overwrite: bool) -> Any:
            check_spark()

    return TooOldForKafkaGroup
