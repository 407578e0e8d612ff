"""The stream reader of Spark 4.2 and newer, which pass the start of each batch and a limit."""

from __future__ import annotations

import sys
from importlib import import_module
from typing import Any

from pyspark.sql.streaming.datasource import ReadLimit, ReadMaxRows, ReadMinRows, SupportsTriggerAvailableNow

from pyspark_kafka_group.offsets.errors import TriggerError
from pyspark_kafka_group.stream_reader import StreamReader

Json = dict[str, Any]

# Deliberate: not ReadAllAvailable.  Spark passes that one if a trigger runs once, whatever the limit here is.
_NO_LIMIT = 2**63 - 1


_ENGINE = "_engine_pyspark"
"""Databricks' second copy of PySpark.  Its workers call sources with it, and ask `isinstance` with its classes."""

_MIXINS: list[type] = [SupportsTriggerAvailableNow]
if _ENGINE in sys.modules:
    _MIXINS.append(import_module(f"{_ENGINE}.sql.streaming.datasource").SupportsTriggerAvailableNow)


class KafkaGroupStreamReader(StreamReader, *_MIXINS):  # type: ignore[misc]  # not a constant list
    """The stream reader of one query."""

    def prepareForTriggerAvailableNow(self) -> None:
        """Fix how far a run with ``availableNow`` reads.  Spark calls this first, even before a replay."""
        with self._called() as query:
            query.fix_target()

    def getDefaultReadLimit(self) -> ReadLimit:
        """Return ``maxOffsetsPerTrigger``, or ``minOffsetsPerTrigger``, as a limit of Spark.

        Spark has no limit for Python that is both.  The query itself applies ``minOffsetsPerTrigger`` in any case.
        """
        with self._called():  # Spark asks all sources of a query for their limit before it asks one for a batch
            pass
        limit, least = self._settings.max_offsets_per_trigger, self._settings.min_offsets_per_trigger
        if limit is None and least is not None:
            return ReadMinRows(least)
        return ReadMaxRows(_NO_LIMIT if limit is None else limit)

    def latestOffset(self, start: Json, limit: ReadLimit) -> Json:
        """Return the end of the next batch, or ``start`` itself if there is nothing to read.

        If Spark passes the end of a batch as ``start``, that batch is durably finished.

        Raises
        ------
        TriggerError
            If the trigger is ``once``.
        """
        # Deliberate: by name and field, not by class.  The limit may be one of Databricks' copy.
        most = getattr(limit, "max_rows", _NO_LIMIT)
        rows = most if most < _NO_LIMIT else None
        if type(limit).__name__ == "ReadAllAvailable":
            raise TriggerError
        with self._called() as query:
            return query.latest_offset(start, rows)

    def reportLatestOffset(self) -> Json | None:
        """Return the report that the query's progress shows as ``latestOffset``: lag, assignment, counters."""
        return None if self._query is None else self._query.report()
