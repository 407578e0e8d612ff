"""The listener in the user's process."""

from __future__ import annotations

import json
import queue
import uuid
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.streaming.listener import QueryProgressEvent, QueryTerminatedEvent, StreamingQueryListener

from pyspark_kafka_group.control.server import ControlSocket
from pyspark_kafka_group.session.listener import FinishedBatchListener, RelayedFinishedBatchListener, listen


def progress(*sources: Any) -> QueryProgressEvent:
    return cast(QueryProgressEvent, SimpleNamespace(progress=SimpleNamespace(json=json.dumps({"sources": sources}))))


def session(name: str) -> tuple[SparkSession, list[StreamingQueryListener]]:
    added: list[StreamingQueryListener] = []
    fake = SimpleNamespace(
        _jsparkSession=SimpleNamespace(sessionUUID=lambda: name), streams=SimpleNamespace(addListener=added.append)
    )
    return cast(SparkSession, fake), added


def test_every_source_is_told_what_is_finished(listening: Callable[..., ControlSocket]) -> None:
    told: queue.Queue[Any] = queue.Queue()
    first = listening(finish=lambda end: told.put(("first", end)))
    second = listening(finish=lambda end: told.put(("second", end)))
    FinishedBatchListener().onQueryProgress(
        progress(
            {"endOffset": {"n": 1}, "latestOffset": {"control": first.address}},
            {"endOffset": 17, "latestOffset": 18},
            {"endOffset": {"n": 2}, "latestOffset": {"control": second.address}},
        )
    )
    assert {str(told.get(timeout=10)) for _ in range(2)} == {"('first', {'n': 1})", "('second', {'n': 2})"}


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"sources": 7}', '{"sources": [7]}'])
def test_nothing_is_raised_into_spark(text: str) -> None:
    event = SimpleNamespace(progress=SimpleNamespace(json=text))
    FinishedBatchListener().onQueryProgress(cast(QueryProgressEvent, event))


def test_a_session_gets_one_listener_however_often_it_is_registered() -> None:
    name = str(uuid.uuid4())
    one, added = session(name)
    listen(one)
    listen(one)
    the_same, added_again = session(name)
    listen(the_same)
    another, added_elsewhere = session(str(uuid.uuid4()))
    listen(another)
    assert [len(added), len(added_again), len(added_elsewhere)] == [1, 0, 1]


def test_a_remote_listener_speaks_when_no_other_batch_follows() -> None:
    """For Spark Connect, each message is a Spark job.  So the listener sends none while more batches follow."""
    told: queue.Queue[Any] = queue.Queue()

    def ask(address: str, message: dict[str, Any], _patience_s: float) -> dict[str, Any]:
        told.put((address, message["end"]["n"]))
        return {}

    def event(run: str, n: int) -> QueryProgressEvent:
        sources = [{"endOffset": {"n": n}, "latestOffset": {"control": run}}]
        seen = SimpleNamespace(json=json.dumps({"runId": run, "sources": sources}))
        return cast(QueryProgressEvent, SimpleNamespace(progress=seen))

    listener = RelayedFinishedBatchListener(ask, pause_s=0.2)
    for n in range(3):
        listener.onQueryProgress(event("one", n))
    listener.onQueryProgress(event("ended", 7))
    listener.onQueryTerminated(cast(QueryTerminatedEvent, SimpleNamespace(runId="ended")))
    assert told.get(timeout=10) == ("one", 2)
    with pytest.raises(queue.Empty):
        told.get(timeout=0.5)


def test_a_session_of_spark_connect_gets_the_listener_that_goes_through_it() -> None:
    added: list[StreamingQueryListener] = []

    class Session:
        session_id = str(uuid.uuid4())
        streams = SimpleNamespace(addListener=added.append)

    Session.__module__ = "pyspark.sql.connect.session"
    listen(cast(SparkSession, Session()))
    listen(cast(SparkSession, Session()))
    assert [type(one) for one in added] == [RelayedFinishedBatchListener]
