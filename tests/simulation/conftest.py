"""Ends the threads of the simulation, which all runs of a test share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.simulation import routines


@pytest.fixture(autouse=True)
def _no_thread_left() -> Iterator[None]:
    yield
    routines.end_threads()
