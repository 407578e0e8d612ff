"""The word between the user's process and the source process."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from pyspark.sql.streaming.query import StreamingQuery

from pyspark_kafka_group.control import ControlSocket, stop


class FakeQuery:
    """What `stop` needs of a query: a last progress, and whether it was stopped."""

    def __init__(self, *latest_offsets: Any) -> None:
        sources = [{"latestOffset": latest} for latest in latest_offsets]
        self.lastProgress = SimpleNamespace(json=json.dumps({"sources": sources})) if sources else None
        self.isActive = True

    def stop(self) -> None:
        self.isActive = False


def stopped(query: FakeQuery, timeout_s: float = 5.0) -> bool:
    drained = stop(cast(StreamingQuery, query), timeout_s)
    assert not query.isActive, "whatever happens, the query is stopped"
    return drained


@pytest.fixture
def listening() -> Iterator[Callable[[Callable[[float], bool]], ControlSocket]]:
    made: list[ControlSocket] = []

    def make(drain: Callable[[float], bool]) -> ControlSocket:
        made.append(ControlSocket(drain))
        return made[-1]

    yield make
    for control in made:
        control.close()


def test_stop_drains_first_and_says_so(listening: Callable[..., ControlSocket]) -> None:
    budgets: list[float] = []

    def drain(timeout_s: float) -> bool:
        budgets.append(timeout_s)
        return True

    control = listening(drain)
    assert stopped(FakeQuery({"control": control.address}))
    assert 0 < budgets[0] <= 5.0


def test_the_progress_may_hold_the_report_as_text(listening: Callable[..., ControlSocket]) -> None:
    control = listening(lambda _: True)
    assert stopped(FakeQuery(json.dumps({"control": control.address})))


def test_every_source_of_the_query_is_drained(listening: Callable[..., ControlSocket]) -> None:
    drained: list[str] = []

    def drain(name: str, answer: bool) -> bool:
        drained.append(name)
        return answer

    first = listening(lambda _: drain("first", False))
    second = listening(lambda _: drain("second", True))
    assert not stopped(FakeQuery({"control": first.address}, None, 17, {"control": second.address}))
    assert drained == ["first", "second"]


def test_a_source_process_that_has_ended_is_not_waited_for(tmp_path: Path) -> None:
    assert not stopped(FakeQuery({"control": str(tmp_path / "gone")}))


def test_a_query_without_progress_is_stopped_in_the_end() -> None:
    assert not stopped(FakeQuery(), timeout_s=0.3)


def test_nonsense_does_not_end_the_socket(listening: Callable[..., ControlSocket]) -> None:
    control = listening(lambda _: True)
    for nonsense in (b"\n", b"{}\n", b"[1]\n", b"\xff\n"):
        with socket.socket(socket.AF_UNIX) as connection:
            connection.connect(control.address)
            connection.sendall(nonsense)
            connection.settimeout(5)
            connection.recv(100)
    assert stopped(FakeQuery({"control": control.address}))


def test_ctrl_c_while_waiting_still_stops_the_query(
    listening: Callable[..., ControlSocket], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A query whose member has left would idle for ever."""
    control = listening(lambda _: True)

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("pyspark_kafka_group.control._drain", interrupted)
    query = FakeQuery({"control": control.address})
    with pytest.raises(KeyboardInterrupt):
        stop(cast(StreamingQuery, query))
    assert not query.isActive


def test_an_endless_timeout_is_as_good_as_any(listening: Callable[..., ControlSocket]) -> None:
    assert stopped(FakeQuery({"control": listening(lambda _: True).address}), timeout_s=float("inf"))


def test_a_path_that_is_too_long_for_a_socket_leaves_no_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / ("x" * 120)
    folder.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(folder))
    with pytest.raises(OSError, match="too long"):
        ControlSocket(lambda _: True)
    assert not list(folder.iterdir())


def test_nobody_else_may_reach_the_socket_and_it_is_gone_after_closing() -> None:
    control = ControlSocket(lambda _: True)
    folder = Path(control.address).parent
    assert folder.stat().st_mode & 0o077 == 0
    control.close()
    assert not folder.exists()
