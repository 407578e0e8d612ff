"""Log ends asked of the leaders directly: where they stand is looked up many times a second, and rarely new.

librdkafka makes an object of each partition in question and answer, which takes 6 us each; here a question is put
together once, and an answer that has not changed is only compared.  As in `direct_client` only what goes as expected
is done here.  Whatever does not is an error, and then librdkafka is asked.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import cache, partial

from pyspark_kafka_group.columns.native_library import READER_OVERRIDE, reader_override
from pyspark_kafka_group.offsets.cluster.daemon_executor import DaemonExecutor
from pyspark_kafka_group.offsets.errors import AuthenticationError, OptionError
from pyspark_kafka_group.offsets.properties.client_config import Properties, connection_properties, reach
from pyspark_kafka_group.offsets.types import LeaderEpoch, Offset, TopicPartition
from pyspark_kafka_group.wire import messages as protocol
from pyspark_kafka_group.wire.broker_connection import Answer, BrokerConnection
from pyspark_kafka_group.wire.deadline import Deadline
from pyspark_kafka_group.wire.error_codes import error_name
from pyspark_kafka_group.wire.fields import Reader
from pyspark_kafka_group.wire.leaders import Connect, find_leaders
from pyspark_kafka_group.wire.topic_requests import (
    AskedEpoch,
    ClusterMetadata,
    Metadata,
    OffsetForLeaderEpoch,
    TopicMetadata,
)
from pyspark_kafka_group.wire.types import Address, ProtocolError, UnsafeLoginError

_log = logging.getLogger(__name__)

_TIMEOUT_S = 1.0
"""How long a broker may take to be connected to, and to answer."""

_PREPARE_S = 3.0
"""How long it may take to find the leaders and to connect to them: names are resolved, and brokers asked in turn."""

_UNKNOWN = 3
"""Kafka's error code for a topic or partition that a broker does not know."""

NO_LIMIT = Offset(2**63 - 1)
"""The end of a leader epoch of which nothing is known: no offset is above it."""

_LEADERS_S = 60.0
"""How long to believe that a leader is one because it says so: one that is cut off from the others does, too."""

_ELECTION_S = 0.5
"""How long to believe that a partition has no leader."""


def open_direct_log_ends(properties: Properties, *, client_id: str, read_committed: bool) -> DirectLogEnds | None:
    """Return what asks directly, or None where librdkafka has to; then a warning names the reason, once.

    Parameters
    ----------
    properties : mapping
        The user's ``kafka.*`` properties.
    client_id : str
        What the brokers call us.
    read_committed : bool
        Whether the log ends where the first undecided transaction begins.
    """
    override = reader_override()
    if override:
        _warn_once(client_id, f"{READER_OVERRIDE}={override} is set.")
        return None
    config = connection_properties(properties)
    try:
        found = reach(config)
    except OptionError as problem:
        _warn_once(client_id, str(problem))
        return None
    connect = partial(BrokerConnection, client_id=client_id, timeout_s=_TIMEOUT_S, security=found.security)
    return DirectLogEnds(found.servers, connect, read_committed=read_committed)


@cache
def _warn_once(client_id: str, reason: str) -> None:
    _log.warning(
        "%s: librdkafka lists the log ends of this query: %s It tells no leader epochs, so a log that an unclean "
        "leader election has truncated may be read on without DataLossError. Remove the property if you can.",
        client_id,
        reason,
    )


class UnknownPartitionsError(ProtocolError):
    """A broker does not know partitions: their topics were deleted, or it has not heard of them yet.

    Attributes
    ----------
    topics : frozenset of str
        Their topics.
    """

    def __init__(self, topics: Collection[str]) -> None:
        super().__init__(f"unknown: {', '.join(sorted(topics))}")
        self.topics = frozenset(topics)


