"""Free ports on the loopback interface."""

from __future__ import annotations

import random
import socket

HOST = "127.0.0.1"

# Below the range from which Linux (32768) and macOS (49152) take the ports of outgoing connections: a broker that
# was killed must find its port free again when it is restarted.
_LOWEST, _HIGHEST = 20_000, 32_767
# Not the shared generator: tests seed that one, and parallel runs would then ask for the same ports.
_random = random.SystemRandom()


def free_ports(count: int) -> list[int]:
    """Return different ports that are free now.  Another process may still take them."""
    ports: set[int] = set()
    while len(ports) < count:
        port = _random.randint(_LOWEST, _HIGHEST)
        with socket.socket() as probe:
            try:
                probe.bind((HOST, port))
            except OSError:
                continue
        ports.add(port)
    return sorted(ports)


def is_free(port: int) -> bool:
    """Tell whether a broker can listen on a port.  One whose connections have just been closed is free, too."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as Java's sockets that listen
        try:
            probe.bind((HOST, port))
            probe.listen()
        except OSError:
            return False
    return True
