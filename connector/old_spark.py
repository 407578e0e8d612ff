"""What stands in for the data source where PySpark is too old for it.

Spark imports every ``pyspark_*`` package to find data sources, and one that cannot be imported hides all others.  So
the package gives Spark a source all the same, which says what is wrong when it is used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NoReturn

import pyspark

if TYPE_CHECKING:
    from pyspark.sql.datasource import DataSource

from pyspark_kafka_group.offsets.errors import ConfigurationError

OLDEST = (4, 2)
"""Before 4.2 Spark never tells a Python source which batch is finished."""


def is_too_old(version: str = pyspark.__version__) -> bool:
    """Tell whether this PySpark cannot run the source."""
    major, minor = version.split(".")[:2]
    return (int(major), int(minor)) < OLDEST


def refuse(version: str = pyspark.__version__) -> NoReturn:
    """Raise that PySpark is too old."""
    needed = ".".join(map(str, OLDEST))
    raise ConfigurationError(
        f"The kafka-group source and sink need PySpark {needed} or newer, and this is PySpark {version}: before "
        f"{needed} Spark does not tell a source written in Python which batch is finished. Use a newer PySpark."
    )


def stand_in() -> type[DataSource]:
    """Return a data source of the same name that refuses to be used."""
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
