"""Relays a message from a Spark Connect client to a control socket on the driver's machine.

The client runs on another machine and can only reach Spark.  So it lets Spark read ``kafka-group`` with the option
``controlRequest``.  Spark plans a batch read in a process on the driver's machine, beside the source processes.  This
process relays the message.  The answer becomes the only row.

Mostly such a client may run any Python code there.  Still it can send only requests that :mod:`.server` understands,
and only to a control socket.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StringType, StructType

from pyspark_kafka_group.control.client import ask_directly
from pyspark_kafka_group.control.names import is_address

# Longer than any client waits, and within the limit of socket timeouts.
_LONGEST_S = 30 * 24 * 3600.0

SCHEMA = StructType().add("answer", StringType())


class RelayReader(DataSourceReader):
    """Sends one message and returns its answer.

    Parameters
    ----------
    request : str
        A JSON object: ``address``, ``message``, ``patience_s``.

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
