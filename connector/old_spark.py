"""Replaces the data source if PySpark is too old for it.

Spark imports every ``pyspark_*`` package to find data sources.  One package that cannot be imported hides all others.
So this package always registers a source.  With an old PySpark, that source raises an error when a query uses it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NoReturn

import pyspark

if TYPE_CHECKING:
    from pyspark.sql.datasource import DataSource

from pyspark_kafka_group.offsets.errors import ConfigurationError

OLDEST = (4, 2)
"""Older versions of Spark do not report finished batches to a Python source."""


def is_too_old(version: str = pyspark.__version__) -> bool:
    """Return whether this PySpark is too old to run the source."""
    major, minor = version.split(".")[:2]
    return (int(major), int(minor)) < OLDEST


def refuse(version: str = pyspark.__version__) -> NoReturn:
    """Raise the error for a PySpark that is too old."""
    needed = ".".join(map(str, OLDEST))
    raise ConfigurationError(
        f"The kafka-group source and sink need PySpark {needed} or newer, and this is PySpark {version}. Older "
        f"versions do not report finished batches to a Python source. Use a newer PySpark."
    )


def stand_in() -> type[DataSource]:
    """Return a data source of the same name whose use raises an error."""
    from pyspark.sql.datasource import DataSource

    class TooOldForKafkaGroup(DataSource):
        @classmethod
        def name(cls) -> str:
            return "kafka-group"

        def schema(self) -> Any:
            refuse()

        def writer(self, schema: Any, overwrite: bool) -> Any:
            refuse()

        def streamWriter(self, schema: Any, overwrite: bool) -> Any:
            refuse()

    return TooOldForKafkaGroup
