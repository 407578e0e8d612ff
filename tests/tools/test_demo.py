"""The records of `kafka-group demo`, with a client and a clock of the test."""

from __future__ import annotations

import itertools
import threading
from types import SimpleNamespace

import confluent_kafka
import pytest

from pyspark_kafka_group.tools import demo


def test_orders_continue_after_a_long_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    """Regression: after 17 minutes of Ctrl-Z the queue of the client was full, which ended the orders for ever."""
    now, steps, done = [0.0], iter((1.0, 1500.0, 1.0)), threading.Event()
    sent: list[int] = []

    class Client:
        def __init__(self, _: object) -> None:
            self.queue = itertools.count()

        def produce(self, *_: object, **__: object) -> None:
            if next(self.queue) == 100_000:
                raise BufferError

        def poll(self, _: float) -> None:
            sent.append(next(self.queue))
            self.queue = itertools.count()
            now[0] += next(steps, 0.0)
            if len(sent) == 4:
                done.set()

    monkeypatch.setattr(confluent_kafka, "Producer", Client)
    monkeypatch.setattr(demo, "time", SimpleNamespace(monotonic=lambda: now[0]))
    monkeypatch.setattr(demo, "_PRODUCE_EVERY_S", 0.001)
    with demo.orders_to("localhost:9092"):
        assert done.wait(10)
    assert sent[:4] == [0, 100, 0, 100]
