"""Messages between the user's process and the source process."""

from __future__ import annotations

import errno
import json
import os
import queue
import shutil
import signal
import socket
import tempfile
import threading
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import MagicMock

import pytest
from pyspark.sql.streaming.query import StreamingQuery

from pyspark_kafka_group.control.client import ask_for_batch, ask_for_report, tell_finished
from pyspark_kafka_group.control.messages import Source, ranges_from_json, ranges_to_json, sources_of
from pyspark_kafka_group.control.names import PREFIX, SOCKET, publish, resolve
from pyspark_kafka_group.control.relay_reader import Relay, RelayReader
from pyspark_kafka_group.control.server import ControlSocket
from pyspark_kafka_group.offsets.batch_offset import INITIAL
from pyspark_kafka_group.offsets.errors import OptionError
from pyspark_kafka_group.offsets.read_range import ReadRange
from pyspark_kafka_group.offsets.types import Offset, TopicPartition
from pyspark_kafka_group.session.stopping import stop
from pyspark_kafka_group.source import KafkaGroupDataSource

Listening = Callable[..., ControlSocket]


class FakeQuery:
    """The parts of a query that `stop` needs: a last progress, and whether the query was stopped."""

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


def test_stop_drains_first_and_says_so(listening: Listening) -> None:
    drain = MagicMock(return_value=True)
    control = listening(drain)
    assert stopped(FakeQuery({"control": control.address}))
    ((budget_s,),) = [call.args for call in drain.call_args_list]
    assert 0 < budget_s <= 5.0


def test_every_source_of_the_query_is_drained(listening: Listening) -> None:
    drains = [MagicMock(return_value=False), MagicMock(return_value=True)]
    first, second = map(listening, drains)
    report_as_text = json.dumps({"control": second.address})
    assert not stopped(FakeQuery({"control": first.address}, None, 17, report_as_text))
    assert [drain.call_count for drain in drains] == [1, 1]


def test_a_source_process_that_has_ended_is_not_waited_for(tmp_path: Path) -> None:
    assert not stopped(FakeQuery({"control": str(tmp_path / "gone")}))
    tell_finished(Source(address=str(tmp_path / "gone"), end={"version": 2}))


def test_a_query_without_progress_is_stopped_in_the_end() -> None:
    assert not stopped(FakeQuery(), timeout_s=0.3)


def test_a_stop_in_the_first_batch_reaches_the_source_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Regression: without a progress the source was asked only after that batch, and had planned another one."""
    ask = MagicMock(return_value=True)
    ends = [{"version": 2, "query": "id-1", "topics": {}}, None, {"version": 2, "query": "id-1", "topics": {}}]
    monkeypatch.setattr("pyspark_kafka_group.session.stopping.planned_ends", lambda _: ends)
    monkeypatch.setattr("pyspark_kafka_group.session.stopping.ask_to_stop", ask)
    assert stopped(FakeQuery())
    assert [call.args[0] for call in ask.call_args_list] == ["id-1"]


def test_an_answer_that_does_not_come_does_not_delay_the_stop(monkeypatch: pytest.MonkeyPatch) -> None:
    """Regression: through Spark Connect the answer waits for a free task slot, and so the stop had no limit."""
    released = threading.Event()
    monkeypatch.setattr("pyspark_kafka_group.session.stopping._ANSWER_S", 0.1)
    monkeypatch.setattr("pyspark_kafka_group.session.stopping.ask_to_stop", lambda *_: released.wait(60))
    begin = time.monotonic()
    assert not stopped(FakeQuery({"control": "somewhere"}), timeout_s=0.1)
    assert time.monotonic() - begin < 30
    released.set()


def test_a_query_of_other_sources_is_stopped_at_once() -> None:
    """Regression: run_until_signal waited for its whole timeout, and then warned of records that are repeated."""
    query = FakeQuery()
    sources = [
        {"endOffset": 5, "latestOffset": None},
        {"endOffset": '{"query": {"0": 5}}', "latestOffset": None},
        {"endOffset": None, "latestOffset": None},  # files of an empty folder
    ]
    query.lastProgress = SimpleNamespace(json=json.dumps({"sources": sources}))
    begin = time.monotonic()
    assert stopped(query, timeout_s=60)
    assert time.monotonic() - begin < 30
    sources.append({"endOffset": json.dumps(INITIAL.to_json()), "latestOffset": None})
    query = FakeQuery()
    query.lastProgress = SimpleNamespace(json=json.dumps({"sources": sources}))
    assert not stopped(query, timeout_s=0.3), "the source has not planned a batch yet"


def test_nonsense_does_not_end_the_socket(listening: Listening) -> None:
    control = listening()
    for nonsense in (b"\n", b"{}\n", b"[1]\n", b"\xff\n"):
        with socket.socket(socket.AF_UNIX) as connection:
            connection.connect(control.address)
            connection.sendall(nonsense)
            connection.settimeout(5)
            connection.recv(100)
    assert stopped(FakeQuery({"control": control.address}))


def test_ctrl_c_while_waiting_still_stops_the_query(listening: Listening, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise a query whose member has left would idle for ever."""
    monkeypatch.setattr("pyspark_kafka_group.session.stopping.ask_to_stop", MagicMock(side_effect=KeyboardInterrupt))
    query = FakeQuery({"control": listening().address})
    with pytest.raises(KeyboardInterrupt):
        stop(cast(StreamingQuery, query), 60)
    assert not query.isActive


