"""``health``: whether the queries on this machine are alive and read.  For probes, as those of Kubernetes."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from typing import Any

import click

from pyspark_kafka_group.control.client import running_queries
from pyspark_kafka_group.tools.analysis.documents import Document
from pyspark_kafka_group.tools.command_base import FOUND, patience, say, show
from pyspark_kafka_group.tools.texts import clean

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


@click.command()
@click.argument("group", required=False)
@click.option(
    "--within",
    type=patience,
    default="5m",
    show_default=True,
    metavar="TIME",
    help="How long a batch may run, records may wait, and Spark may ask for no batch.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def health(*, group: str | None, within: float, as_json: bool) -> None:
    """Tell whether the queries on this machine are well.

    All of them, or those of GROUP. It asks the source processes of your queries, and no broker.

    \b
    A query is unhealthy if
    - its process does not answer, or its member has ended;
    - its group, or the leader of a partition, does not answer;
    - a batch runs for too long, or records wait for too long;
    - Spark no longer asks for batches.

    An idle topic and a lag are well.

    Give --within at least three times your longest trigger or batch.

    Ends with 1 if a query is unhealthy, or none runs.

    \b
    Examples:
      kafka-group health --within 15m
      kafka-group health --json orders-etl
    """
    now = time.time()
    documents: list[Document] = []
    for query_id, report in running_queries().items():
        shown = report or {}
        if group is not None and report is not None and shown.get("group") != group:
            continue
        found = ["its source process does not answer"] if report is None else problems(shown, now=now, within_s=within)
        documents.append(
            {
                "query_id": query_id,
                "group": shown.get("group"),
                "client_id": shown.get("clientId"),
                "healthy": not found,
                "problems": found,
            }
        )
    show(documents, as_json, lambda: map(_line, documents))
    if not documents:
        say("no query of this user runs on this machine" + (f" in the group {group!r}." if group else "."))
    if not documents or not all(document["healthy"] for document in documents):
        raise click.exceptions.Exit(FOUND)


def _line(document: Document) -> str:
    who = document["client_id"] or f"query {document['query_id']}"
    of = f" (group {document['group']})" if document["group"] else ""
    return clean(f"{who}{of}: {'; '.join(document['problems']) or 'well'}")
