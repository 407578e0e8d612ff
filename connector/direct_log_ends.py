"""Log ends asked of the leaders directly: where they stand is looked up many times a second, and rarely new.

librdkafka makes an object of each partition in question and answer, which takes 6 us each; here a question is put
together once, and an answer that has not changed is only compared.  As in `direct_client` only what goes as expected
is done here.  Whatever does not is an error, and then librdkafka is asked.
"""

from __future__ import annotations

import math
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
from pyspark_kafka_group.offsets.worker import Worker
from pyspark_kafka_group.reader_client import switched_to

_TIMEOUT_S = 1.0
"""How long a broker may take to be connected to, and to answer."""

_PREPARE_S = 3.0
"""How long it may take to find the leaders and to connect to them: names are resolved, and brokers asked in turn."""

_LEADERS_S = 60.0
"""How long to believe that a leader is one because it says so: one that is cut off from the others does, too."""


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
        # Deliberate: a thread of its own.  Resolving names has no timeout, and cannot be interrupted by a signal.
        self._worker = Worker("kafka-group-leaders")
        self._asked: list[TopicPartition] | None = None
        self._prepared_at = -math.inf
        self._leaders: dict[TopicPartition, Address] = {}
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
        if self._is_prepared(wanted):
            try:
                return self._ask()
            except TimeoutError:
                raise  # the broker hangs, and would do so again
            except (OSError, ProtocolError):
                pass  # a leader has moved, or a connection was not used for too long: once more from the beginning
        self._worker.submit(self._prepare, wanted).result(_PREPARE_S)
        return self._ask()

    def close(self) -> None:
        """Close the connections."""
        # Deliberate: taken away first.  The worker may still be connecting, where it was given up.
        connections, self._connections = self._connections, {}
        for connection in [*connections.values()]:
            connection.close()
        self._asked, self._leaders, self._questions, self._ends = None, {}, [], {}
        self._prepared_at = -math.inf

    def _is_prepared(self, wanted: list[TopicPartition]) -> bool:
        now = time.monotonic()
        return (
            wanted == self._asked
            and now < self._prepared_at + _LEADERS_S
            and all(now < connection.good_until for connection in self._connections.values())
        )

    def _prepare(self, wanted: list[TopicPartition]) -> None:
        """Find the leaders, put the questions together and connect.  On the worker, while nobody asks."""
        self._prepared_at = -math.inf  # until all of it has succeeded
        leaders = find_leaders(wanted, self._servers, self._connect)
        leaders = {tp: leaders[tp] for tp in wanted}
        if wanted != self._asked or leaders != self._leaders:
            self._questions = _questions(leaders, read_committed=self._read_committed)
            self._asked, self._leaders, self._ends = wanted, leaders, {}
        addresses = {question.address for question in self._questions}
        for address, connection in [*self._connections.items()]:
            if address not in addresses or time.monotonic() >= connection.good_until:
                connection.close()
                del self._connections[address]
        for address in addresses - self._connections.keys():
            self._connections[address] = self._connect(address)
        self._prepared_at = time.monotonic()

    def _ask(self) -> Mapping[TopicPartition, Offset]:
        new: dict[TopicPartition, Offset] = {}
        try:
            for question in self._questions:
                self._connections[question.address].send(protocol.LIST_OFFSETS, question.request)
            for question in self._questions:
                answer = bytes(self._connections[question.address].receive().data)
                if answer != question.answer:
                    new |= _log_ends(question, answer)
                    question.answer = answer
        except BaseException:
            self.close()  # an answer may still be on its way
            raise
        if new:
            self._ends = self._ends | new
        return self._ends


def _questions(leaders: Mapping[TopicPartition, Address], *, read_committed: bool) -> list[_Question]:
    by_leader: dict[Address, dict[str, dict[int, TopicPartition]]] = {}
    for tp, address in leaders.items():
        by_leader.setdefault(address, {}).setdefault(tp.topic, {})[tp.partition] = tp
    return [
        _Question(address, protocol.log_ends_request(by_topic, read_committed=read_committed), by_topic)
        for address, by_topic in by_leader.items()
    ]


def _log_ends(question: _Question, answer: bytes) -> dict[TopicPartition, Offset]:
    found = {}
    for topic, listed in protocol.log_ends(Reader(memoryview(answer))):
        partitions = question.partitions.get(topic, {})
        for partition, error, _, offset in listed:
            if error or offset < 0 or partition not in partitions:
                raise ProtocolError(f"{topic}-{partition}: no log end: error {error}")
            found[partitions[partition]] = Offset(offset)
    if len(found) != sum(map(len, question.partitions.values())):
        raise ProtocolError("not all log ends were answered")
    return found