@dataclass(slots=True)
class _Question:
    """What one leader is asked, and what it answered last."""

    address: Address
    request: bytes
    partitions: dict[str, dict[int, TopicPartition]]
    answer: bytes = b""
    topics: Answer[ClusterMetadata] | None = None


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

    Attributes
    ----------
    epoch_errors : dict of TopicPartition to str
        What the last :meth:`epoch_ends` was answered for partitions that it does not return.
    """

    def __init__(self, servers: list[Address], connect: Connect, *, read_committed: bool) -> None:
        self._servers = servers
        self._connect = connect
        self._read_committed = read_committed
        # Deliberate: a thread of its own.  Resolving names has no timeout, and cannot be interrupted by a signal.
        self._worker = DaemonExecutor("kafka-group-leaders")
        self._asked: list[TopicPartition] | None = None
        self._prepared_until = Deadline.after(0)
        self._leaders: dict[TopicPartition, Address] = {}  # without partitions that have none
        self._questions: list[_Question] = []
        self._connections: dict[Address, BrokerConnection] = {}
        self._ends: dict[TopicPartition, Offset] = {}
        self._leader_epochs: dict[TopicPartition, LeaderEpoch] = {}
        self.epoch_errors: dict[TopicPartition, str] = {}

    @property
    def leader_epochs(self) -> Mapping[TopicPartition, LeaderEpoch]:
        """The leader epochs under which the last answer was given; changed only together with the log ends."""
        return self._leader_epochs

    @property
    def leaders(self) -> Mapping[TopicPartition, Address]:
        """Who leads the partitions, as of the last look; without those that have no leader."""
        return self._leaders

    def ends(self, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, Offset]:
        """Return the log end of each partition that has a leader.

        If nothing is new it is the very mapping that was returned before, which makes comparing cheap and means no
        more; it is never changed.

        Raises
        ------
        OSError
            A broker does not answer.
        UnknownPartitionsError
            A broker does not know a topic.
        ProtocolError
            A broker's answer cannot be understood, or it does not lead a partition.
        AuthenticationError
            A broker is not to be logged in to, by whatever client.
        """
        wanted = list(partitions)
        if self._is_prepared(wanted):
            try:
                return self._ask()
            except (TimeoutError, UnknownPartitionsError):
                raise  # it would be no other the second time
            except (OSError, ProtocolError):
                pass  # a leader has moved, or a connection was not used for too long: once more from the beginning
        self._connect_to_leaders(wanted)
        return self._ask()

    def topic_ids(self, topics: Collection[str]) -> dict[str, str | None]:
        """Return the ids of these topics, and of those that were looked at last, as their leaders know them now.

        A leader knows the new id before it has the new log, so log ends that came before belong to the topics with
        these ids.  A topic that does not exist is left out; an id is None where the broker has none.  Of a topic that
        has no leader just now, or that was created again with fewer partitions and so was not looked at, another's
        leader tells the id.

        Raises
        ------
        OSError, ProtocolError
            As :meth:`ends`, and if no leader is connected.
        """
        found: dict[str, str | None] = {}
        missing: set[str] = set()
        if topics and not self._questions:
            raise ProtocolError("no leader is connected")
        more = set(topics).difference(*(question.partitions for question in self._questions))
        try:
            for question in self._questions:
                request = Metadata(tuple(sorted(question.partitions.keys() | more)))
                more = set()  # once is enough
                connection = self._connection(question.address)
                question.topics = connection.ask_again(request, _TIMEOUT_S, question.topics)
                _note_topics(question.topics.value.topics, found, missing)
        except BaseException:
            self._disconnect()
            raise
        return {name: topic_id for name, topic_id in found.items() if name not in missing}

    def epoch_ends(self, epochs: Mapping[TopicPartition, LeaderEpoch]) -> dict[TopicPartition, Offset]:
        """Return where the log of each partition ends for a leader epoch (KIP-320); without those that do not answer.

        Why they do not is in :attr:`epoch_errors`, and the leaders are looked for anew before the next look.

        :data:`NO_LIMIT` stands for an epoch that the leader does not know.  After an error the leaders are looked for
        anew.

        Raises
        ------
        OSError, ProtocolError
            As :meth:`ends`.
        """
        if epochs and self._asked is None:
            self._connect_to_leaders([*epochs])
        by_leader: dict[Address, dict[TopicPartition, AskedEpoch]] = {}
        for tp, epoch in epochs.items():
            if tp in self._leaders:
                asked = AskedEpoch(epoch, self._leader_epochs.get(tp, -1))
                by_leader.setdefault(self._leaders[tp], {})[tp] = asked
        found = {}
        self.epoch_errors = {tp: "it has no leader" for tp in epochs if tp not in self._leaders}
        try:
            for address, asked_of_one in by_leader.items():
                answers = self._connection(address).ask(OffsetForLeaderEpoch(asked_of_one), _TIMEOUT_S)
                self.epoch_errors |= {tp: error_name(a.error) for tp, a in answers.items() if a.error}
                found.update(
                    {
                        tp: Offset(a.end_offset) if a.end_offset >= 0 else NO_LIMIT
                        for tp, a in answers.items()
                        if not a.error
                    }
                )
        except BaseException:
            self._disconnect()
            raise
        if self.epoch_errors:
            self.refind_leaders()
        return found

    def refind_leaders(self) -> None:
        """Look for the leaders anew soon: what they say does not fit."""
        self._prepared_until = min(self._prepared_until, Deadline.after(_ELECTION_S))

    def close(self) -> None:
        """Close the connections and end the thread; it may still be connecting."""
        self._disconnect()
        self._worker.close()

    def _disconnect(self) -> None:
        """Close the connections; the next question looks for the leaders anew."""
        # Deliberate: taken away first.  The worker may still be connecting, where it was given up.
        connections, self._connections = self._connections, {}
        for connection in [*connections.values()]:
            connection.close()
        self._asked, self._leaders, self._questions, self._ends, self._leader_epochs = None, {}, [], {}, {}
        self._prepared_until = Deadline.after(0)

    def _connection(self, address: Address) -> BrokerConnection:
        """Return the connection to a leader, which is not there if it could not be reached the last time."""
        connection = self._connections.get(address)
        if connection is None:
            raise ProtocolError(f"not connected to {address}")
        return connection

    def _connect_to_leaders(self, wanted: list[TopicPartition]) -> None:
        try:
            self._worker.submit(self._prepare, wanted).result(_PREPARE_S)
        except UnsafeLoginError as problem:
            raise AuthenticationError(str(problem)) from None

    def _is_prepared(self, wanted: list[TopicPartition]) -> bool:
        return (
            wanted == self._asked
            and not self._prepared_until.passed
            and not any(connection.good_until.passed for connection in self._connections.values())
        )

    def _prepare(self, wanted: list[TopicPartition]) -> None:
        """Find the leaders, put the questions together and connect.  On the worker, while nobody asks."""
        self._prepared_until = Deadline.after(0)  # until all of it has succeeded
        found = find_leaders(wanted, self._servers, self._connect)
        if unknown := {tp.topic for tp in wanted if tp not in found}:
            raise UnknownPartitionsError(unknown)
        leaders = {tp: leader for tp in wanted if (leader := found[tp]) is not None}
        if wanted != self._asked or leaders != self._leaders:
            self._questions = _questions(leaders, read_committed=self._read_committed)
            self._asked, self._leaders, self._ends, self._leader_epochs = wanted, leaders, {}, {}
        addresses = {question.address for question in self._questions}
        for address, connection in [*self._connections.items()]:
            if address not in addresses or connection.good_until.passed:
                connection.close()
                del self._connections[address]
        for address in addresses - self._connections.keys():
            self._connections[address] = self._connect(address)
        self._prepared_until = Deadline.after(_LEADERS_S if len(leaders) == len(wanted) else _ELECTION_S)

    def _ask(self) -> Mapping[TopicPartition, Offset]:
        new: dict[TopicPartition, Offset] = {}
        leader_epochs: dict[TopicPartition, LeaderEpoch] = {}
        try:
            for question in self._questions:
                self._connections[question.address].send(protocol.LIST_OFFSETS, question.request)
            for question in self._questions:
                answer = bytes(self._connections[question.address].receive().data)
                if answer != question.answer:
                    for tp, end, leader_epoch in _log_ends(question, answer):
                        new[tp] = end
                        if leader_epoch >= 0:
                            leader_epochs[tp] = LeaderEpoch(leader_epoch)
                    question.answer = answer
        except BaseException:
            self._disconnect()  # an answer may still be on its way
            raise
        if new:
            self._ends = self._ends | new
            if leader_epochs.items() - self._leader_epochs.items():
                self._leader_epochs = self._leader_epochs | leader_epochs
        return self._ends


def _questions(leaders: Mapping[TopicPartition, Address], *, read_committed: bool) -> list[_Question]:
    by_leader: dict[Address, dict[str, dict[int, TopicPartition]]] = {}
    for tp, address in leaders.items():
        by_leader.setdefault(address, {}).setdefault(tp.topic, {})[tp.partition] = tp
    questions = []
    for address, by_topic in by_leader.items():
        request = protocol.log_ends_request(by_topic, read_committed=read_committed)
        questions.append(_Question(address, request, by_topic))
    return questions


def _note_topics(topics: Collection[TopicMetadata], found: dict[str, str | None], missing: set[str]) -> None:
    for topic in topics:
        if topic.error == _UNKNOWN:
            missing.add(topic.name)
        elif topic.error:
            raise ProtocolError(f"topic {topic.name!r}: error {topic.error}")
        elif found.setdefault(topic.name, topic.topic_id) != topic.topic_id:
            raise ProtocolError(f"topic {topic.name!r}: the leaders do not agree on its id")


def _log_ends(question: _Question, answer: bytes) -> list[tuple[TopicPartition, Offset, int]]:
    """Return the log end of each partition, and the epoch of its leader; -1 if that is not known."""
    found = []
    unknown = set()
    for topic, listed in protocol.log_ends(Reader(memoryview(answer))):
        partitions = question.partitions.get(topic, {})
        for partition, error, _, offset, leader_epoch in listed:
            if error == _UNKNOWN:
                unknown.add(topic)
            elif error or offset < 0 or partition not in partitions:
                raise ProtocolError(f"{topic}-{partition}: no log end: error {error}")
            else:
                found.append((partitions[partition], Offset(offset), leader_epoch))
    if unknown:
        raise UnknownPartitionsError(unknown)
    if len(found) != sum(map(len, question.partitions.values())):
        raise ProtocolError("not all log ends were answered")
    return found
