"""Landing: the tasks of the source write the files of a lake table, and the driver commits them exactly once.

The table is one of Delta (`delta`) or Iceberg (`iceberg`).

No record passes the JVM, which takes most of the time of a query that only copies a topic into a table.  See
docs/landing.md.

This package is a leaf: the source never imports it.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark_kafka_group.landing.delta import DeltaLanding
    from pyspark_kafka_group.landing.iceberg import IcebergLanding
    from pyspark_kafka_group.landing.landing import Landed

__all__ = ["DeltaLanding", "IcebergLanding", "Landed"]

_MODULES = {"DeltaLanding": "delta", "IcebergLanding": "iceberg", "Landed": "landing"}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
