"""Offsets kept in the database that the rows go to, in the same transaction: exactly once, whoever writes.

:class:`OffsetTable` is called in ``foreachBatch``; the executors write (`task_writes`).  Needs the extra ``sql``.

It is a plane of its own: it knows databases and nothing of groups or brokers, the source never imports it, and it works
with any stream whose rows say which record they come from.  Importing it is light: SQLAlchemy is loaded by its use.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark_kafka_group.stores.bulk_load import into
    from pyspark_kafka_group.stores.offset_table import OffsetTable
    from pyspark_kafka_group.stores.task_writes import PartitionWrite

__all__ = ["OffsetTable", "PartitionWrite", "into"]


_MODULES = {"OffsetTable": "offset_table", "PartitionWrite": "task_writes", "into": "bulk_load"}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
