"""Relays a message from a Spark Connect client to a control socket on the driver's machine.

The client runs on another machine and can only reach Spark.  So it registers `Relay` in its session, and lets Spark
read it.  Spark plans a batch read in a process on the driver's machine, beside the source processes.  This process
relays the message.  The answer becomes the only row.

Deliberate: not an option of ``kafka-group``, which Spark registers in each session.  SQL cannot register a source, so
a user who can only write SQL reaches no source process (`test_sql_does_not_reach_a_source`).  A client that registers
one may run any Python code on the server anyway.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from pyspark_kafka_group.control.client import ask_directly
from pyspark_kafka_group.control.names import is_address

# Longer than any client waits, and within the limit of socket timeouts.
_LONGEST_S = 30 * 24 * 3600.0

REQUEST = "request"
"""The option with the message: a JSON object with ``address``, ``message``, ``patience_s``."""


class Relay(DataSource):
    """Sends one message to a control socket; its answer is the only row."""

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return "kafka-group-control"

    def schema(self) -> StructType:
        """Return the only column."""
        return StructType().add("answer", "string")

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return the reader.

        Raises
        ------
        ValueError
            If our client did not write the message.
        """
        return RelayReader(self.options[REQUEST])


class RelayReader(DataSourceReader):
    """Sends one message and returns its answer.

    Parameters
    ----------
    request : str
        See `REQUEST`.

    Raises
    ------
    ValueError
        If this is not a request of our client.
    """

    def __init__(self, request: str) -> None:
        try:
            asked = json.loads(request)
            self._address, self._message = str(asked["address"]), asked["message"]
            self._patience_s = float(asked["patience_s"])
        except (ValueError, TypeError, KeyError, OverflowError):
            raise ValueError("it is not a request of a client.") from None
        known = is_address(self._address) and isinstance(self._message, dict)
        if not (known and 0 < self._patience_s <= _LONGEST_S):
            raise ValueError("it is not a request to a source.")

    def partitions(self) -> list[InputPartition]:
        """Relay the message.  Runs on the driver's machine before any task, so busy executors do not delay it."""
        return [InputPartition(json.dumps(ask_directly(self._address, self._message, self._patience_s)))]

    def read(self, partition: InputPartition) -> Iterator[tuple[str]]:
        """Return the unchanged answer."""
        yield (partition.value,)
