"""The rare questions of a range reader, over our own connections: log start and end, and whether a partition exists."""

from __future__ import annotations

import contextlib
import socket
import ssl
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from pyspark_kafka_group.offsets.errors import AuthenticationError
from pyspark_kafka_group.offsets.types import TopicPartition
from pyspark_kafka_group.wire.error_codes import error_code
from pyspark_kafka_group.wire.leaders import Connect, find_leaders
from pyspark_kafka_group.wire.topic_requests import LOG_END, LOG_START, ListOffsets
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


class BrokerQuestions:
    """Asks brokers.  Takes the bootstrap servers, and the function that opens a connection to a broker."""

    def __init__(self, servers: list[Address], connect: Connect) -> None:
        self._servers = servers
        self.connect = connect

    def watermarks(self, tp: TopicPartition) -> tuple[int, int]:
        """Return the start and the end of the log, as the leader reports them.  See `ReaderClient.watermarks`."""
        return _answer_of(lambda: self._watermarks(tp))

    def _watermarks(self, tp: TopicPartition) -> tuple[int, int]:
        leader = self._leader(tp)
        if leader is None:
            raise FetchError(f"the leader of {tp}", error_code("LEADER_NOT_AVAILABLE"))
        with contextlib.closing(self.connect(leader)) as connection:
            found = []
            for which in (LOG_START, LOG_END):
                listed = connection.ask(ListOffsets({tp: -1}, which)).get(tp)
                if listed is None:
                    raise ProtocolError(f"the broker does not answer for {tp}")
                if listed.error:
                    raise FetchError(f"the log of {tp}", listed.error)
                found.append(listed.offset)
        return found[0], found[1]

    def _leader(self, tp: TopicPartition) -> Address | None:
        leaders = find_leaders([tp], self._servers, self.connect)
        if tp not in leaders:
            raise FetchError(f"the leader of {tp}", error_code("UNKNOWN_TOPIC_OR_PARTITION"))
        return leaders[tp]

    def partition_error(self, tp: TopicPartition) -> KafkaError | None:
        """Return the error if the partition does not exist or has an error.  See `ReaderClient.partition_error`."""

        def ask() -> KafkaError | None:
            try:
                self._leader(tp)
            except FetchError as problem:
                return kafka_error(problem)
            return None

        return _answer_of(ask)


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
