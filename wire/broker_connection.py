"""One connection to a broker, for one request at a time."""

from __future__ import annotations

import contextlib
import itertools
import math
import select
import socket
import struct
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Generic, NamedTuple, TypeVar

from pyspark_kafka_group.wire import messages as protocol
from pyspark_kafka_group.wire.deadline import NO_TIME, Deadline
from pyspark_kafka_group.wire.fields import Reader, Writer
from pyspark_kafka_group.wire.name_lookup import connected, endpoints
from pyspark_kafka_group.wire.requests import OfferedVersions, Request
from pyspark_kafka_group.wire.security import Login, Security
from pyspark_kafka_group.wire.types import Address, LargeResponseError, ProtocolError, RefusedCredentialsError

T = TypeVar("T")

_MAX_BYTES = 1 << 30
"""The largest accepted response: far above Kafka's largest records, and far below the size that TLS or HTTP data would
seem to have."""

_LOGIN_SHARE = 0.85
"""How much of the lifetime of a login a connection is used."""

_LOOK_UP_S = 10.0
"""How long the lookup of a name may take, unless connecting as a whole has a limit.  Resolvers ask a second server
after 5 s, and reading must not wait for ever."""

_DROP = struct.pack("ii", 1, 0)
"""A linger time of 0, which resets the connection."""

_READING = (protocol.FETCH,)

_MOST_BUFFERS = 512
"""How many buffers one call of the kernel gets.  Linux accepts 1024."""

_SLOWEST_BYTES_PER_S = 10_000
"""How slowly an answer may arrive that takes longer than the timeout."""

_LONGEST_PAUSE_S = 60.0
"""How long a broker is believed that it reads no requests.  Redpanda's limit is 30 s."""

_NOT_RECEIVED = "the broker does not receive the request"

_NEVER = Deadline.after(math.inf)


class Encoded(NamedTuple):
    """A request as bytes, in one version."""

    api: int
    version: int
    body: bytes
    flexible: bool


class Answer(NamedTuple, Generic[T]):
    """The bytes of an answer, and its value."""

    data: bytes
    value: T


