"""The fault proxy in front of a server that echoes its input."""

import queue
import socket
import socketserver
import threading
import time
from collections.abc import Iterator

import pytest

from pyspark_kafka_group.testing import FaultProxy, KafkaTestingError
from pyspark_kafka_group.testing import proxy as proxy_module

TIMEOUT_S = 10.0
# The time that a loaded machine may add to a delay.
SLACK_S = 2.0


class Echo(socketserver.BaseRequestHandler):
    def handle(self) -> None:
        while data := self.request.recv(65536):
            self.request.sendall(data)


class EchoServer(socketserver.ThreadingTCPServer):
    daemon_threads = True
    allow_reuse_address = True

    def handle_error(self, request: object, client_address: object) -> None:
        """Print nothing, because these tests cut connections on purpose."""


@pytest.fixture
def server() -> Iterator[EchoServer]:
    with EchoServer(("127.0.0.1", 0), Echo) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        yield server
        server.shutdown()


@pytest.fixture
def proxy(server: EchoServer) -> Iterator[FaultProxy]:
    with FaultProxy(f"127.0.0.1:{server.server_address[1]}") as proxy:
        yield proxy


def connect(proxy: FaultProxy) -> socket.socket:
    return socket.create_connection(("127.0.0.1", proxy.port), timeout=TIMEOUT_S)


def receive(client: socket.socket, count: int) -> bytes:
    data = b""
    while len(data) < count:
        chunk = client.recv(65536)
        assert chunk, f"the connection ended after {len(data)} of {count} bytes"
        data += chunk
    return data


def round_trip_s(client: socket.socket, data: bytes = b"ping") -> float:
    start = time.monotonic()
    client.sendall(data)
    assert receive(client, len(data)) == data
    return time.monotonic() - start


def test_without_faults_bytes_pass_unchanged_and_so_does_an_orderly_end(proxy: FaultProxy) -> None:
    assert proxy.address == f"127.0.0.1:{proxy.port}"
    with connect(proxy) as client:
        data = bytes(range(256)) * 4096
        sender = threading.Thread(target=client.sendall, args=(data,))
        sender.start()
        assert receive(client, len(data)) == data
        sender.join()
        client.shutdown(socket.SHUT_WR)
        assert client.recv(1) == b""


def test_delay_holds_data_back_in_each_direction(proxy: FaultProxy) -> None:
    with connect(proxy) as client:
        round_trip_s(client)
        proxy.delay(0.15)
        assert 0.3 <= round_trip_s(client) < 0.3 + SLACK_S


def test_delay_does_not_narrow_the_bandwidth(proxy: FaultProxy) -> None:
    proxy.delay(0.1)
    with connect(proxy) as client:
        start = time.monotonic()
        for _ in range(20):
            client.sendall(b"x" * 1000)
            time.sleep(0.01)  # deliberate: separate chunks, which must not wait for each other
        receive(client, 20_000)
        assert time.monotonic() - start < 20 * 0.1


def test_bandwidth_is_limited_and_shared_by_all_connections(proxy: FaultProxy) -> None:
    with connect(proxy) as first, connect(proxy) as second:
        proxy.bytes_per_second(100_000)
        assert 0.3 <= round_trip_s(first, b"x" * 30_000) < 0.6 + SLACK_S
        start = time.monotonic()
        first.sendall(b"x" * 20_000)
        second.sendall(b"x" * 20_000)
        receive(first, 20_000)
        receive(second, 20_000)
        assert time.monotonic() - start >= 0.4


def test_cut_resets_connections_and_lets_clients_come_back(proxy: FaultProxy) -> None:
    with connect(proxy) as client:
        round_trip_s(client)
        proxy.cut()
        with pytest.raises(ConnectionResetError):
            client.recv(1)
    with connect(proxy) as again:
        round_trip_s(again)


def test_a_blackhole_answers_nothing_and_heals_without_loss(proxy: FaultProxy) -> None:
    with connect(proxy) as client:
        proxy.blackhole()
        with connect(proxy) as later:
            for one in (client, later):
                one.sendall(b"ping")
            client.settimeout(0.2)
            with pytest.raises(TimeoutError):
                client.recv(1)
            proxy.heal()
            client.settimeout(TIMEOUT_S)
            assert receive(client, 4) == receive(later, 4) == b"ping"


def test_refuse_turns_new_connections_away_and_leaves_old_ones(proxy: FaultProxy) -> None:
    with connect(proxy) as client:
        round_trip_s(client)
        proxy.refuse()
        with pytest.raises(ConnectionRefusedError):
            connect(proxy)
        round_trip_s(client)
        proxy.heal()
        with connect(proxy) as again:
            round_trip_s(again)