def test_an_endless_timeout_is_as_good_as_any(listening: Listening) -> None:
    assert stopped(FakeQuery({"control": listening().address}), timeout_s=float("inf"))


def test_a_path_that_is_too_long_for_a_socket_leaves_no_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / ("x" * 120)
    folder.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(folder))
    with pytest.raises(OSError, match="too long"):
        ControlSocket(MagicMock(), MagicMock())
    assert not list(folder.iterdir())


def test_nobody_else_may_reach_the_socket_and_it_is_gone_after_closing(listening: Listening) -> None:
    control = listening()
    folder = Path(control.address).parent
    assert folder.stat().st_mode & 0o077 == 0
    control.close()
    assert not folder.exists()


def test_an_end_is_told_while_a_drain_waits_for_it(listening: Listening) -> None:
    """`stop` itself reports the last finished batch, because with a long trigger Spark does so too late."""
    finished = threading.Event()
    control = listening(finished.wait, lambda _: finished.set())
    assert stopped(FakeQuery({"control": control.address}, end={"version": 2}), timeout_s=30)


def test_an_end_is_told_and_a_refused_one_does_not_end_the_socket(listening: Listening) -> None:
    told: queue.Queue[Any] = queue.Queue()

    def refuse(end: Any) -> None:
        told.put(end)
        raise ValueError("not an offset")

    control = listening(finish=refuse)
    for end in ({"n": 1}, {"n": 2}):
        tell_finished(Source(address=control.address, end=end))
        assert told.get(timeout=10) == end


def test_a_socket_that_nobody_serves_does_not_hold_the_teller_up(tmp_path: Path) -> None:
    """Otherwise Spark's listener would hold up all other listeners."""
    with socket.socket(socket.AF_UNIX) as deaf:
        deaf.bind(str(tmp_path / "deaf"))
        deaf.listen(0)
        source = Source(address=str(tmp_path / "deaf"), end={"version": 2, "filler": "x" * 10_000_000})
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
            {"endOffset": shown({"version": 2}), "latestOffset": shown({"control": "/tmp/a"})},
            {"endOffset": None, "latestOffset": shown({"control": "/tmp/b"})},
            {"endOffset": shown({"topic": {"0": 3}}), "latestOffset": shown({"topic": {"0": 3}})},
            {"endOffset": shown({"version": 2}), "latestOffset": shown({"control": None})},
            {"endOffset": "rubbish", "latestOffset": None},
            {"endOffset": shown({"query": "a", "topics": {}}), "latestOffset": None},
            # Spark 4.0 and 4.1 show the end in both fields.
            {"endOffset": shown({"query": "b", "topics": {}}), "latestOffset": shown({"query": "b", "topics": {}})},
        ]
    }
    assert sources_of(json.dumps(progress)) == [
        Source(address="/tmp/a", end={"version": 2}),
        Source(address="/tmp/b", end=None),
        Source(address="a", end={"query": "a", "topics": {}}),
        Source(address="b", end={"query": "b", "topics": {}}),
    ]


def test_a_batch_that_ran_again_is_enough_to_find_the_source(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, listening: Listening
) -> None:
    """Its progress has no `latestOffset`.

    Regression: a stop waited for the next progress, for 10 s on an idle topic.
    """
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    name = str(uuid.uuid4())
    end = {"version": 2, "query": name, "topics": {}}
    killed = listening(lambda _: False, query_id=str(uuid.uuid4()))
    shutil.rmtree(Path(killed.address).parent)
    earlier, control = listening(lambda _: False, query_id=name), listening(query_id=name)
    earlier.close()
    assert stopped(FakeQuery(None, end=end))
    (links,) = tmp_path.glob("kafka-group-queries-*")
    assert [link.name for link in links.iterdir()] == [name], "what a killed process has left is gone"
    assert links.stat().st_mode & 0o077 == 0
    control.close()
    killed.close()
    assert not list(links.iterdir())
    assert not stopped(FakeQuery(None, end=end), timeout_s=0.3)


