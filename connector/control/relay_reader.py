"""Passes a message to a control socket of the driver's machine: the server's end of a relay through Spark Connect.

A client of Spark Connect runs on another machine, where it can reach Spark and nothing else.  So it has Spark read
``kafka-group`` with the option ``controlRequest``.  Spark plans a batch read in a process on the driver's machine,
beside the source processes: there the message is passed on, and the answer becomes the only row.

A client that may do this may run Python there in most cases.  Even so it can send only requests that :mod:`.server`
understands, and only to a control socket.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StringType, StructType

from pyspark_kafka_group.control.client import ask_directly
from pyspark_kafka_group.control.names import is_address

# Longer than any client waits, and not longer than a socket can.
_LONGEST_S = 30 * 24 * 3600.0

SCHEMA = StructType().add("answer", StringType())


class RelayReader(DataSourceReader):
    """Says one message, and reads its answer.

    Parameters
    ----------
    request : str
        A JSON object: ``address``, ``message``, ``patience_s``.

    Raises
    ------
    ValueError
        If this is no request of our own client's.
    """

    def __init__(self, request: str) -> None:
        try:
            asked = json.loads(request)
            self._address, self._message = str(asked["address"]), asked["message"]
            self._patience_s = float(asked["patience_s"])
        except (ValueError, TypeError, KeyError, OverflowError):
            raise ValueError("it is no request of a client.") from None
        known = is_address(self._address) and isinstance(self._message, dict)
        if not (known and 0 < self._patience_s <= _LONGEST_S):
            raise ValueError("it is no request to a source.")

    def partitions(self) -> list[InputPartition]:
        """Pass the message on.  On the driver's machine, and before any task, so that no full executor holds it up."""
        return [InputPartition(json.dumps(ask_directly(self._address, self._message, self._patience_s)))]

    def read(self, partition: InputPartition) -> Iterator[tuple[str]]:
        """Return the answer as it came."""
        yield (partition.value,)
