"""The protocol between the user's Python and the source process, over a private Unix socket.

The source process listens on the socket and publishes its path in the query's progress.  These are the requests:

* *stop*: stop planning, let the running batch finish, commit it, and leave the group.
  :func:`~pyspark_kafka_group.session.stopping.stop` sends this before it stops the query.  A plain ``query.stop()``
  interrupts the running batch and sends the source only a signal.  If the sink has written the batch by then, the new
  owners of the partitions process the same records again.
* *finished*: a batch is durably finished.  Spark reports this to the source only with its next trigger.  Its progress
  reports it at once, but only to the user's process.
* *report*: return the current report.  Spark asks the source for it before a batch runs.  On an idle topic it does not
  ask again, so its progress shows the lag before the last batch.
* *batch*: return the ranges of the batch in flight.

Requests and answers are one JSON object and a newline each.  The answer to *finished* is empty: it only confirms the
request.

A progress does not always show the path: after a restart, the repeated batch has no ``latestOffset``, and with Spark
4.0 and 4.1 the source cannot report one.  So the socket has a second address, the id of the query, which is part of its
offsets: see :mod:`.names`.
"""

from __future__ import annotations

import json
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pyspark_kafka_group.offsets.read_range import ReadRange
from pyspark_kafka_group.offsets.types import TopicPartition

Json = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """A ``kafka-group`` source in a progress.

    Attributes
    ----------
    address : str
        The path of its control socket; or the query's id, if the progress does not show the path.
    end : dict or None
        The end of the last finished batch.
    """

    address: str
    end: Json | None


def sources_of(progress: str) -> list[Source]:
    """Return the ``kafka-group`` sources in a progress, which is JSON text."""
    found = []
    for source in json.loads(progress)["sources"]:
        latest, end = json_object(source.get("latestOffset")), json_object(source.get("endOffset"))
        if latest is not None and isinstance(latest.get("control"), str):
            found.append(Source(address=latest["control"], end=end))
        elif (query := query_of(end)) is not None:
            found.append(Source(address=query, end=end))
    return found


def run_of(progress: str) -> str:
    """Return the id of the run in a progress, which is JSON text."""
    return str(json.loads(progress)["runId"])


def has_only_others(progress: str) -> bool:
    """Return whether a progress, which is JSON text, certainly shows no ``kafka-group`` source.

    A ``kafka-group`` source always plans a first batch.  So a source without any offset is of another kind.
    """
    sources = json.loads(progress)["sources"]
    return bool(sources) and not any(
        {"query", "topics"} <= (json_object(source.get("endOffset")) or {}).keys()
        or (source.get("endOffset") is None and source.get("latestOffset") is not None)
        for source in sources
    )


def query_of(offset: Json | None) -> str | None:
    """Return the id of the query in an offset of this source, the second address of its socket; None for others."""
    query = None if offset is None or "topics" not in offset else offset.get("query")
    return query if isinstance(query, str) else None


def ranges_to_json(ranges: Mapping[TopicPartition, ReadRange]) -> Json:
    """Return the ranges of a batch as the answer to *batch*."""
    topics: dict[str, dict[str, list[Any]]] = {}
    for tp, r in ranges.items():
        topics.setdefault(tp.topic, {})[str(tp.partition)] = list(r)
    return topics


def ranges_from_json(topics: Json) -> dict[TopicPartition, ReadRange]:
    """Read the output of :func:`ranges_to_json`."""
    return {
        TopicPartition(topic, int(number)): ReadRange(*fields)
        for topic, partitions in topics.items()
        for number, fields in partitions.items()
    }


def send(connection: socket.socket, message: Json) -> None:
    """Send one message; raise OSError if the connection breaks or times out."""
    connection.sendall(json.dumps(message).encode() + b"\n")


def json_object(value: Any) -> Json | None:
    """Return a JSON object, also from its text; None for any other value."""
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except ValueError:
            return None
    return value if isinstance(value, dict) else None
