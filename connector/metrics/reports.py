"""Finds the report of each source in a progress of Spark, or asks the running query for it.

A progress may be Spark's object, its JSON, or a dict, from any version of this package.  docs/progress.md has the
fields of a report.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

from pyspark_kafka_group.control.client import ask_for_report
from pyspark_kafka_group.control.messages import json_object, query_of

if TYPE_CHECKING:
    from pyspark.sql.streaming.listener import StreamingQueryProgress
    from pyspark.sql.streaming.query import StreamingQuery

Json = Mapping[str, Any]


def from_progress(progress: StreamingQueryProgress | Json | str | None) -> tuple[Json, ...]:
    """Return the report of each ``kafka-group`` source in a progress; empty if there is none.

    Spark asks a source for its report before it runs the batch.  So lag and commits are those of that moment.
    :func:`current` returns the newest ones.

    Parameters
    ----------
    progress : StreamingQueryProgress, dict, str or None
        A progress of any query, from ``query.lastProgress`` or ``StreamingQueryListener.onQueryProgress``.

    Raises
    ------
    TypeError
        If ``progress`` is not a progress.
    ValueError
        If it is a text that is not JSON.
    """
    return tuple(source.report for source in sources_of(progress, lambda report: report))


def current(query: StreamingQuery) -> tuple[Json, ...]:
    """Return the current report of each ``kafka-group`` source of a query.

    Asks the source process, which is on the same machine.  If a source does not answer within half a second, its
    report is that of the last progress.  Log ends are always those of Spark's last trigger.  The result is empty
    before the first batch has ended.

    Parameters
    ----------
    query : StreamingQuery
        Any query that was started in this process.
    """
    return tuple(source.report for source in sources_of(query.lastProgress, lambda report: answer_of(report) or report))


def answer_of(report: Json) -> Json | None:
    """Return the current report of a source that has made a report; None without an answer."""
    address = report.get("control")
    return ask_for_report(address) if isinstance(address, str) else None


class PartitionReport(NamedTuple):
    """A partition of a member.

    Attributes
    ----------
    position : int or None
        The next offset to plan.
    log_end : int or None
        The log end offset.
    lag : int or None
        Log end minus committed offset, without expired offsets.
    expired : int
        Offsets that the brokers deleted before the group read them.
    ahead : int
        Committed offset minus log end, if that is above 0.
    is_draining : bool
        Whether the group wants it back, and it waits for the running batch.
    is_held_back : bool
        Whether it could not be planned for 10 s or longer.
    """

    topic: str
    number: int
    position: int | None
    log_end: int | None
    lag: int | None
    expired: int
    ahead: int
    is_draining: bool
    is_held_back: bool

    @property
    def committed(self) -> int | None:
        """The committed offset."""
        # Deliberate: not a field of the report.  That made the report of many partitions longer by two fifths.
        if self.log_end is None or self.lag is None:
            return None
        return self.log_end - self.lag - self.expired + self.ahead

    @property
    def behind(self) -> int | None:
        """The distance of the next offset to plan from the log end, without expired offsets."""
        if self.log_end is None or self.position is None:
            return None
        distance = max(0, self.log_end - self.position)
        return distance if self.lag is None else min(distance, self.lag)


@dataclass(frozen=True)
class SourceReport:
    """A ``kafka-group`` source in a progress.

    A field of its report is None if it is missing or has another form.  Nothing in a progress raises an error.

    Attributes
    ----------
    query : str
        The query's name, or its id if it has no name.
    run_id : str
        Spark's id of the run; empty if the progress does not contain it.
    entry : mapping
        The source in Spark's progress.
    report : mapping
        Its report.
    """

    query: str
    run_id: str
    entry: Json
    report: Json

    def text(self, field: str) -> str:
        """Return a text of the report; empty if there is none."""
        return _text(self.report.get(field))

    def number(self, field: str, key: str | None = None) -> float | None:
        """Return a number of the report, or the number of a key in one of its objects."""
        value = self.report.get(field)
        return _number(value if key is None else value.get(key) if isinstance(value, Mapping) else None)

    def rate(self, field: str) -> float | None:
        """Return a rate that Spark has measured."""
        return _number(self.entry.get(field))

    @cached_property
    def partitions(self) -> tuple[PartitionReport, ...]:
        """The partitions, sorted by topic and number."""
        positions = _by_partition(self.report.get("assigned"))
        draining = _by_partition(self.report.get("draining"))
        ends, lags = _by_partition(self.report.get("logEnd")), _by_partition(self.report.get("lag"))
        expired, ahead = _by_partition(self.report.get("expired")), _by_partition(self.report.get("ahead"))
        reasons = _by_partition(self.report.get("heldBack"))
        return tuple(
            PartitionReport(
                *tp,
                position=_whole(position),
                log_end=_whole(ends.get(tp)),
                lag=_whole(lags.get(tp)),
                expired=_whole(expired.get(tp)) or 0,
                ahead=_whole(ahead.get(tp)) or 0,
                is_draining=tp in draining,
                is_held_back=tp in reasons,
            )
            for tp, position in sorted({**positions, **draining}.items(), key=lambda item: item[0])
        )

    @cached_property
    def topics(self) -> dict[str, list[PartitionReport]]:
        """The partitions by topic."""
        found: dict[str, list[PartitionReport]] = {}
        for part in self.partitions:
            found.setdefault(part.topic, []).append(part)
        return found


def sources_of(
    progress: StreamingQueryProgress | Json | str | None, newest: Callable[[Json], Json]
) -> tuple[SourceReport, ...]:
    """Return the sources in a progress; ``newest`` returns a newer report of a source, or the same."""
    if progress is None:
        return ()
    shown = _plain(progress)
    sources = shown.get("sources")
    found = []
    shown_reports: list[tuple[Json, str | None, Json]] = [
        (source, query_of(json_object(source.get("endOffset"))), json_object(source.get("latestOffset")) or {})
        for source in (sources if isinstance(sources, list) else [])
        if isinstance(source, Mapping)
    ]
    named = {query for _, query, report in shown_reports if _is_report(report)}
    for source, query, shown_report in shown_reports:
        report = shown_report
        if not _is_report(report):
            # A repeated batch, or Spark 4.0 or 4.1.  By its id, only one source of a query can be asked.
            report = {} if query in named else {"control": query}
            named.add(query)
        report = newest(report)
        if _is_report(report):
            query_name = _text(shown.get("name")) or _text(shown.get("id"))
            found.append(SourceReport(query_name, _text(shown.get("runId")), source, report))
    return tuple(found)


def _is_report(found: Json) -> bool:
    """Tell whether this is a report.  Its group is null if no group keeps the offsets."""
    named = "group" in found and isinstance(found["group"], str | None)
    return named and isinstance(found.get("assigned"), Mapping)


def _plain(progress: Any) -> Json:
    if isinstance(progress, Mapping):
        return progress
    # Deliberate: only the JSON of Spark's object contains everything.
    text: Any = progress if isinstance(progress, str) else getattr(progress, "json", None)
    if not isinstance(text, str):
        raise TypeError(
            f"{type(progress).__name__} is not a progress. Pass query.lastProgress, event.progress, its JSON, or a "
            f"dict."
        )
    shown: Any = json.loads(text)
    if isinstance(shown, Mapping):
        return shown
    raise TypeError("this JSON is not a progress, because it is not an object.")


def _by_partition(field: Any) -> dict[tuple[str, int], Any]:
    return {
        (str(topic), int(number)): value
        for topic, numbers in (field.items() if isinstance(field, Mapping) else ())
        for number, value in (numbers.items() if isinstance(numbers, Mapping) else ())
        if isinstance(number, str) and number.isdecimal()
    }


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _number(value: Any) -> float | None:
    """Return a finite number, else None: Spark writes other numbers as text, or omits them."""
    known = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    return value if known else None


def _whole(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None
