"""The stream reader of Spark 4.0 and 4.1, which pass neither the start of a batch nor a limit.

`CallOrder` finds the start.  docs/compatibility.md lists what differs with these versions.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from pyspark.sql.datasource import InputPartition

from pyspark_kafka_group.offsets.batch_offset import INITIAL
from pyspark_kafka_group.offsets.errors import ConfigurationError
from pyspark_kafka_group.options.settings import Settings
from pyspark_kafka_group.stream_reader import StreamReader

Json = dict[str, Any]


class CallOrder:
    """Finds the start of a batch from the order of the calls of Spark 4.0 and 4.1.

    Spark 4.2 passes to ``latestOffset`` the end of the last finished batch.  Spark 4.0 and 4.1 pass nothing, but the
    order of their calls shows it.  These are the calls that 4.0.1 and 4.1.1 made in runs with a source that logs them.
    ``x`` is the end of the newest logged batch, ``y`` that of the batch before it, and ``e`` the end of a new batch.

    * A new query: ``latestOffset() -> e``, ``initialOffset()``, ``partitions(initial, e)``.
    * A restart after a finished batch: ``partitions(x, x)``, ``latestOffset() -> e``, ``commit(x)``,
      ``partitions(x, e)``.
    * A restart after an unfinished batch: ``partitions(x, x)``, ``partitions(y, x)``, ``latestOffset() -> e``.
    * A trigger that finds nothing: ``latestOffset() -> x``.

    So the first ``partitions(x, x)`` names the newest logged batch, and a ``latestOffset()`` after a batch shows that
    the batch is finished.  Pure; runs in the source process.
    """

    def __init__(self) -> None:
        self._start: Json = INITIAL.to_json()  # the end of the last finished batch
        self._planned: Json | None = None  # the end of the batch after it
        self._logged = False  # whether Spark certainly has the planned batch in its log
        self._called = False  # whether Spark has asked for a batch, or named one
        self._began = False  # whether Spark has asked for the initial offset

    def initial_offset(self) -> None:
        """Note a call of ``initialOffset``.

        Raises
        ------
        ConfigurationError
            If this is the second call.  Spark's wrapper for ``availableNow`` makes it, and drops answers of
            ``latestOffset``.  The query would take their batches for finished.
        """
        if self._began:
            raise _unknown_order()
        self._began = True

    def latest_offset(self, plan: Callable[[Json], Json]) -> Json:
        """Return the end of the next batch.

        Parameters
        ----------
        plan : callable
            Takes the end of the last finished batch.  Returns the end of the next one, or the same if there is none.
        """
        self._called = True
        if self._planned is not None:
            if not self._logged:
                # A batch that needed no partitions, or an answer that Spark has dropped.  In the first case Spark asks
                # again.
                self._logged = True
                return self._planned
            self._start, self._planned, self._logged = self._planned, None, False
        end = plan(self._start)
        if end != self._start:
            self._planned = end
        return end

    def names_newest_batch(self, start: Json, end: Json) -> bool:
        """Note a call of ``partitions``.  Return whether it only names the newest logged batch, and needs no tasks.

        Raises
        ------
        ConfigurationError
            If Spark has asked for a batch before it named the newest one.
        """
        if start == end:
            # Deliberate: not if it names the same start again.  If the source process is stopped in the first call,
            # Spark logs a batch 0 that ends at the initial offset, and repeats it after the restart.
            if self._called and (end != self._start or self._planned is not None):
                raise _unknown_order()
            self._called, self._start = True, end
            return True
        self._called = True
        self._planned, self._logged = end, True
        return False

    def logged_after(self, end: Json) -> None:
        """Note a call of ``commit``: Spark has logged the batch after ``end``."""
        if self._planned is not None and end == self._start:
            self._logged = True


def _unknown_order() -> ConfigurationError:
    return ConfigurationError(
        "Spark called this source in an unknown order, so the query cannot know which batches are finished. This run "
        "has read nothing. With Spark 4.0 and 4.1, unset spark.sql.streaming.triggerAvailableNowWrapper.enabled."
    )


class OlderStreamReader(StreamReader):
    """The stream reader of one query.  The parameters are those of :class:`.StreamReader`."""

    # Deliberate: with every trigger.  A run with availableNow looks like any other here.  It has one batch, and
    # would end without a record if other members had not given partitions back by then.  A continuous query loses
    # little: without partitions it can read nothing.  It waits only until it has one, until the group has settled, or
    # for a minute.  But its Python workers start only then, and other sources of the same query wait with it.
    patient = True

    def __init__(self, settings: Settings, *given: Any, **named: Any) -> None:
        # Deliberate: no warm-up.  A trigger that runs once looks like any other here, and would run only the empty
        # batch.
        super().__init__(replace(settings, warm_up=False), *given, **named)
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
