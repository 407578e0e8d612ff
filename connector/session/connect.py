"""The way to a source process from a client of Spark Connect: through Spark, see `control.relay_reader`."""

from __future__ import annotations

import json
import logging
from typing import TYPE_CHECKING, Any

from pyspark_kafka_group.control.client import Ask, ask_directly
from pyspark_kafka_group.control.messages import Json

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

_log = logging.getLogger(__name__)

# The sessions in which this client has registered the relay.
_registered: set[str] = set()


def is_remote(thing: SparkSession | StreamingQuery) -> bool:
    """Tell whether a session, or a query, is one of Spark Connect."""
    return ".connect." in type(thing).__module__


def way_to(query: StreamingQuery) -> Ask:
    """Return the way to the sources of a query."""
    if not is_remote(query):
        return ask_directly
    session: Any = query
    return through(session._session)  # no public name leads there (4.3.0)


def _relay_in(spark: SparkSession) -> str:
    """Register the relay in a session, once.  Return the name of its format."""
    from pyspark_kafka_group.control.relay_reader import Relay

    session: Any = spark
    if session.session_id not in _registered:
        spark.dataSource.register(Relay)
        _registered.add(session.session_id)
    return Relay.name()


def through(spark: SparkSession) -> Ask:
    """Return an :data:`~pyspark_kafka_group.control.client.Ask` that goes through a session; each takes a small job."""

    def ask(address: str, message: Json, patience_s: float) -> Json | None:
        request = json.dumps({"address": address, "message": message, "patience_s": patience_s})
        try:
            (row,) = spark.read.format(_relay_in(spark)).option("request", request).load().collect()
            found = json.loads(row["answer"])
        except Exception as problem:  # Deliberate: of gRPC, of Spark, of a server without this package or an older one
            _log.warning("Spark Connect's server does not reach the source: %s", problem)
            return None
        return found if isinstance(found, dict) else None

    return ask