class BrokerConnection:
    """A connection to one broker.

    Parameters
    ----------
    address
        The address of the broker.
    client_id
        The name in the broker's logs and quotas.
    timeout_s
        How long connecting, sending, and waiting for an answer may take, each.  The lookup of the name may take longer,
        and so may a large answer while it arrives.
    connect_s
        How long connecting to the address may take, if this is less.
    security
        How to encrypt and authenticate.
    needed
        The requests with fixed versions that will be sent.
    begin_s
        How long everything before the first request may take, including the lookup of the name and the login.
    hold_s
        How much longer than `timeout_s` an answer may take, because the broker waits for data.
    most_bytes
        The largest accepted response.

    Attributes
    ----------
    good_until : Deadline
        When the login ends (KIP-368).
    free_at : Deadline
        When the broker reads the next request: after an answer it may throttle this connection (KIP-219).  Answers to
        fixed versions do not change it.

    Raises
    ------
    OSError
        If the broker cannot be reached, or its certificate is not trusted.
    ProtocolError
        If the broker does not support our versions of Kafka's protocol, or refuses the credentials.
    StoppedLoginError
        If no client may log in: it would be unsafe, or there is no token.
    """

    def __init__(
        self,
        address: Address,
        client_id: str,
        timeout_s: float,
        security: Security,
        *,
        connect_s: float = math.inf,
        needed: Collection[int] = _READING,
        begin_s: float = math.inf,
        hold_s: float = 0.0,
        most_bytes: int = _MAX_BYTES,
    ) -> None:
        self._client_id = client_id
        self._most_bytes = most_bytes
        self._timeout_s = timeout_s
        self._hold_s = hold_s
        self._answer_s = timeout_s + hold_s
        self._correlation_ids = itertools.count()
        self._correlation_id = 0
        self.good_until = Deadline.after(math.inf)
        self.free_at = Deadline.after(0)
        deadline = Deadline.after(begin_s)
        try:
            found = endpoints(
                address, min(begin_s, _LOOK_UP_S), security.family, canonical=address in security.canonical
            )
            self._socket, host = connected(found, _left(deadline, min(timeout_s, connect_s)))
        except UnicodeError:
            raise ProtocolError(f"{address.host!r} is no host name") from None
        try:
            self._begin(host, security, needed, deadline)
            self._set_timeout(self._answer_s)
        except BaseException:
            self._socket.close()
            raise

    def ask(self, request: Request[T], timeout_s: float | None = None) -> T:
        """Send a request in the highest version that both sides support, and return the answer.

        Parameters
        ----------
        request
            The request.
        timeout_s
            How long sending and the answer may take together; None for the connection's timeout, which begins when the
            broker reads the request.

        Raises
        ------
        OSError
            If the connection is lost, or no answer comes in time.
        UnsupportedVersionError
            If the broker does not support our versions of this request.  Nothing was sent.
        ProtocolError
            If the request cannot be sent, or the answer is invalid.
        """
        encoded, answer = self._exchange(request, timeout_s)
        return request.read(answer, encoded.version)

    @property
    def offered(self) -> OfferedVersions:
        """The versions of each request that the broker supports."""
        return self._offered

    def encode(self, request: Request[T]) -> Encoded:
        """Encode a request in the highest version that both sides support.  The result may be sent many times.

        Raises
        ------
        UnsupportedVersionError
            If the broker does not support our versions of this request.
        """
        version = request.api.version(self._offered)
        out = Writer(flexible=version >= request.api.flexible)
        request.write(out, version)
        return Encoded(request.api.key, version, bytes(out), version >= request.api.flexible)

    def send(self, encoded: Encoded) -> Deadline:
        """Send a request, and return by when its answer is due.  Receive it before you send the next request."""
        deadline = self._usual_deadline()
        self._send_until(deadline, encoded)
        return deadline

    def receive(self, encoded: Encoded, deadline: Deadline = _NEVER) -> Reader:
        """Wait for the answer to the last request.

        Ignore bytes after the fields of an answer: librdkafka's mock adds one to Metadata.
        """
        answer = self._receive_answer(flexible=encoded.flexible, deadline=deadline)
        answer.end()  # of the header
        first = len(answer.data) - answer.left
        throttle_ms = int.from_bytes(answer.data[first : first + 4], "big", signed=True)  # in all these answers
        if throttle_ms > 0:
            self.free_at = Deadline.after(min(throttle_ms / 1000, _LONGEST_PAUSE_S))
        return answer

    def _exchange(self, request: Request[T], timeout_s: float | None) -> tuple[Encoded, Reader]:
        deadline = self._usual_deadline() if timeout_s is None else Deadline.after(timeout_s)
        encoded = self.encode(request)
        self._send_until(deadline, encoded)
        return encoded, self.receive(encoded, deadline)

    def _usual_deadline(self) -> Deadline:
        return Deadline.after(self.free_at.left_s + self._timeout_s)

    def ask_again(self, request: Request[T], before: Answer[T] | None) -> Answer[T]:
        """Repeat a request; return ``before`` if the answer has not changed, without parsing it again.

        Raises the errors of :meth:`ask`.
        """
        encoded, answer = self._exchange(request, None)
        if before is not None and before.data == answer.data:
            return before
        data = bytes(answer.data)
        return Answer(data, request.read(answer, encoded.version))

    def set_timeout(self, timeout_s: float) -> None:
        """Change how long sending, and waiting for an answer of :meth:`request`, may take."""
        if timeout_s != self._timeout_s:
            self._timeout_s, self._answer_s = timeout_s, timeout_s + self._hold_s
            self._set_timeout(self._answer_s)

    def is_idle(self) -> bool:
        """Return whether the connection seems to be open, and no data waits.

        A broker closes unused connections.  The next request would be lost, and it would be unknown whether the broker
        has executed it.
        """
        return self._socket.fileno() >= 0 and not self.has_input()

    def speaks(self, api: int, version: int) -> bool:
        """Return whether the broker supports this version of a request."""
        oldest, newest = self._offered.get(api, (0, -1))
        return oldest <= version <= newest

    def request(
        self, api: int, body: bytes, version: int | None = None, *, arriving: Callable[[int], None] | None = None
    ) -> Reader:
        """Send a request in its fixed version, or in ``version``, and return the answer.

        ``arriving`` is called with the length of the answer, in bytes, when it begins to arrive.

        Raises
        ------
        OSError
            If the connection is lost, or no answer comes in time.
        ProtocolError
            If the answer is invalid.
        """
        version = protocol.VERSIONS[api] if version is None else version
        self._send_all(Deadline.after(self._timeout_s), api, version, [body])
        return self._receive_answer(flexible=False, deadline=_NEVER, arriving=arriving)

    def begin(self, api: int, body: Sequence[protocol.Buffer], deadline: Deadline) -> None:
        """Send a request in its fixed version, with a body of several buffers.  They are not joined without need.

        Take its answer with :meth:`end` before you send the next request.

        Raises
        ------
        OSError
            If the connection is lost, or the broker does not receive the request in time.
        """
        self._limit(deadline)
        self._send_all(deadline, api, protocol.VERSIONS[api], body)

    def end(self, deadline: Deadline) -> Reader:
        """Wait for the answer to the request that :meth:`begin` has sent.

        Raises
        ------
        OSError
            If the connection is lost, or no answer comes in time.
        ProtocolError
            If the answer is invalid.
        """
        self._limit(deadline)
        return self._receive_answer(flexible=False, deadline=deadline)

    def has_input(self) -> bool:
        """Return whether an answer has begun to arrive, or the connection is lost.

        With TLS, it can also be data of TLS itself.  Then :meth:`end` waits.
        """
        return bool(with_input([self], 0))

    def interrupt(self) -> None:
        """Let a running request of another thread fail, and all later requests."""
        with contextlib.suppress(OSError):  # no longer connected
            # Deliberate: not SSLSocket.shutdown, which would continue without encryption.
            socket.socket.shutdown(self._socket, socket.SHUT_RDWR)

    def close(self) -> None:
        """Close the connection."""
        self._socket.close()

    def abort(self) -> None:
        """Close the connection, and let the kernel drop unsent data."""
        with contextlib.suppress(OSError):  # no longer connected
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _DROP)
        self._socket.close()

    def _begin(self, host: str, security: Security, needed: Collection[int], deadline: Deadline) -> None:
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if security.tls:
            self._receive_flags = 0
            self._socket.settimeout(_left(deadline, self._timeout_s))
            self._socket = security.tls.wrap_socket(self._socket, server_hostname=host)
        else:
            # Blocking in the kernel also, so that one call receives a whole response.
            self._receive_flags = socket.MSG_WAITALL
            self._socket.settimeout(None)
        self._offered = protocol.offered_versions(self._request_until(deadline, protocol.API_VERSIONS, b""))
        protocol.check_versions(self._offered, needed)
        if security.login:
            protocol.check_versions(self._offered, [protocol.SASL_HANDSHAKE, protocol.SASL_AUTHENTICATE])
            self._log_in(security.login, host, deadline)

    def _log_in(self, login: Login, host: str, deadline: Deadline) -> None:
        request = protocol.sasl_handshake_request(login.mechanism)
        protocol.check_sasl_handshake(self._request_until(deadline, protocol.SASL_HANDSHAKE, request))
        with contextlib.closing(login.talk(host, deadline)) as conversation, contextlib.suppress(StopIteration):
            message = next(conversation)
            while True:  # until the mechanism ends the conversation
                request = protocol.sasl_authenticate_request(message)
                answer = self._request_until(deadline, protocol.SASL_AUTHENTICATE, request)
                try:
                    said = protocol.sasl_authenticated(answer)
                except RefusedCredentialsError as problem:
                    conversation.throw(problem)
                    raise
                if said.lifetime_ms > 0:
                    self.good_until = Deadline.after(_LOGIN_SHARE * said.lifetime_ms / 1000)
                message = conversation.send(said.message)

    def _request_until(self, deadline: Deadline, api: int, body: bytes) -> Reader:
        deadline = deadline.within(self._timeout_s)
        self._limit(deadline)
        self._send_all(deadline, api, protocol.VERSIONS[api], [body])
        return self._receive_answer(flexible=False, deadline=deadline)

    def _send_until(self, deadline: Deadline, encoded: Encoded) -> None:
        self._limit(deadline)
        self._send_all(deadline, encoded.api, encoded.version, [encoded.body], flexible=encoded.flexible)

    def _send_all(
        self, deadline: Deadline, api: int, version: int, body: Sequence[protocol.Buffer], *, flexible: bool = False
    ) -> None:
        self._correlation_id = next(self._correlation_ids)
        size = sum(map(len, body))
        header = protocol.header_of(api, version, self._correlation_id, self._client_id, size, flexible=flexible)
        try:
            if self._receive_flags:
                _gather(self._socket, [header, *body], deadline)
            else:  # TLS would make a packet of each buffer; the socket's timeout is for all of them
                self._socket.sendall(b"".join((header, *body)))
        except BlockingIOError:
            raise TimeoutError(_NOT_RECEIVED) from None

    def _receive_answer(
        self, *, flexible: bool, deadline: Deadline, arriving: Callable[[int], None] | None = None
    ) -> Reader:
        import pyarrow as pa

        size = bytearray(4)
        self._receive(memoryview(size), deadline)
        length = int.from_bytes(size, "big")
        if length < 4:
            raise ProtocolError(f"a response of {length} bytes")
        if length > self._most_bytes:
            raise LargeResponseError(length)
        if arriving is not None:
            arriving(length)
        answer = memoryview(pa.allocate_buffer(length)).cast("B")
        self._receive(answer, deadline)
        if int.from_bytes(answer[:4], "big") != self._correlation_id:
            raise ProtocolError("an answer to another request")
        return Reader(answer[4:], flexible=flexible)

    def _receive(self, into: memoryview, deadline: Deadline) -> None:
        # The socket's timeout limits each call only.  A peer that sends a byte now and then never reaches it.
        limit, arrived = deadline if deadline.is_set else Deadline.after(self._answer_s), 0
        while into:
            try:
                received = self._socket.recv_into(into, len(into), self._receive_flags)
            except BlockingIOError:
                raise TimeoutError("no answer") from None
            if received == 0:
                raise ConnectionError("the broker closed the connection")
            into = into[received:]
            arrived += received
            if into and limit.passed:
                if deadline.is_set or arrived < _SLOWEST_BYTES_PER_S * self._answer_s:
                    raise TimeoutError("no whole answer")
                limit, arrived = Deadline.after(self._answer_s), 0

    def _limit(self, deadline: Deadline) -> None:
        """Set the socket's timeout to the deadline, or to the usual timeout if there is none."""
        self._set_timeout(_left(deadline, math.inf if deadline.is_set else self._timeout_s))

    def _set_timeout(self, timeout_s: float) -> None:
        if not self._receive_flags:
            self._socket.settimeout(timeout_s)
            return
        fraction, seconds = math.modf(timeout_s)
        timeout = struct.pack("@ll", int(seconds), int(fraction * 1e6))
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, timeout)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, timeout)


