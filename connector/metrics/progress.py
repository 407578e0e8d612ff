"""Reads metrics from a progress of Spark, or from the running query itself.

A progress may be Spark's object, its JSON, or a dict, from any version of this package.  A missing field becomes an
empty value, and a field of another form is ignored.  Nothing in a progress raises an error here.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from pyspark_kafka_group.control.client import ask_for_report
from pyspark_kafka_group.control.messages import json_object, query_of
from pyspark_kafka_group.metrics.source_metrics import (
    LagSummary,
    PartitionMetrics,
    SourceMetrics,
    TimeSpent,
    TopicMetrics,
)

if TYPE_CHECKING:
    from pyspark.sql.streaming.listener import StreamingQueryProgress
    from pyspark.sql.streaming.query import StreamingQuery

Json = Mapping[str, Any]


def from_progress(progress: StreamingQueryProgress | Json | str | None) -> tuple[SourceMetrics, ...]:
    """Return the metrics of each ``kafka-group`` source in a progress; empty if there is none.

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
    return of_reports(progress, lambda report: report)


def current(query: StreamingQuery) -> tuple[SourceMetrics, ...]:
    """Return the current metrics of each ``kafka-group`` source of a query.

    Asks the source process, which is on the same machine.  If a source does not answer within half a second, its
    metrics are those of the last progress.  Log ends are always those of Spark's last trigger.  The result is empty
    before the first batch has ended.

    Parameters
    ----------
    query : StreamingQuery
        Any query that was started in this process.
    """
    return of_reports(query.lastProgress, lambda report: answer_of(report) or report)


def answer_of(report: Json) -> Json | None:
    """Return the current report of a source that has made a report; None without an answer."""
    address = report.get("control")
    return ask_for_report(address) if isinstance(address, str) else None


def of_reports(
    progress: StreamingQueryProgress | Json | str | None, newest: Callable[[Json], Json]
) -> tuple[SourceMetrics, ...]:
    """Return the metrics of the sources in a progress; ``newest`` returns a newer report of a source, or the same."""
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
            # A repeated batch, Spark 4.0 or 4.1, or a second source that reads the batches of the first.  Only the
            # last one is not worth a question.
            report = {} if query in named else {"control": query}
            named.add(query)
        report = newest(report)
        if _is_report(report):
            found.append(_source(shown, source, report))
    return tuple(found)


def _is_report(found: Json) -> bool:
    return isinstance(found.get("group"), str) and isinstance(found.get("assigned"), Mapping)


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


def _source(shown: Json, source: Json, report: Json) -> SourceMetrics:
    partitions = tuple(_partitions(report))
    topics = []
    for topic in dict.fromkeys(p.topic for p in partitions):
        those = [p for p in partitions if p.topic == topic]
        draining = sum(p.draining for p in those)
        topics.append(
            TopicMetrics(
                topic=topic,
                assigned_partitions=len(those) - draining,
                draining_partitions=draining,
                held_back_partitions=sum(p.held_back is not None for p in those),
                group_lag=LagSummary.over(p.group_lag for p in those if p.group_lag is not None),
                records_lag=LagSummary.over(p.records_lag for p in those if p.records_lag is not None),
                expired=sum(p.expired for p in those),
            )
        )
    query_id = _text(shown.get("id"))
    spent = _numbers(report.get("timeMs"))
    return SourceMetrics(
        query=_text(shown.get("name")) or query_id,
        query_id=query_id,
        run_id=_text(shown.get("runId")),
        group=_text(report.get("group")),
        client_id=_text(report.get("clientId")),
        member_id=_text(report.get("memberId")),
        topics=tuple(topics),
        partitions=partitions,
        group_lag=LagSummary.over(p.group_lag for p in partitions if p.group_lag is not None),
        records_lag=LagSummary.over(p.records_lag for p in partitions if p.records_lag is not None),
        log_end_at=_number(report.get("logEndAt")),
        assigned_at=_number(report.get("assignedAt")),
        committed_at=_number(report.get("committedAt")),
        generation=_whole(report.get("generation")),
        ownership_epoch=_whole(report.get("ownershipEpoch")) or 0,
        events={name: int(count) for name, count in _numbers(report.get("events")).items()},
        moved={how: int(count) for how, count in _numbers(report.get("moved")).items()},
        time_spent=TimeSpent(
            **{name: spent.get(name, 0.0) / 1000 for name in ("waiting", "idle", "planning", "running", "committing")}
        ),
        records_consumed=_whole(report.get("recordsConsumed")),
        input_rows_per_second=_number(source.get("inputRowsPerSecond")),
        processed_rows_per_second=_number(source.get("processedRowsPerSecond")),
    )


def _partitions(report: Json) -> Iterator[PartitionMetrics]:
    """Yield the partitions of a report, sorted by topic and number."""
    positions = {
        (topic, number): (position, draining)
        for field, draining in (("assigned", False), ("draining", True))
        for topic, number, position in _by_partition(report.get(field))
    }
    ends = {(topic, number): end for topic, number, end in _by_partition(report.get("logEnd"))}
    lags = {(topic, number): lag for topic, number, lag in _by_partition(report.get("lag"))}
    expired = {(topic, number): gone or 0 for topic, number, gone in _by_partition(report.get("expired"))}
    reasons = report.get("heldBack")
    held_back = reasons if isinstance(reasons, Mapping) else {}
    for (topic, number), (position, draining) in sorted(positions.items(), key=lambda item: item[0]):
        end, lag, gone = ends.get((topic, number)), lags.get((topic, number)), expired.get((topic, number), 0)
        behind = None if end is None or position is None else max(0, end - position)
        yield PartitionMetrics(
            topic=topic,
            partition=number,
            current_offset=position,
            log_end_offset=end,
            committed_offset=None if end is None or lag is None else end - lag - gone,
            group_lag=lag,
            records_lag=behind if behind is None or lag is None else min(behind, lag),
            draining=draining,
            held_back=_reason(held_back.get(topic), number),
            expired=gone,
        )


def _reason(reasons: Any, number: int) -> str | None:
    found = reasons.get(str(number)) if isinstance(reasons, Mapping) else None
    return found if isinstance(found, str) else None


def _by_partition(field: Any) -> Iterator[tuple[str, int, int | None]]:
    for topic, numbers in field.items() if isinstance(field, Mapping) else ():
        for number, value in numbers.items() if isinstance(numbers, Mapping) else ():
            if isinstance(number, str) and number.isdecimal():
                yield str(topic), int(number), _whole(value)


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _number(value: Any) -> float | None:
    """Return a finite number, else None: Spark writes other numbers as text, or omits them."""
    known = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    return float(value) if known else None


def _whole(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _numbers(field: Any) -> dict[str, float]:
    found = {str(name): _number(value) for name, value in field.items()} if isinstance(field, Mapping) else {}
    return {name: number for name, number in found.items() if number is not None}
