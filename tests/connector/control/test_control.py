"""The word between the user's process and the source process."""

from __future__ import annotations

import json
import queue
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from pyspark.sql.streaming.query import StreamingQuery

from pyspark_kafka_group.control.client import ask_for_report, tell_finished
from pyspark_kafka_group.control.messages import Source, sources_of
from pyspark_kafka_group.control.server import ControlSocket
from pyspark_kafka_group.session.stopping import stop


class FakeQuery:
    """What `stop` needs of a query: a last progress, and whether it was stopped."""

    def __init__(self, *latest_offsets: Any, end: Any = None) -> None:
        sources = [{"latestOffset": latest, "endOffset": end} for latest in latest_offsets]
        self.lastProgress = SimpleNamespace(json=json.dumps({"sources": sources})) if sources else None
        self.isActive = True

    def stop(self) -> None:
        self.isActive = False


def stopped(query: FakeQuery, timeout_s: float = 5.0) -> bool:
    drained = stop(cast(StreamingQuery, query), timeout_s)
    assert not query.isActive, "whatever happens, the query is stopped"
    return drained


@pytest.fixture
def listening() -> Iterator[Callable[..., ControlSocket]]:
    made: list[ControlSocket] = []

    def make(drain: Callable[[float], bool], finish: Callable[[Any], None] = lambda _: None) -> ControlSocket:
        made.append(ControlSocket(drain, finish))
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

    monkeypatch.setattr("pyspark_kafka_group.session.stopping.ask_to_stop", interrupted)
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
        ControlSocket(lambda _: True, lambda _: None)
    assert not list(folder.iterdir())


def test_nobody_else_may_reach_the_socket_and_it_is_gone_after_closing() -> None:
    control = ControlSocket(lambda _: True, lambda _: None)
    folder = Path(control.address).parent
    assert folder.stat().st_mode & 0o077 == 0
    control.close()
    assert not folder.exists()


def test_an_end_is_told(listening: Callable[..., ControlSocket]) -> None:
    told: queue.Queue[Any] = queue.Queue()
    control = listening(lambda _: True, told.put)
    tell_finished(Source(address=control.address, end={"version": 1}))
    assert told.get(timeout=10) == {"version": 1}


def test_an_end_is_told_while_a_drain_waits_for_it(listening: Callable[..., ControlSocket]) -> None:
    """`stop` of a query with a long trigger, and a batch that has just been finished."""
    finished = threading.Event()
    control = listening(finished.wait, lambda _: finished.set())
    assert stopped(FakeQuery({"control": control.address}, end={"version": 1}), timeout_s=30)


def test_a_refused_end_does_not_end_the_socket(listening: Callable[..., ControlSocket]) -> None:
    told: queue.Queue[Any] = queue.Queue()

    def refuse(end: Any) -> None:
        told.put(end)
        raise ValueError("not an offset")

    control = listening(lambda _: True, refuse)
    for end in ({"n": 1}, {"n": 2}):
        tell_finished(Source(address=control.address, end=end))
        assert told.get(timeout=10) == end


def test_telling_a_source_process_that_has_ended_is_harmless(tmp_path: Path) -> None:
    tell_finished(Source(address=str(tmp_path / "gone"), end={"version": 1}))


def test_a_socket_that_nobody_serves_does_not_hold_the_teller_up(tmp_path: Path) -> None:
    """The listener of Spark would hold all other listeners up."""
    with socket.socket(socket.AF_UNIX) as deaf:
        deaf.bind(str(tmp_path / "deaf"))
        deaf.listen(0)
        source = Source(address=str(tmp_path / "deaf"), end={"version": 1, "filler": "x" * 10_000_000})
        telling = threading.Thread(target=tell_finished, args=(source,), daemon=True)
        telling.start()
        telling.join(30)
        assert not telling.is_alive()


@pytest.mark.parametrize("as_text", [False, True])
def test_our_sources_are_found_with_their_ends_among_others(as_text: bool) -> None:
    def shown(value: Any) -> Any:
        return json.dumps(value) if as_text else value

    progress = {
        "sources": [
            {"endOffset": shown(7), "latestOffset": shown(9)},
            {"endOffset": shown({"version": 1}), "latestOffset": shown({"control": "/tmp/a"})},
            {"endOffset": None, "latestOffset": shown({"control": "/tmp/b"})},
            {"endOffset": shown({"topic": {"0": 3}}), "latestOffset": shown({"topic": {"0": 3}})},
            {"endOffset": shown({"version": 1}), "latestOffset": shown({"control": None})},
            {"endOffset": "rubbish", "latestOffset": None},
        ]
    }
    assert sources_of(json.dumps(progress)) == [
        Source(address="/tmp/a", end={"version": 1}),
        Source(address="/tmp/b", end=None),
    ]


def test_a_source_reports_when_it_is_asked() -> None:
    report: dict[str, Any] | None = {"group": "etl", "totalLag": 3}
    control = ControlSocket(lambda _: True, lambda _: None, lambda: report)
    try:
        assert ask_for_report(control.address) == {"group": "etl", "totalLag": 3}
        report = None
        assert ask_for_report(control.address) is None
    finally:
        control.close()
    assert ask_for_report(control.address) is None, "it has ended"


def test_a_report_that_fails_is_no_report() -> None:
    def broken() -> dict[str, Any]:
        raise RuntimeError("a bug")

    control = ControlSocket(lambda _: True, lambda _: None, broken)
    try:
        assert ask_for_report(control.address) is None
    finally:
        control.close()