def with_input(connections: Iterable[BrokerConnection], timeout_s: float) -> list[BrokerConnection]:
    """Wait until one of the connections has input, and return those that have.

    See :meth:`BrokerConnection.has_input`.
    """
    poll = select.poll()
    by_number = {connection._socket.fileno(): connection for connection in connections}
    for number in by_number:
        poll.register(number, select.POLLIN)
    return [by_number[number] for number, _ in poll.poll(math.ceil(timeout_s * 1000))]


def _gather(to: socket.socket, buffers: list[protocol.Buffer], deadline: Deadline) -> None:
    """Send buffers one after another until the deadline, without joining them."""
    left = [memoryview(one) for one in buffers if len(one)]
    left.reverse()
    while left:
        sent = to.sendmsg(left[: -_MOST_BUFFERS - 1 : -1])
        while sent:
            if sent < len(left[-1]):
                left[-1] = left[-1][sent:]
                break
            sent -= len(left.pop())
        if left and deadline.passed:  # the socket's timeout limits each call only
            raise TimeoutError(_NOT_RECEIVED)


def _left(deadline: Deadline, at_most_s: float) -> float:
    """Return the time left, in seconds.  Raise instead of 0, which would mean not to wait, or to wait for ever."""
    left = min(at_most_s, deadline.left_s)
    if left < 0.001:
        raise TimeoutError(NO_TIME)
    return left
