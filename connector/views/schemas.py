"""The columns of each view: the keys of the command line's ``--json`` output, and their types."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark_kafka_group.offsets.errors import OptionError

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

_PARTITION = "group STRING, topic STRING, partition INT"
_OWNER = "member_id STRING, client_id STRING, host STRING"

VIEWS = {
    "lag": f"{_PARTITION}, committed_offset BIGINT, log_end_offset BIGINT, lag BIGINT, expired BIGINT, "
    f"lag_seconds DOUBLE, catch_up_seconds DOUBLE, leader_epoch INT, metadata STRING, query_id STRING, "
    f"{_OWNER}, status STRING, problem STRING",
    "members": "group STRING, state STRING, protocol STRING, member_id STRING, group_instance_id STRING, "
    "client_id STRING, host STRING, member_epoch INT, assignment ARRAY<STRUCT<topic: STRING, partition: INT>>",
    "history": f"{_PARTITION}, time TIMESTAMP, move STRING, previous_offset BIGINT, committed_offset BIGINT, "
    f"leader_epoch INT, topic_id STRING, metadata STRING, query_id STRING, reset_by STRING, {_OWNER}, "
    "members INT, log_offset BIGINT",
    "rewinds": f"{_PARTITION}, time TIMESTAMP, previous_offset BIGINT, committed_offset BIGINT, metadata STRING, "
    f"query_id STRING, reset_by STRING, {_OWNER}, members INT, log_offset BIGINT, kind STRING, highest_offset BIGINT, "
    "lowest_offset BIGINT, ended STRING, recovered TIMESTAMP, needs_attention BOOLEAN",
}
"""The columns by the value of the option ``show``."""

MOMENTS = frozenset({"time", "recovered"})
"""Columns that are text on the command line and timestamps here."""


def names(view: str) -> list[str]:
    """Return the column names of a view."""
    return [field.name for field in schema_of(view)]


def schema_of(view: str) -> StructType:
    """Return the columns of a view.

    Raises
    ------
    OptionError
        If there is no such view.
    """
    # Deliberate: not at the top.  Every query imports this module.
    from pyspark_kafka_group.formats.ddl import struct_type

    if view not in VIEWS:
        raise OptionError("show", f"{view!r} is not a view.", f"Write {', '.join(VIEWS)}.")
    return struct_type(VIEWS[view])
