"""``health``: whether the queries on this machine are alive and read.  For probes, as those of Kubernetes."""

from __future__ import annotations

import time

import click

from pyspark_kafka_group.control.client import running_queries
from pyspark_kafka_group.tools.analysis.documents import Document
from pyspark_kafka_group.tools.analysis.health import problems
from pyspark_kafka_group.tools.command_base import FOUND, interval, say, show
from pyspark_kafka_group.tools.texts import clean


@click.command()
@click.argument("group", required=False)
@click.option(
    "--within",
    type=interval,
    default="5m",
    show_default=True,
    metavar="TIME",
    help="How long a batch may run, records may wait, and Spark may ask for no batch.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def health(*, group: str | None, within: float, as_json: bool) -> None:
    """Tell whether the queries on this machine are well.

    All of them, or those of GROUP. It asks the source processes of your queries, and no broker. A
    query is unhealthy if its process does not answer, its member has ended, its group or the leader
    of a partition does not answer, a batch runs for too long, records wait for too long, or Spark
    no longer asks for batches. An idle topic and a lag are well.

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
