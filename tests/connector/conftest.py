"""The socket of a source process, for the tests of several folders."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from pyspark_kafka_group.control.server import ControlSocket


@pytest.fixture
def listening() -> Iterator[Callable[..., ControlSocket]]:
    """Return a function that makes such a socket, which agrees to each stop.  All of them are closed after the test."""
    made: list[ControlSocket] = []

    def make(
        stop: Callable[[float], bool] = lambda _: True, finish: Callable[[Any], None] = lambda _: None, **more: Any
    ) -> ControlSocket:
        made.append(ControlSocket(stop, finish, **more))
        return made[-1]

    yield make
    for control in made:
        control.close()
