"""The stream reader of Spark 4.0 and 4.1, which pass neither the start of a batch nor a limit.

:class:`~pyspark_kafka_group.query.call_order.CallOrder` finds the start.  docs/compatibility.md lists what differs with
these versions.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import InputPartition

from pyspark_kafka_group.options.settings import Settings
from pyspark_kafka_group.query.call_order import CallOrder
from pyspark_kafka_group.stream_reader import StreamReader

if TYPE_CHECKING:
    from pyspark_kafka_group.formats.batches import TypedReading
    from pyspark_kafka_group.where.filtering import RowFilter

Json = dict[str, Any]


class OlderStreamReader(StreamReader):
    """The stream reader of one query.  The parameters are those of :class:`.StreamReader`."""

    # Deliberate: with every trigger.  A run with availableNow looks like any other here.  It has one batch, and
    # would end without a record if other members had not given partitions back by then.  A continuous query loses
    # little: without partitions it can read nothing.  It waits only until it has one, until the group has settled, or
    # for a minute.  But its Python workers start only then, and other sources of the same query wait with it.
    patient = True

    def __init__(
        self,
        settings: Settings,
        typed: TypedReading | None = None,
        where: RowFilter | None = None,
    ) -> None:
        # Deliberate: no warm-up.  A trigger that runs once looks like any other here, and would run only the empty
        # batch.
        super().__init__(replace(settings, warm_up=False), typed, where)
        self._order = CallOrder()

    # Spark makes a new process for each run of a query, and unpickles the reader there or makes it anew.  So the order
    # of calls always begins with a new object.

    def initialOffset(self) -> Json:
        """Return the offset before batch 0, which is always the same.  Spark calls this at most once in a run."""
        self._order.initial_offset()
        return super().initialOffset()

    def latestOffset(self) -> Json:  # type: ignore[override]  # these versions pass no arguments
        """Return the end of the next batch, or the end of the last one if there is nothing to read."""
        with self._called() as query:
            return self._order.latest_offset(
                lambda start: query.latest_offset(start, self._settings.max_offsets_per_trigger)
            )

    def partitions(self, start: Json, end: Json) -> list[InputPartition]:
        """Return the tasks of the batch ``(start, end]``; none if the call only names the newest logged batch."""
        if self._order.names_newest_batch(start, end):
            with self._called():
                return []
        return super().partitions(start, end)

    def commit(self, end: Json) -> None:
        """Note that the batch that ends at ``end`` is durably finished, and that Spark has logged the next one."""
        self._order.logged_after(end)
        super().commit(end)
