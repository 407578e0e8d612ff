"""Looks up host names of brokers, and connects to their addresses, in bounded time.

`getaddrinfo` has no timeout, and no signal interrupts it.  A name server that does not answer blocks it for half a
minute.  So it runs on a thread that can be abandoned.  Each name has at most one such thread.
"""

from __future__ import annotations

import contextlib
import errno
import math
import os
import re
import select
import socket
import threading
from collections import deque
from concurrent.futures import Future
from functools import lru_cache, partial
from ipaddress import ip_address
from typing import Any, NamedTuple

from pyspark_kafka_group.wire.deadline import Deadline
from pyspark_kafka_group.wire.threads import in_background
from pyspark_kafka_group.wire.types import Address, PropertyError, UnreachableError


class Endpoint(NamedTuple):
    """Family, type and protocol of a socket, its destination, and the name of the host."""

    family: int
    kind: int
    protocol: int
    where: Any
    host: str


Lookup = tuple[Address, socket.AddressFamily, bool]

_SERVER = re.compile(
    r"(?:(?:PLAINTEXT|SSL|SASL_PLAINTEXT|SASL_SSL)://)?(\[[0-9A-Fa-f:.%\w]+\]|[^:/\[\]]+)(?::(\d{1,5})(?:/.*)?)?",
    re.IGNORECASE,
)
"""As brokers' listeners and Testcontainers write it.  The protocol and a path change nothing."""

_PORT = 9092
"""The default port, as in librdkafka."""

_NO_ROUTE = (errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL, errno.ENETUNREACH, errno.EHOSTUNREACH)
"""Errors of an address that this machine does not reach.  Those of other addresses of the broker say more."""


def addresses(servers: str) -> list[Address]:
    """Return the addresses of ``bootstrap.servers``.  Everything that reads this property calls this.

    Raises
    ------
    PropertyError
        If there is none, or one of them is invalid.
    """
    found = []
    for server in servers.replace(",", " ").split():  # librdkafka also skips blanks and empty entries
        match = _SERVER.fullmatch(server)
        if match is None:
            before, colons, rest = server.partition("://")
            remedy = f"Remove {before}{colons}." if _SERVER.fullmatch(rest) else "Correct it."
            raise PropertyError("bootstrap.servers", f"{server!r} is not host:port.", remedy)
        port = int(match[2] or _PORT)
        if not 0 < port < 2**16:  # the C library would connect to the lower 16 bits
            raise PropertyError("bootstrap.servers", f"{server!r} has no port from 1 to 65535.", "Correct it.")
        found.append(Address(match[1].strip("[]"), port))
    if not found:
        raise PropertyError("bootstrap.servers", "it names no broker.", "Write host:port, separated by commas.")
    return found


def server_list(found: list[Address]) -> str:
    """Return addresses as ``bootstrap.servers``, in the form that every client accepts."""
    return ",".join(f"[{host}]:{port}" if ":" in host else f"{host}:{port}" for host, port in found)


def endpoints(
    address: Address,
    timeout_s: float,
    family: socket.AddressFamily = socket.AF_UNSPEC,
    *,
    canonical: bool = False,
) -> list[Endpoint]:
    """Return the endpoints of an address, in the order of preference.

    Parameters
    ----------
    address
        Host and port.
    timeout_s
        How long to wait, in seconds.
    family
        The kind of addresses.
    canonical
        Whether to return the names that belong to the addresses.

    Raises
    ------
    OSError
        If the name is unknown, or no answer comes in time.
    UnicodeError
        If this is not a host name.
    """
    key = address, family, canonical
    if _is_numeric(address.host) and not canonical:
        return _look_up(key)
    lock, lookups = _lookups(os.getpid())
    with lock:
        lookup = lookups.get(key)
        if lookup is None or lookup.done():  # a later caller gets a new answer
            lookup = lookups[key] = in_background(partial(_look_up, key), "kafka-group-names")
    try:
        return lookup.result(timeout_s)
    except TimeoutError:
        raise TimeoutError(f"the name {address.host!r} was not found within {timeout_s:.3g} s") from None


@lru_cache(maxsize=1)
def _lookups(_: int) -> tuple[threading.Lock, dict[Lookup, Future[list[Endpoint]]]]:
    """Return the last lookup of each name, and a lock for them."""
    # Deliberate: by process.  After a fork the lock may be held for ever, and nobody completes a lookup.
    return threading.Lock(), {}


def _look_up(key: Lookup) -> list[Endpoint]:
    address, wanted, canonical = key
    if "\0" in address.host:
        raise UnicodeError("a name ends before a zero byte")
    found = socket.getaddrinfo(address.host, address.port, wanted, socket.SOCK_STREAM)
    return [
        Endpoint(family, kind, protocol, where, _name_of(where, address.host) if canonical else address.host)
        for family, kind, protocol, _, where in found
    ]


def _name_of(where: Any, otherwise: str) -> str:
    try:
        return socket.getnameinfo(where, socket.NI_NAMEREQD)[0]
    except OSError:
        return otherwise


def _is_numeric(host: str) -> bool:
    try:
        ip_address(host)
    except ValueError:
        return False
    return True


def connected(found: list[Endpoint], timeout_s: float) -> tuple[socket.socket, str]:
    """Return a socket connected to the first endpoint that answers, and its host.

    The attempts begin one after another, each when the one before has failed or has had its share of the time.  All
    continue until the end: a name may have so many addresses that a share is less than a round trip.

    Raises
    ------
    OSError
        If no endpoint answers in time.
    """
    deadline, problems = Deadline.after(timeout_s), list[OSError]()
    waiting, running, poll = deque(found), dict[int, tuple[socket.socket, str]](), select.poll()
    try:
        while (waiting or running) and not deadline.passed:
            if waiting:
                endpoint = waiting.popleft()
                try:
                    begun = _begin(endpoint)
                except OSError as problem:
                    problems.append(problem)
                    continue
                running[begun.fileno()] = begun, endpoint.host
                poll.register(begun, select.POLLOUT)
            for number, _ in poll.poll(math.ceil(1000 * deadline.left_s / (len(waiting) + 1))):
                poll.unregister(number)
                made, host = running.pop(number)
                error = made.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
                if not error:
                    return made, host
                made.close()
                problems.append(OSError(error, os.strerror(error)))
        if running or waiting:  # mostly of an address that this machine reaches
            problems.insert(0, UnreachableError("timed out"))
    finally:
        for begun, _ in running.values():
            begun.close()
    telling = [problem for problem in problems if problem.errno not in _NO_ROUTE]
    raise (telling or problems)[0]


def _begin(endpoint: Endpoint) -> socket.socket:
    """Return a socket that begins to connect."""
    made = socket.socket(endpoint.family, endpoint.kind, endpoint.protocol)
    try:
        made.setblocking(False)
        with contextlib.suppress(BlockingIOError):
            made.connect(endpoint.where)
    except BaseException:
        made.close()
        raise
    return made
