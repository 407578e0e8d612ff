"""Log ends asked of the leaders directly: where they stand is looked up many times a second, and rarely new.

librdkafka makes an object of each partition in question and answer, which takes 6 us each; here a question is put
together once, and an answer that has not changed is only compared.  As in `direct_client` only what goes as expected
is done here.  Whatever does not is an error, and then librdkafka is asked.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import partial

from pyspark_kafka_group import kafka_protocol as protocol
from pyspark_kafka_group.broker_connection import BrokerConnection
from pyspark_kafka_group.connection_security import PROPERTIES, security_of
from pyspark_kafka_group.kafka_protocol import Address, ProtocolError, Reader
from pyspark_kafka_group.leaders import Connect, addresses, find_leaders
from pyspark_kafka_group.offsets.clients import CLIENT_DEFAULTS, Properties, connection_properties
from pyspark_kafka_group.offsets.types import Offset, TopicPartition
from pyspark_kafka_group.reader_client import switched_to

_TIMEOUT_S = 1.0
"""How long a broker may take to be connected to, and to answer."""


def open_direct_log_ends(properties: Properties, *, client_id: str, read_committed: bool) -> DirectLogEnds | None:
    """Return what asks directly, or None where librdkafka has to.

    Parameters
    ----------
    properties : mapping
        The user's ``kafka.*`` properties.
    client_id : str
        What the brokers call us.
    read_committed : bool
        Whether the log ends where the first undecided transaction begins.
    """
    config = connection_properties(properties)
    if switched_to() or config.keys() - PROPERTIES - CLIENT_DEFAULTS.keys() - {"bootstrap.servers"}:
        return None
    security = security_of(config)
    if security is None:
        return None
    servers = addresses(config.get("bootstrap.servers", ""), security.protocol)
    if not servers:
        return None
    connect = partial(BrokerConnection, client_id=client_id, timeout_s=_TIMEOUT_S, security=security)
    return DirectLogEnds(servers, connect, read_committed=read_committed)


@dataclass(slots=True)
class _Question:
    """What one leader is asked, and what it answered last."""

    address: Address
    request: bytes
    partitions: dict[str, dict[int, TopicPartition]]
    answer: bytes = b""


class DirectLogEnds:
    """Lists log ends.  Belongs to one thread.

    Parameters
    ----------
    servers
        Where to ask who leads.
    connect
        Makes a connection to a broker.
    read_committed
        Whether the log ends where the first undecided transaction begins.
    """

    def __init__(self, servers: list[Address], connect: Connect, *, read_committed: bool) -> None:
        self._servers = servers
        self._connect = connect
        self._read_committed = read_committed
        self._asked: list[TopicPartition] = []
        self._questions: list[_Question] = []
        self._connections: dict[Address, BrokerConnection] = {}
        self._ends: dict[TopicPartition, Offset] = {}

    def ends(self, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, Offset]:
        """Return the log end of each partition.

        If nothing is new it is the very mapping that was returned before; it is never changed.

        Raises
        ------
        OSError
            A broker does not answer.
        ProtocolError
            A broker's answer cannot be understood, or it does not lead a partition.
        """
        wanted = list(partitions)
        if wanted == self._asked:
            try:
                return self._ask()
            except TimeoutError:
                raise  # the broker hangs, and would do so again
            except (OSError, ProtocolError):
                pass  # a leader has moved, or a connection was not used for too long: once more from the beginning
        self._prepare(wanted)
        return self._ask()

    def close(self) -> None:
        """Close the connections."""
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()
        self._asked = []

    def _prepare(self, wanted: list[TopicPartition]) -> None:
        """Put the questions together."""
        self._asked, self._questions, self._ends = [], [], {}
        by_leader: dict[Address, list[TopicPartition]] = {}
        leaders = find_leaders(wanted, self._servers, self._connect)
        for tp in wanted:
            by_leader.setdefault(leaders[tp], []).append(tp)
        for address, led in by_leader.items():
            by_topic: dict[str, dict[int, TopicPartition]] = {}
            for tp in led:
                by_topic.setdefault(tp.topic, {})[tp.partition] = tp
            request = protocol.log_ends_request(led, read_committed=self._read_committed)
            self._questions.append(_Question(address, request, by_topic))
        self._asked = wanted

    def _ask(self) -> Mapping[TopicPartition, Offset]:
        try:
            connections = [self._connection(question.address) for question in self._questions]
            for question, connection in zip(self._questions, connections, strict=True):
                connection.send(protocol.LIST_OFFSETS, question.request)
            new: dict[TopicPartition, Offset] = {}
            for question, connection in zip(self._questions, connections, strict=True):
                answer = bytes(connection.receive().data)
                if answer != question.answer:
                    new |= _log_ends(question, answer)
                    question.answer = answer
        except BaseException:
            self.close()  # an answer may still be on its way
            raise
        if new:
            self._ends = self._ends | new
        return self._ends

    def _connection(self, address: Address) -> BrokerConnection:
        found = self._connections.get(address)
        if found is not None and time.monotonic() > found.good_until:
            found.close()
            found = None
        if found is None:
            found = self._connections[address] = self._connect(address)
        return found


def _log_ends(question: _Question, answer: bytes) -> dict[TopicPartition, Offset]:
    found = {}
    for topic, listed in protocol.log_ends(Reader(memoryview(answer))):
        partitions = question.partitions.get(topic, {})
        for partition, error, _, offset in listed:
            if error or partition not in partitions:
                raise ProtocolError(f"{topic}-{partition}: no log end: error {error}")
            found[partitions[partition]] = Offset(offset)
    if len(found) != sum(map(len, question.partitions.values())):
        raise ProtocolError("not all log ends were answered")
    return found
