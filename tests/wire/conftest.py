"""Fixtures of all tests of connections."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from pyspark_kafka_group.wire.broker_connection import BrokerConnection


@pytest.fixture(autouse=True)
def _connections_are_closed(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Close all connections at the end of each test."""
    made: list[BrokerConnection] = []
    init = BrokerConnection.__init__

    def noted(self: BrokerConnection, *args: Any, **kwargs: Any) -> None:
        init(self, *args, **kwargs)
        made.append(self)

    monkeypatch.setattr(BrokerConnection, "__init__", noted)
    yield
    for connection in made:
        connection.close()