def test_a_folder_of_somebody_else_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, listening: Listening
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (tmp_path / f"kafka-group-queries-{os.getuid()}").symlink_to(elsewhere)
    listening(query_id=str(uuid.uuid4())).close()
    assert not list(elsewhere.iterdir())


class FakeSession:
    """A session of Spark Connect: the server plans the read on the driver's machine, and returns the only row."""

    def __init__(self) -> None:
        self.session_id = str(uuid.uuid4())
        self.registered: list[str] = []
        self.dataSource = SimpleNamespace(register=lambda source: self.registered.append(source.name()))
        self.read = self

    def format(self, name: str) -> FakeSession:
        assert name in self.registered
        return self

    def option(self, key: str, value: str) -> FakeSession:
        self.source = Relay({key: value})
        return self

    def load(self) -> FakeSession:
        return self

    def collect(self) -> list[dict[str, str]]:
        schema = self.source.schema()
        reader = self.source.reader(schema)
        (partition,) = reader.partitions()
        names = [field.name for field in schema]
        return [dict(zip(names, row, strict=True)) for row in cast(Any, reader).read(partition)]


def test_a_client_of_spark_connect_asks_through_spark(listening: Listening) -> None:
    control = listening()

    class RemoteQuery(FakeQuery):
        _session = FakeSession()

    RemoteQuery.__module__ = "pyspark.sql.connect.streaming.query"
    assert stopped(RemoteQuery({"control": control.address}))
    assert not stopped(RemoteQuery({"control": "/nobody/there"}))
    assert RemoteQuery._session.registered == ["kafka-group-control"], "once for a session"


@pytest.mark.parametrize("option", ["controlRequest", "request"])
def test_sql_does_not_reach_a_source(listening: Listening, option: str) -> None:
    """Regression: a view with the public id of a query stopped it, and reported batches as finished that were not."""
    stop = MagicMock(return_value=True)
    address = listening(stop).address
    request = json.dumps({"address": address, "message": {"command": "stop", "timeout_s": 1}, "patience_s": 1})
    source = KafkaGroupDataSource({option: request})
    with pytest.raises(OptionError, match="is not an option of this source"):
        source.schema()
    with pytest.raises(OptionError, match="is not an option of this source"):
        source.reader(Relay({}).schema()).partitions()
    stop.assert_not_called()


@pytest.mark.parametrize(
    ("request_text", "problem"),
    [
        ("stop", "not a request of a client"),
        ("[]", "not a request of a client"),
        ("{}", "not a request of a client"),
        ('{"address": "/tmp/kafka-group-x/control", "message": {}, "patience_s": "soon"}', "not a request of a client"),
        (
            '{"address": "/tmp/kafka-group-x/control", "message": {}, "patience_s": Infinity}',
            "not a request to a source",
        ),
        ('{"address": "/tmp/kafka-group-x/control", "message": {}, "patience_s": NaN}', "not a request to a source"),
        ('{"address": "/tmp/kafka-group-x/control", "message": "GET /", "patience_s": 1}', "not a request to a source"),
        ('{"address": "/var/run/docker.sock", "message": {}, "patience_s": 1}', "not a request to a source"),
        ('{"address": "/var/run/control", "message": {}, "patience_s": 1}', "not a request to a source"),
        ('{"address": "kafka-group-x/control", "message": {}, "patience_s": 1}', "not a request to a source"),
        ('{"address": "/tmp/kafka-group-x/../kafka-group-/control", "message": {}, "patience_s": 1}', "to a source"),
    ],
)
def test_nothing_else_is_passed_on_and_a_sentence_says_so(request_text: str, problem: str) -> None:
    """The driver's machine has other sockets, and a user of Spark may have no right to use them."""
    with pytest.raises(ValueError, match=problem):
        RelayReader(request_text)


