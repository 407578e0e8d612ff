"""Host names looked up in bounded time.

`getaddrinfo` knows no timeout, and no signal ends it; a name server that does not answer holds it up for half a minute.
So it runs on a thread that can be left behind, one for each name at a time, however often the name is asked for.
"""

from __future__ import annotations

import socket
import threading
from concurrent.futures import Future
from ipaddress import ip_address
from typing import Any

from pyspark_kafka_group.wire.types import Address

Endpoint = tuple[int, int, int, Any]
"""Family, type and protocol of a socket, and what to connect it to."""

_lock = threading.Lock()  # guards what follows
_running: dict[Address, Future[list[Endpoint]]] = {}


def endpoints(address: Address, timeout_s: float) -> list[Endpoint]:
    """Where to connect to, in the order of preference.

    Raises
    ------
    OSError
        The name is not known, or no answer came in time.
    UnicodeError
        It is no host name.
    """
    if _is_numeric(address.host):
        return _look_up(address)
    with _lock:
        lookup = _running.get(address)
        if lookup is None:
            lookup = _running[address] = Future()
            # A daemon: it may be left behind, and must not keep the process alive.
            threading.Thread(target=_run, args=(address, lookup), name="kafka-group-names", daemon=True).start()
    try:
        return lookup.result(timeout_s)
    except TimeoutError:
        raise TimeoutError(f"the name {address.host!r} was not found within {timeout_s:.3g} s") from None


def _run(address: Address, lookup: Future[list[Endpoint]]) -> None:
    try:
        found = _look_up(address)
    except Exception as problem:  # goes to whoever waits for it
        outcome: list[Endpoint] | Exception = problem
    else:
        outcome = found
    with _lock:
        del _running[address]  # first, so that who asks from now on gets a new answer
    if isinstance(outcome, Exception):
        lookup.set_exception(outcome)
    else:
        lookup.set_result(outcome)


def _look_up(address: Address) -> list[Endpoint]:
    found = socket.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM)
    return [(family, kind, protocol, where) for family, kind, protocol, _, where in found]


def _is_numeric(host: str) -> bool:
    try:
        ip_address(host)
    except ValueError:
        return False
    return True
