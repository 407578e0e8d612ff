"""Exactly-once writes: to a database with :class:`OffsetTable`, to a lake table with :class:`LakeTable`.

You call them in ``foreachBatch``.  :class:`OffsetTable` stores the offsets and the rows in the same transaction, and
the executors write (`task_writes`).  It needs the extra ``sql``.  :class:`LakeTable` needs Delta or Iceberg in Spark.

This package depends on databases, and not on groups or brokers.  The source never imports it.  It works with any stream
whose rows name their record.  The first use of :class:`OffsetTable` imports SQLAlchemy.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark_kafka_group.stores.bulk_load import into
    from pyspark_kafka_group.stores.lake_formats import LakeWrite
    from pyspark_kafka_group.stores.lake_table import LakeTable
    from pyspark_kafka_group.stores.offset_table import OffsetTable
    from pyspark_kafka_group.stores.task_writes import PartitionWrite

__all__ = ["LakeTable", "LakeWrite", "OffsetTable", "PartitionWrite", "into"]


_MODULES = {
    "LakeTable": "lake_table",
    "LakeWrite": "lake_formats",
    "OffsetTable": "offset_table",
    "PartitionWrite": "task_writes",
    "into": "bulk_load",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