def test_a_link_that_a_cleaner_has_removed_is_back_with_the_next_batch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, listening: Listening
) -> None:
    """Regression: after some quiet days, the tables of `foreachBatch` no longer found the source."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    name = str(uuid.uuid4())
    control = listening(report=lambda: {"lag": 3}, query_id=name)
    (tmp_path / f"kafka-group-queries-{os.getuid()}" / name).unlink()
    assert ask_for_report(name) is None
    for _ in range(2):
        control.keep_address()
        assert ask_for_report(name) == {"lag": 3}


def test_the_socket_and_the_link_of_a_killed_process_are_removed(listening: Listening) -> None:
    """Regression: each killed run left a folder and a link in /tmp, because its socket file still exists."""
    dead = Path(tempfile.mkdtemp(prefix=PREFIX)) / SOCKET
    with socket.socket(socket.AF_UNIX) as killed:
        killed.bind(str(dead))
    old, running, new = (str(uuid.uuid4()) for _ in range(3))
    publish(old, str(dead))
    alive, _ = listening(query_id=running), listening(query_id=new)
    assert not dead.parent.exists()
    with pytest.raises(FileNotFoundError):
        resolve(old)
    assert resolve(running) == alive.address
    assert Path(alive.address).exists()


def test_what_somebody_else_has_linked_to_a_query_is_not_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, listening: Listening
) -> None:
    """The socket of another user could claim that the query has stopped."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    name = str(uuid.uuid4())
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / name).symlink_to(listening().address)
    (tmp_path / f"kafka-group-queries-{os.getuid()}").symlink_to(elsewhere)
    assert not stopped(FakeQuery(None, end={"version": 2, "query": name, "topics": {}}), timeout_s=0.3)


def test_a_server_that_does_not_pass_it_on_is_told(caplog: pytest.LogCaptureFixture) -> None:
    class RemoteQuery(FakeQuery):
        _session = None

    RemoteQuery.__module__ = "pyspark.sql.connect.streaming.query"
    assert not stopped(RemoteQuery({"control": "/tmp/a"}))
    assert "Spark Connect's server does not reach the source" in caplog.text


def test_a_source_reports_when_it_is_asked(listening: Listening) -> None:
    report: dict[str, Any] | None = {"group": "etl", "totalLag": 3}
    control = listening(report=lambda: report)
    assert ask_for_report(control.address) == {"group": "etl", "totalLag": 3}
    report = None
    assert ask_for_report(control.address) is None
    control.close()
    assert ask_for_report(control.address) is None, "it has ended"


def test_a_source_says_what_its_batch_reads(listening: Listening) -> None:
    read = {TopicPartition("a", 0): ReadRange(Offset(5), Offset(9), Offset(5), True, "id", "etl")}
    control = listening(batch=lambda end: ranges_to_json(read) if end == {"n": 1} else None)
    found = ask_for_batch(control.address, {"n": 1})
    assert found is not None
    assert ranges_from_json(found) == read
    assert ask_for_batch(control.address, {"n": 2}) is None
    control.close()
    assert ask_for_batch(control.address, {"n": 1}) is None, "it has ended"


def test_a_report_that_fails_is_no_report(listening: Listening) -> None:
    assert ask_for_report(listening(report=MagicMock(side_effect=RuntimeError("a bug"))).address) is None


def test_all_sources_of_a_query_are_asked_at_once(listening: Listening) -> None:
    """Regression: the second source planned one more batch while `stop` waited for the first one."""
    both = threading.Barrier(2, timeout=10)

    def drain(_: float) -> bool:
        both.wait()
        return True

    controls = [listening(drain), listening(drain)]
    assert stopped(FakeQuery(*({"control": control.address} for control in controls)))


def test_the_socket_survives_a_shortage_of_files(monkeypatch: pytest.MonkeyPatch, listening: Listening) -> None:
    """Regression: after one failed accept, `stop` and the listener waited for answers that never came."""
    accept, failures = socket.socket.accept, [OSError(errno.EMFILE, "too many open files")] * 2

    def failing(self: socket.socket) -> Any:
        if failures:
            raise failures.pop()
        return accept(self)

    monkeypatch.setattr(socket.socket, "accept", failing)
    assert ask_for_report(listening(report=lambda: {"lag": 3}).address) == {"lag": 3}
    assert not failures


def test_ctrl_c_does_not_wait_for_a_source(listening: Listening) -> None:
    """Regression: the program waited for the threads that asked the sources, for the whole timeout."""
    released = threading.Event()
    control = listening(lambda _: released.wait(60))
    before = {*threading.enumerate()}
    interrupt = threading.Timer(0.5, os.kill, [os.getpid(), signal.SIGINT])
    interrupt.start()
    begun = time.monotonic()
    try:
        with pytest.raises(KeyboardInterrupt):
            stopped(FakeQuery({"control": control.address}), timeout_s=60)
        assert time.monotonic() - begun < 30
        left = {*threading.enumerate()} - before - {interrupt}
        assert [thread.name for thread in left if not thread.daemon] == []
    finally:
        released.set()
