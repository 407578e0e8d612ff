"""The rare questions of a range reader, over our own connections: leaders, log start and end, existing partitions."""

from __future__ import annotations

import contextlib
import socket
import ssl
from collections import defaultdict, deque
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from pyspark_kafka_group.offsets.errors import AuthenticationError
from pyspark_kafka_group.offsets.types import TopicPartition
from pyspark_kafka_group.reading.answer_time import AnswerTime
from pyspark_kafka_group.wire.broker_connection import BrokerConnection
from pyspark_kafka_group.wire.deadline import Deadline
from pyspark_kafka_group.wire.leaders import NO_LEADER, NO_PARTITION, Leaders
from pyspark_kafka_group.wire.topic_requests import LOG_END, LOG_START, ClusterMetadata, ListOffsets, Metadata
from pyspark_kafka_group.wire.types import (
    Address,
    FetchError,
    ProtocolError,
    RefusedCredentialsError,
    StoppedLoginError,
)

if TYPE_CHECKING:
    from confluent_kafka import KafkaError

_Answer = TypeVar("_Answer")

_MOST_WAITS = 3
"""How many times the time for an answer one question may take.  Then the reader may have records of other partitions,
and its next question goes on with the next broker."""

_QUESTION_S = 10.0
"""How long one question may take at most.  The user's ``kafkaConsumer.pollTimeoutMs`` is not checked meanwhile."""


class BrokerQuestions:
    """Asks brokers, over a new connection for each question.

    Parameters
    ----------
    servers : iterable of Address
        The bootstrap servers.
    connect : callable
        Opens a connection to a broker: takes its address, and how long an answer may take.
    longest_s : float
        How long an answer may take at most, in seconds.
    """

    def __init__(self, servers: Iterable[Address], connect: Callable[..., BrokerConnection], longest_s: float) -> None:
        self._bootstrap = tuple(servers)
        self._servers = deque(self._bootstrap)  # and the brokers of the last metadata
        self.connect = connect
        longest_s = min(longest_s, _QUESTION_S)
        self._metadata_time = AnswerTime(longest_s)
        self._leader_times = defaultdict[Address, AnswerTime](partial(AnswerTime, longest_s))
        self._brokers: Mapping[int, Address] = {}  # those of the last metadata

    def metadata(self, topics: Collection[str] = ()) -> ClusterMetadata:
        """Ask one known broker after another for all brokers and the leaders of topics.

        Raises
        ------
        OSError
            If no broker answers, or none of those that this question has reached in time.
        ProtocolError
            If the answer is invalid.
        """
        problem: Exception = ProtocolError("no servers")
        with self._metadata_time.wait() as answer_s:
            until = Deadline.after(min(_MOST_WAITS * answer_s, _QUESTION_S))
            for server in [*self._servers]:
                # The next question begins with another one: this one may not know a new leader.
                self._servers.rotate(-1)
                try:
                    with contextlib.closing(self.connect(server, timeout_s=min(answer_s, until.left_s))) as connection:
                        found = connection.ask(Metadata(tuple(sorted(topics))))
                except OSError as failure:
                    if type(problem) is not TimeoutError:  # which prolongs the next wait
                        problem = failure
                    if until.passed:
                        break
                else:
                    self._learn(found.brokers)
                    return found
            raise problem

    def _learn(self, brokers: Mapping[int, Address]) -> None:
        """Also ask these brokers from now on: all bootstrap servers may stop."""
        self._brokers = brokers
        wanted = {*self._bootstrap, *brokers.values()}
        known = [server for server in self._servers if server in wanted]
        self._servers = deque([*known, *sorted(wanted.difference(known))])

    def address(self, broker_id: int) -> Address:
        """Return the address of a broker; raise the errors of :meth:`metadata`, also if there is no such broker."""
        if broker_id not in self._brokers:
            self.metadata()
        if broker_id not in self._brokers:
            raise ProtocolError(f"broker {broker_id} is unknown")
        return self._brokers[broker_id]

    def watermarks(self, tp: TopicPartition) -> tuple[int, int]:
        """Return the start and the end of the log, as the leader reports them.  See `ReaderClient.watermarks`."""
        return _answer_of(lambda: self._watermarks(tp))

    def _watermarks(self, tp: TopicPartition) -> tuple[int, int]:
        leaders = self._leaders([tp])
        if tp in leaders.errors:
            raise no_leader(leaders, tp)
        address, found = leaders.known[tp].address, []
        with (
            self._leader_times[address].wait() as answer_s,
            contextlib.closing(self.connect(address, timeout_s=answer_s)) as connection,
        ):
            for which in (LOG_START, LOG_END):
                listed = connection.ask(ListOffsets({tp: -1}, which)).get(tp)
                if listed is None:
                    raise ProtocolError(f"the broker does not answer for {tp}")
                if listed.error:
                    raise FetchError(f"the log of {tp}", listed.error)
                found.append(listed.offset)
        return found[0], found[1]

    def _leaders(self, tps: Collection[TopicPartition]) -> Leaders:
        leaders = Leaders()
        leaders.learn(self.metadata({tp.topic for tp in tps}), tps)
        return leaders

    def partition_errors(self, tps: Collection[TopicPartition]) -> dict[TopicPartition, KafkaError]:
        """Return the errors of partitions that do not exist or have an error.  See `ReaderClient.partition_errors`."""
        leaders = _answer_of(lambda: self._leaders(tps))
        return {tp: kafka_error(no_leader(leaders, tp)) for tp, code in leaders.errors.items() if code != NO_LEADER}


def no_leader(leaders: Leaders, tp: TopicPartition) -> FetchError:
    """Return the error for a partition whose leader brokers have not named."""
    code = leaders.errors[tp]
    return FetchError(f"the leader of {tp}" if code in (NO_LEADER, NO_PARTITION) else f"topic {tp.topic!r}", code)


def _answer_of(ask: Callable[[], _Answer]) -> _Answer:
    """Ask, and raise errors as `KafkaException`."""
    try:
        return ask()
    except StoppedLoginError as problem:
        raise AuthenticationError(str(problem)) from None
    except (OSError, ProtocolError) as problem:
        from confluent_kafka import KafkaException

        raise KafkaException(kafka_error(problem)) from None


def kafka_error(problem: Exception | None, name: str = "", text: str = "") -> KafkaError:
    """Return confluent-kafka's object for an error, by which `range_reader` decides.

    Parameters
    ----------
    problem
        The error of a connection; None with a name.
    name, text : str
        librdkafka's name of the error, and its text.
    """
    # Deliberate: not at the top.  A worker that reads directly does not need librdkafka.
    from confluent_kafka import KafkaError

    code = getattr(KafkaError, name) if problem is None else _code_of(problem)
    return KafkaError(code, text or str(problem) or type(problem).__name__)


def _code_of(problem: Exception) -> int:
    from confluent_kafka import KafkaError

    if isinstance(problem, FetchError):
        return problem.code
    if isinstance(problem, RefusedCredentialsError):
        return int(KafkaError._AUTHENTICATION)
    if isinstance(problem, ssl.SSLError) and not isinstance(problem, ssl.SSLEOFError | ssl.SSLZeroReturnError):
        return int(KafkaError._SSL)
    if isinstance(problem, socket.gaierror):
        return int(KafkaError._RESOLVE)
    return int(KafkaError._TIMED_OUT if isinstance(problem, TimeoutError) else KafkaError._TRANSPORT)
