"""Where logs end, many times a second, and whether they are still the same logs.

The leaders answer.  The requests are kept as bytes, and an answer that has not changed is not read again.  A leader
that does not answer costs only its own partitions: it is left out, and a thread of its own connects to it again in the
background.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import partial

from pyspark_kafka_group.cluster.daemon_executor import DaemonExecutor
from pyspark_kafka_group.cluster.error_remedies import TryAgainError
from pyspark_kafka_group.cluster.properties.client_config import Properties, connecting, reach
from pyspark_kafka_group.cluster.request_errors import RequestErrors
from pyspark_kafka_group.offsets.errors import AuthenticationError
from pyspark_kafka_group.offsets.types import LeaderEpoch, Offset, TopicPartition
from pyspark_kafka_group.wire.broker_connection import Answer, BrokerConnection, Encoded, with_input
from pyspark_kafka_group.wire.cluster_connections import ClusterConnections
from pyspark_kafka_group.wire.deadline import Deadline
from pyspark_kafka_group.wire.error_codes import NONE, error_name
from pyspark_kafka_group.wire.fields import Reader
from pyspark_kafka_group.wire.leaders import Leaders, LeaderTimings
from pyspark_kafka_group.wire.threads import in_background
from pyspark_kafka_group.wire.topic_requests import (
    LOG_END,
    LOG_START,
    AskedEpoch,
    ClusterMetadata,
    ListOffsets,
    Metadata,
    OffsetForLeaderEpoch,
)
from pyspark_kafka_group.wire.types import Address, ProtocolError, StoppedLoginError, UnreachableError

_log = logging.getLogger(__name__)

Connect = Callable[..., BrokerConnection]

_TIMEOUT_S = 1.0
"""How long a connection to a leader, and an answer of it, may take at first, in seconds."""

_LONGEST_S = 8.0
"""How long they may take after several timeouts, which each double the time.  A busy leader answers late.  Planning
waits for it, so there is a limit."""

_PREPARE_S = 3.0
"""How long a call waits for the search for leaders, and again for connections to them, in seconds."""

_LEADERS_S = 60.0
"""How long to believe that a leader still leads, in seconds.  A leader that is cut off from the others keeps
answering.
"""

_ELECTION_S = 0.5
"""How long to believe that a partition has no leader, or does not exist, or that its leader is silent, in seconds."""

_SILENT_PAUSE_S = 1.0
"""The pause before the next connection to a silent leader, in seconds."""

_UNKNOWN = "UNKNOWN_TOPIC_OR_PARTITION"

NO_LIMIT = Offset(2**63 - 1)
"""The end of an unknown leader epoch: no offset is above it."""

NO_LEADER = "it has no leader"
_THROTTLES = "its leader throttles this client"
UNKNOWN_TOPIC = "the brokers do not know its topic"


@dataclass(slots=True)
class _Leader:
    """A leader, the question to it, and its last answer."""

    address: Address
    partitions: dict[TopicPartition, int]  # each with the leader epoch -1: a leader of any epoch may answer
    connection: BrokerConnection | None = None
    connecting: Future[BrokerConnection] | None = None
    is_silent: bool = False  # whether it did not answer the last time: then no call waits for it
    timeout_s: float = field(default_factory=lambda: _TIMEOUT_S)  # of the next connection, and its answers
    problem: str = "it is not connected yet"
    retry_at: Deadline = field(default_factory=lambda: Deadline.after(0))
    request: Encoded | None = None
    answer: bytes = b""
    topics: Answer[ClusterMetadata] | None = None
    ends: dict[TopicPartition, Offset] = field(default_factory=dict)
    epochs: dict[TopicPartition, LeaderEpoch] = field(default_factory=dict)
    errors: dict[TopicPartition, str] = field(default_factory=dict)

    @property
    def throttles(self) -> bool:
        """Whether it reads no request for a while (KIP-219)."""
        return self.connection is not None and not self.connection.free_at.passed

    @property
    def topic_names(self) -> set[str]:
        return {tp.topic for tp in self.partitions}


class LogEnds:
    """Lists log ends under the readers' isolation level, for planning.  Belongs to one thread.

    Parameters
    ----------
    properties : mapping
        The user's ``kafka.*`` properties.
    client_id : str
        The client id in the brokers' logs and quotas.
    read_committed : bool
        Whether a log ends where the first open transaction begins.

    Attributes
    ----------
    reasons : mapping of TopicPartition to str
        Why the last :meth:`ends` has left partitions out.
    epoch_errors : dict of TopicPartition to str
        Why the last :meth:`epoch_ends` has left partitions out.

    Raises
    ------
    OptionError
        If a property asks for a connection that this source cannot make.
    """

    def __init__(self, properties: Properties, *, client_id: str, read_committed: bool) -> None:
        servers, security = reach(connecting(properties))
        self._connect: Connect = partial(
            BrokerConnection,
            client_id=client_id,
            timeout_s=_TIMEOUT_S,
            connect_s=_TIMEOUT_S,
            security=security,
            needed=(),
        )
        self._brokers = ClusterConnections(servers, lambda address, left_s: self._connect(address, begin_s=left_s))
        self._errors = RequestErrors(properties)
        self._read_committed = read_committed
        # Deliberate: a thread, here and for each connection.  Resolving names has no timeout, and cannot be interrupted
        # by a signal.  A leader that hangs must not keep the others from being found.
        self._finder = DaemonExecutor("kafka-group-leaders")
        self._asked: list[TopicPartition] | None = None
        self._found_until = Deadline.after(0)
        self._leaders = Leaders()
        self._addresses: dict[TopicPartition, Address] = {}  # of the leaders; without partitions that have none
        self._by_address: dict[Address, _Leader] = {}
        self._without_leader: dict[TopicPartition, str] = {}
        self._is_new = False  # whether something has changed since the answers were put together
        self._ends: Mapping[TopicPartition, Offset] = {}
        self._leader_epochs: Mapping[TopicPartition, LeaderEpoch] = {}
        self.reasons: Mapping[TopicPartition, str] = {}
        self.epoch_errors: dict[TopicPartition, str] = {}

    @property
    def leader_epochs(self) -> Mapping[TopicPartition, LeaderEpoch]:
        """The leader epochs of the last answers.  They change only together with the log ends."""
        return self._leader_epochs

    @property
    def leaders(self) -> Mapping[TopicPartition, Address]:
        """The leaders of the partitions at the last call.  Partitions without a leader are left out."""
        return self._addresses

    def ends(self, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, Offset]:
        """Return the log end of each partition whose leader answers; :attr:`reasons` has the others.

        If nothing is new, the result is the same object as before, so that a comparison is cheap.  It is never
        changed.

        Raises
        ------
        TryAgainError
            If no broker names the leaders.
        AuthenticationError
            If a login to the broker would not be safe, or the user may not describe a topic.
        """
        wanted = list(partitions)
        is_known = wanted == self._asked and not self._found_until.passed and not self._leaders.due()
        if not is_known:
            self._find_leaders(wanted)
        if self._ask_all() and is_known:
            # A leader has moved, or a broker has closed an idle connection: begin again, once.
            self._find_leaders(wanted)
            self._ask_all()
        if self._is_new:
            self._put_together()
        self._leaders.doubt(self.reasons)  # also if the leaders keep giving the same answer
        return self._ends

    def topic_ids(self, topics: Collection[str]) -> dict[str, str | None] | None:
        """Return the ids of these topics, and of those of the last :meth:`ends`, as their leaders know them now.

        A leader knows the new id before it has the new log, so log ends that came before belong to the topics with
        these ids.  A topic that does not exist is left out.  The id is None if the broker is too old for ids.  If no
        connected leader leads a topic, another leader answers for it.

        Returns
        -------
        dict or None
            None if a leader does not answer, or leaders do not agree.
        """
        found: dict[str, str | None] = {}
        missing: set[str] = set()
        connected = [leader for leader in self._by_address.values() if leader.connection is not None]
        # Another one answers for a leader that throttles, so that nobody waits for it.
        connected = [leader for leader in connected if not leader.throttles] or connected
        if topics and not connected:
            return None
        more = set(topics).difference(*(leader.topic_names for leader in connected))
        for leader in connected:
            request = Metadata(tuple(sorted(leader.topic_names | more)))
            more = set()  # one leader answers for these
            assert leader.connection is not None
            try:
                leader.topics = leader.connection.ask_again(request, leader.topics)
            except (OSError, ProtocolError) as problem:
                self._disconnect(leader, problem)
                return None
            for topic in leader.topics.value.topics:
                name = error_name(topic.error)
                if name == _UNKNOWN:
                    missing.add(topic.name)
                elif name != NONE or found.setdefault(topic.name, topic.topic_id) != topic.topic_id:
                    _log.debug("topic %r: %s, id %s", topic.name, name, topic.topic_id)
                    return None
        return {name: topic_id for name, topic_id in found.items() if name not in missing}

    def epoch_ends(self, epochs: Mapping[TopicPartition, LeaderEpoch]) -> dict[TopicPartition, Offset]:
        """Return where the log of each partition ends for a leader epoch (KIP-320); without those that do not answer.

        The end of an epoch that the leader does not know is :data:`NO_LIMIT`.  If some do not answer,
        :attr:`epoch_errors` has the reasons, and the next :meth:`ends` looks for the leaders again.
        """
        by_leader: dict[Address, dict[TopicPartition, AskedEpoch]] = {}
        for tp, epoch in epochs.items():
            if tp in self._addresses:
                asked = AskedEpoch(epoch, self._leader_epochs.get(tp, -1))
                by_leader.setdefault(self._addresses[tp], {})[tp] = asked
        found: dict[TopicPartition, Offset] = {}
        self.epoch_errors = {tp: NO_LEADER for tp in epochs if tp not in self._addresses}
        for address, asked_of_one in by_leader.items():
            leader = self._by_address[address]
            if leader.connection is None or leader.throttles:
                why = _THROTTLES if leader.throttles else leader.problem
                self.epoch_errors |= dict.fromkeys(asked_of_one, why)
                continue
            try:
                answers = leader.connection.ask(OffsetForLeaderEpoch(asked_of_one))
            except (OSError, ProtocolError) as problem:
                self._disconnect(leader, problem)
                self.epoch_errors |= dict.fromkeys(asked_of_one, leader.problem)
                continue
            for tp, answer in answers.items():
                if answer.error:
                    self.epoch_errors[tp] = error_name(answer.error)
                else:
                    found[tp] = Offset(answer.end_offset) if answer.end_offset >= 0 else NO_LIMIT
        self._leaders.doubt(self.epoch_errors.keys() & self._addresses.keys())
        return found

    def log_starts(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, Offset]:
        """Return the log start of each partition whose leader answers."""
        by_leader: dict[Address, dict[TopicPartition, int]] = {}
        for tp in partitions:
            if tp in self._addresses:
                by_leader.setdefault(self._addresses[tp], {})[tp] = -1
        found: dict[TopicPartition, Offset] = {}
        for address, asked in by_leader.items():
            leader = self._by_address[address]
            if leader.connection is None or leader.throttles:
                continue
            try:
                listed = leader.connection.ask(ListOffsets(asked, LOG_START))
            except (OSError, ProtocolError) as problem:
                self._disconnect(leader, problem)
                continue
            found |= {tp: Offset(one.offset) for tp, one in listed.items() if not one.error and one.offset >= 0}
        return found

    def refind_leaders(self) -> None:
        """Look for the leaders again soon, because an answer does not fit."""
        self._leaders.doubt(self._asked or ())

    def close(self) -> None:
        """Close the connections and end the threads; they may still be connecting."""
        leaders, self._by_address, self._asked = self._by_address, {}, None
        for leader in leaders.values():
            self._let_go(leader)
        self._finder.post(self._brokers.close)
        self._finder.close()

    # -- who leads

    def _find_leaders(self, wanted: list[TopicPartition]) -> None:
        self._found_until = Deadline.after(0)  # until all of it has succeeded
        topics = tuple(sorted({tp.topic for tp in wanted}))
        try:
            metadata = self._finder.submit(self._ask_any, topics).result(_PREPARE_S)
        except TimeoutError:
            raise TryAgainError("no broker has named the leaders in time") from None
        for topic in metadata.topics:
            self._errors.raise_if_final(error_name(topic.error), f"topic {topic.name!r}")
        if wanted != self._asked:
            self._leaders = Leaders(LeaderTimings(_ELECTION_S, _ELECTION_S))
        self._leaders.learn(metadata, wanted)
        known = self._leaders.known
        there = {topic.name for topic in metadata.topics if not topic.error}
        without_leader = {tp: NO_LEADER if tp.topic in there else UNKNOWN_TOPIC for tp in wanted if tp not in known}
        self._is_new |= without_leader != self._without_leader
        self._without_leader = without_leader
        leaders = {tp: known[tp].address for tp in wanted if tp in known}
        if wanted != self._asked or leaders != self._addresses:
            self._set_leaders(leaders)
        self._asked = wanted
        self._found_until = Deadline.after(_LEADERS_S)

    def _ask_any(self, topics: tuple[str, ...]) -> ClusterMetadata:
        with self._errors.translated(""):
            metadata = self._brokers.ask_any(Metadata(topics), Deadline.after(_PREPARE_S))
        self._brokers.learn(metadata.brokers.values())
        return metadata

    def _set_leaders(self, leaders: dict[TopicPartition, Address]) -> None:
        """Distribute the partitions among their leaders; connections to those that still lead are kept."""
        self._is_new = True
        before, self._by_address, self._addresses = self._by_address, {}, leaders
        for tp, address in leaders.items():
            if address not in self._by_address:
                kept = before.get(address)
                self._by_address[address] = _Leader(address, {})
                if kept is not None:
                    leader = self._by_address[address]
                    leader.connection, leader.connecting = kept.connection, kept.connecting
                    leader.is_silent, leader.problem, leader.retry_at = kept.is_silent, kept.problem, kept.retry_at
                    leader.timeout_s = kept.timeout_s
            self._by_address[address].partitions[tp] = -1
        for address in before.keys() - self._by_address.keys():
            self._let_go(before[address])

    # -- what they say

    def _ask_all(self) -> bool:
        """Ask all leaders at once; return whether to look for the leaders again."""
        self._connect_all()
        asked: list[tuple[_Leader, Deadline]] = []
        lost = False
        for leader in self._by_address.values():
            if leader.connection is None:
                continue
            if leader.answer and leader.throttles:
                continue  # it would not read the request, and its last answer counts
            try:
                if leader.request is None:
                    question = ListOffsets(leader.partitions, LOG_END, self._read_committed)
                    leader.request = leader.connection.encode(question)
                asked.append((leader, leader.connection.send(leader.request)))
            except (OSError, ProtocolError) as problem:
                self._disconnect(leader, problem)
                lost = True
        for leader, due in asked:
            assert leader.connection is not None
            assert leader.request is not None
            try:
                # All answers are due at the same time: several leaders that are silent take as long as one.
                if not with_input([leader.connection], due.left_s):
                    raise TimeoutError("no answer")
                answer = bytes(leader.connection.receive(leader.request).data)
                leader.timeout_s = _TIMEOUT_S
                if answer != leader.answer:
                    lost |= self._read(leader, answer, leader.request.version)
            except (OSError, ProtocolError) as problem:
                self._disconnect(leader, problem)
                lost |= not isinstance(problem, TimeoutError)  # a second attempt would also time out
        return lost

    def _read(self, leader: _Leader, answer: bytes, version: int) -> bool:
        """Read an answer that has changed; return whether the leader has lost partitions."""
        listed = ListOffsets(leader.partitions, LOG_END).read(Reader(memoryview(answer)), version)
        ends, epochs, errors = {}, {}, {}
        for tp in leader.partitions:
            found = listed.get(tp)
            if found is None or found.error or found.offset < 0:
                errors[tp] = name = "no answer" if found is None else error_name(found.error)
                self._errors.raise_if_final(name, f"log end of {tp}")
                continue
            ends[tp] = Offset(found.offset)
            if found.leader_epoch >= 0:
                epochs[tp] = LeaderEpoch(found.leader_epoch)
        leader.ends, leader.epochs, leader.errors = ends, epochs, errors
        leader.answer, self._is_new = answer, True
        return any(name != _UNKNOWN for name in errors.values())

    def _put_together(self) -> None:
        """Combine the answers of all leaders; keep the former objects if nothing has changed."""
        self._is_new = False
        ends: dict[TopicPartition, Offset] = {}
        epochs: dict[TopicPartition, LeaderEpoch] = {}
        reasons = dict(self._without_leader)
        for leader in self._by_address.values():
            if leader.connection is None:
                reasons |= dict.fromkeys(leader.partitions, f"its leader does not answer: {leader.problem}")
                continue
            ends |= leader.ends
            epochs |= leader.epochs
            reasons |= {tp: UNKNOWN_TOPIC if name == _UNKNOWN else name for tp, name in leader.errors.items()}
        self.reasons = reasons
        if ends != self._ends:
            self._ends = ends
        if epochs != self._leader_epochs:
            self._leader_epochs = epochs

    # -- connections

    def _connect_all(self) -> None:
        """Take the connections that are ready and begin those that are due; wait for leaders that are not silent."""
        for leader in self._by_address.values():
            if leader.connection is not None and leader.connection.good_until.passed:
                self._disconnect(leader, ConnectionError("its login ends"))
            if leader.connection is None and leader.connecting is None and leader.retry_at.passed:
                connect = partial(self._connect, leader.address, timeout_s=leader.timeout_s)
                leader.connecting = in_background(connect, "kafka-group-connect")
        until = Deadline.after(_PREPARE_S)
        for leader in self._by_address.values():
            if leader.connecting is not None:
                self._take_connection(leader, leader.connecting, 0.0 if leader.is_silent else until.left_s)

    def _take_connection(self, leader: _Leader, connecting: Future[BrokerConnection], timeout_s: float) -> None:
        try:
            leader.connection = connecting.result(timeout_s)
        except StoppedLoginError as problem:
            raise AuthenticationError(str(problem)) from None
        except (OSError, ProtocolError) as problem:
            leader.is_silent = True
            if not connecting.done():  # it may still succeed
                return
            self._disconnect(leader, problem)
        else:
            leader.is_silent = False
        leader.connecting = None
        self._is_new = True

    def _disconnect(self, leader: _Leader, problem: Exception) -> None:
        """Close the connection to a leader; an answer may still be on its way."""
        if leader.connection is not None:
            leader.connection.close()
        leader.connection, leader.request, leader.answer, leader.topics = None, None, b"", None
        leader.problem = self._errors.text(f"broker {leader.address}", problem)
        if isinstance(problem, TimeoutError):
            leader.is_silent = True
            if not isinstance(problem, UnreachableError):
                leader.timeout_s = min(2 * leader.timeout_s, _LONGEST_S)
        leader.retry_at = Deadline.after(_SILENT_PAUSE_S if leader.is_silent else 0.0)
        self._is_new = True
        self._leaders.doubt(leader.partitions)

    def _let_go(self, leader: _Leader) -> None:
        """Close the connection to a broker that leads no partition now, even if it is still being made."""

        def close(connecting: Future[BrokerConnection]) -> None:
            if not connecting.cancelled() and connecting.exception() is None:
                connecting.result().close()

        if leader.connection is not None:
            leader.connection.close()
        if leader.connecting is not None:
            leader.connecting.add_done_callback(close)
