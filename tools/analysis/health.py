"""Whether a query is alive and reads, from the report of its source process.  Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

_NAMED = 4

Report = Mapping[str, Any]


def problems(report: Report, *, now: float, within_s: float) -> list[str]:
    """Return why a query is unhealthy; empty if it is well.

    A topic without new records is no problem, and neither is a lag: a query may be slow and well.

    Parameters
    ----------
    report : mapping
        The report of the source: see :data:`~pyspark_kafka_group.query.progress_report.FIELDS`.
    now : float
        The time, in seconds since 1970.
    within_s : float
        How long a batch may run, records may wait, and Spark may ask for no batch, in seconds.
    """
    return [*_problems(report, now, within_s)]


def _problems(report: Report, now: float, within_s: float) -> Iterator[str]:
    if report.get("alive") is False:
        yield "the thread of the group member has ended"
    if report.get("groupProblem"):
        yield f"the group does not answer: {report['groupProblem']}"
    held_back = [
        (f"{topic}-{number}", reason)
        for topic, numbers in report.get("heldBack", {}).items()
        for number, reason in numbers.items()
    ]
    if held_back:
        names = ", ".join(name for name, _ in held_back[:_NAMED]) + (" ..." if len(held_back) > _NAMED else "")
        yield f"held back: {names} ({held_back[0][1]})"
    batch_ms, called_at = report.get("batchMs"), report.get("calledAt")
    if batch_ms is not None:
        if batch_ms > within_s * 1000:
            yield f"a batch has run for {batch_ms / 1000:.0f} s"
        return  # meanwhile Spark asks for nothing, and records wait
    if called_at is None:
        return
    if now - called_at > within_s:
        yield f"Spark has asked for no batch for {now - called_at:.0f} s"
    last = max(found for found in (report.get("finishedAt"), report.get("assignedAt"), 0.0) if found is not None)
    if last and report.get("maxOffsetsBehindLatest", 0) > 0 and now - last > within_s:
        yield f"records wait, and no batch has finished for {now - last:.0f} s"
