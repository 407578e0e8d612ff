"""The protocol between the user's Python and the source process, over a private Unix socket.

The source process listens on the socket and publishes its path in the query's progress.  These are the requests:

* *stop*: ``query.stop()`` interrupts the running batch, and Spark tells the source nothing but a signal.  The sink may
  have been written by then, and the members that take the partitions over would process the same records again.  So
  :func:`~pyspark_kafka_group.session.stopping.stop` asks the source to stop planning, to let the running batch
  finish, to commit it, and to leave the group; only then is the query stopped.
* *finished*: a batch is durably finished.  Spark itself says so only with its next trigger; its progress, which only
  the user's process sees, says so at once.
* *report*: what would the progress show now?  Spark asks the source before a batch runs, and on an idle topic never
  again: what its progress shows then is the lag before the last batch.

The protocol is one JSON object and a newline in each direction.  The answer to *finished* is empty, and
says only that the word was taken.

A progress does not always show the path: after a restart, the batch that runs again has no ``latestOffset``.
So the socket has a second address, made of the name of the query that its offsets carry: see :mod:`.names`.
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
    """A ``kafka-group`` source, as a progress shows it.

    Attributes
    ----------
    address : str
        Its control socket; or the query's name, if the progress does not show the socket.
    end : dict or None
        The end of the last finished batch.
    """

    address: str
    end: Json | None


def sources_of(progress: str) -> list[Source]:
    """Return the ``kafka-group`` sources that a progress, as JSON text, shows."""
    found = []
    named = []
    for source in json.loads(progress)["sources"]:
        latest, end = json_object(source.get("latestOffset")), json_object(source.get("endOffset"))
        if latest is not None and isinstance(latest.get("control"), str):
            found.append(Source(address=latest["control"], end=end))
        elif latest is None and end is not None and isinstance(end.get("query"), str) and "topics" in end:
            named.append(Source(address=end["query"], end=end))
    # A secondary source reads what another source of the query plans, and has no socket of its own.
    known = {source.end.get("query") for source in found if source.end is not None}
    return found + [source for source in named if source.address not in known]


def ranges_to_json(ranges: Mapping[TopicPartition, ReadRange]) -> Json:
    """Return what a batch reads as the answer to *batch*."""
    topics: dict[str, dict[str, list[Any]]] = {}
    for tp, r in ranges.items():
        topics.setdefault(tp.topic, {})[str(tp.partition)] = list(r)
    return topics


def ranges_from_json(topics: Json) -> dict[TopicPartition, ReadRange]:
    """Read what :func:`ranges_to_json` wrote."""
    return {
        TopicPartition(topic, int(number)): ReadRange(*fields)
        for topic, partitions in topics.items()
        for number, fields in partitions.items()
    }


def send(connection: socket.socket, message: Json) -> None:
    """Send one message; raises OSError if it is not taken."""
    connection.sendall(json.dumps(message).encode() + b"\n")


def json_object(value: Any) -> Json | None:
    """Return a JSON object that Spark has as an object or as text; None for anything else."""
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except ValueError:
            return None
    return value if isinstance(value, dict) else None
