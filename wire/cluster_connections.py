"""Opens connections to the brokers of one cluster when necessary, and keeps them.

This module neither retries nor checks error codes.  The caller decides about the meaning of an answer.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterable
from typing import TypeVar

from pyspark_kafka_group.wire.broker_connection import BrokerConnection
from pyspark_kafka_group.wire.deadline import Deadline
from pyspark_kafka_group.wire.requests import Request
from pyspark_kafka_group.wire.types import Address, ProtocolError, RefusedCredentialsError, UnsupportedVersionError

T = TypeVar("T")

Connect = Callable[[Address, float], BrokerConnection]
"""Opens a connection to a broker.  The second argument is the timeout in seconds."""


class ClusterConnections:
    """The connections to one cluster.  Belongs to one thread.

    Parameters
    ----------
    servers
        The bootstrap servers.
    connect
        Opens a connection.
    """

    def __init__(self, servers: Iterable[Address], connect: Connect) -> None:
        self._servers = tuple(servers)
        self._brokers = list(self._servers)  # those that answered last come first
        self._connect = connect
        self._connections: dict[Address, BrokerConnection] = {}

    def learn(self, brokers: Iterable[Address]) -> None:
        """Set the known brokers for :meth:`ask_any`, in addition to the bootstrap servers."""
        wanted = {*self._servers, *brokers}
        self._brokers = [address for address in self._brokers if address in wanted]
        self._brokers += sorted(wanted - {*self._brokers})
        for address in self._connections.keys() - wanted:
            self.drop(address)

    def ask_any(self, request: Request[T], deadline: Deadline) -> T:
        """Ask one broker after another until one answers.

        Raises
        ------
        OSError
            If no broker answers in time.
        ProtocolError
            If the answer of the last one is invalid.
        RefusedCredentialsError, UnsupportedVersionError
            If one broker refuses the credentials, or does not support our versions.  Others would do the same.
        """
        problem: OSError | ProtocolError = ConnectionError("no broker is known")
        candidates = [*self._brokers]
        for tried, address in enumerate(candidates):
            # A third of the time at most, so that a broker that hangs leaves some for the others.  Deliberate: not less
            # if there are many brokers.  A login must fit into it, and a connection that is ready stays.
            until = deadline.share(min(3, len(candidates) - tried))
            try:
                return self.ask(address, request, until)
            except (RefusedCredentialsError, UnsupportedVersionError):
                raise
            except (OSError, ProtocolError) as failure:
                if not (tried and isinstance(failure, socket.gaierror)):  # a wrong name says less than other problems
                    problem = failure
                self._brokers.remove(address)
                self._brokers.append(address)
        raise problem

    def prefer_another(self) -> None:
        """Let :meth:`ask_any` begin with another broker than before."""
        self._brokers.append(self._brokers.pop(0))

    def ask(self, address: Address, request: Request[T], deadline: Deadline) -> T:
        """Ask one broker.  If this fails, reset its connection.

        An unsent request must not arrive later, after the next request over another connection.

        Raises
        ------
        OSError
            If the broker cannot be reached, or does not answer in time.
        ProtocolError
            If the answer is invalid.
        """
        connection = self.to(address, deadline)
        try:
            return connection.ask(request, deadline.left_s)
        except UnsupportedVersionError:
            raise  # nothing was sent
        except BaseException:
            self._connections.pop(address, connection).abort()  # an answer may still be on its way
            raise

    def to(self, address: Address, deadline: Deadline) -> BrokerConnection:
        """Return the connection to a broker.  Open a new one if its login has ended or the broker has closed it.

        Raises
        ------
        OSError
            If the broker cannot be reached in time.
        ProtocolError
            If an answer is invalid, or the broker refuses the credentials.
        """
        connection = self._connections.get(address)
        if connection is not None and connection.is_idle() and not connection.good_until.passed:
            return connection
        self.drop(address)
        made = self._connections[address] = self._connect(address, deadline.left_s)
        return made

    def drop(self, address: Address) -> None:
        """Close the connection to a broker."""
        connection = self._connections.pop(address, None)
        if connection is not None:
            connection.close()

    def close(self) -> None:
        """Close all connections."""
        for address in [*self._connections]:
            self.drop(address)