def test_heal_ends_delay_and_bandwidth_limit(proxy: FaultProxy) -> None:
    with connect(proxy) as client:
        proxy.delay(5.0)
        proxy.bytes_per_second(1.0)
        proxy.heal()
        assert round_trip_s(client, b"x" * 10_000) < 5.0


def test_a_dead_server_looks_like_a_reset_connection(server: EchoServer, proxy: FaultProxy) -> None:
    server.shutdown()
    server.server_close()
    # The block includes connect(): on a busy machine the reset arrives before connect() has returned.
    with pytest.raises(ConnectionResetError), connect(proxy) as client:
        client.recv(1)


def test_stop_resets_connections_and_frees_the_port(server: EchoServer) -> None:
    proxy = FaultProxy(f"127.0.0.1:{server.server_address[1]}").start()
    client = connect(proxy)
    round_trip_s(client)
    port = proxy.port
    proxy.stop()
    with client, pytest.raises(ConnectionResetError):
        client.recv(1)
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port), timeout=TIMEOUT_S)
    assert "fault-proxy" not in {thread.name for thread in threading.enumerate()}


def test_a_proxy_that_is_not_started_says_so() -> None:
    proxy = FaultProxy("127.0.0.1:1")
    with pytest.raises(KafkaTestingError, match="FaultProxy is not started: use it in a with statement, or call start"):
        proxy.cut()
    proxy.stop()


def test_a_bandwidth_of_nothing_is_refused(proxy: FaultProxy) -> None:
    with pytest.raises(ValueError, match=r"limit=0: use blackhole\(\)"):
        proxy.bytes_per_second(0)


def request(api_key: int, content: bytes) -> bytes:
    """Return a request of Kafka's protocol: size, API key, and the rest."""
    body = api_key.to_bytes(2, "big") + content
    return len(body).to_bytes(4, "big") + body


def test_held_request_waits_and_all_others_pass(proxy: FaultProxy) -> None:
    held = proxy.hold(28)
    with connect(proxy) as client, connect(proxy) as other:
        before, after = request(3, b"a" * 100_000), request(28, b"held") + request(3, b"behind")
        client.sendall(before + after)
        assert receive(client, len(before)) == before
        assert held.wait(TIMEOUT_S)
        other.sendall(request(28, b"the next one"))
        assert receive(other, 16)
        client.settimeout(0.2)
        with pytest.raises(TimeoutError):
            client.recv(1)
        client.settimeout(TIMEOUT_S)
        held.release()
        held.release()
        assert receive(client, len(after)) == after


def test_request_is_found_in_whatever_pieces_it_comes(proxy: FaultProxy) -> None:
    held = proxy.hold(28)
    with connect(proxy) as client:
        data = request(3, b"before") + request(28, b"held")
        for byte in data:
            client.sendall(bytes([byte]))
            time.sleep(0.002)
        assert held.wait(TIMEOUT_S)
        proxy.heal()
        assert receive(client, len(data)) == data


@pytest.mark.parametrize("by_client", [True, False])
def test_held_request_arrives_after_its_client_has_gone(
    proxy: FaultProxy, server: EchoServer, monkeypatch: pytest.MonkeyPatch, by_client: bool
) -> None:
    arrived: queue.SimpleQueue[bytes] = queue.SimpleQueue()

    def handle(self: Echo) -> None:
        while data := self.request.recv(65536):
            arrived.put(data)

    monkeypatch.setattr(Echo, "handle", handle)
    held = proxy.hold(28)
    with connect(proxy) as client:
        client.sendall(request(28, b"held"))
        assert held.wait(TIMEOUT_S)
        if not by_client:
            held.disconnect()
            assert client.recv(1) == b""
    held.release()
    assert arrived.get(timeout=TIMEOUT_S) == request(28, b"held")


def test_what_is_not_kafkas_protocol_passes_by_a_hold(proxy: FaultProxy) -> None:
    held = proxy.hold(28)
    with connect(proxy) as client:
        assert round_trip_s(client) < SLACK_S
    assert not held.wait(0)


def test_a_proxy_that_could_not_listen_is_not_started(server: EchoServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """Regression: the second start() returned, with the port of another program, and the thread stayed."""
    taken: int = server.server_address[1]
    proxy = FaultProxy(f"127.0.0.1:{taken}")
    with monkeypatch.context() as patch:
        patch.setattr(proxy_module, "free_ports", lambda _: [taken])
        for _ in range(2):
            with pytest.raises(KafkaTestingError, match=f"port {taken} is in use on 127.0.0.1: choose another one"):
                proxy.start()
            with pytest.raises(KafkaTestingError, match="FaultProxy is not started"):
                proxy.port  # noqa: B018
    assert "fault-proxy" not in [thread.name for thread in threading.enumerate()]
    with proxy, connect(proxy) as client:
        round_trip_s(client)
