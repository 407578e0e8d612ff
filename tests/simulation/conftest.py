"""Ends the threads of the simulation, which are used again from run to run."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.simulation import routines


@pytest.fixture(autouse=True)
def _no_thread_left() -> Iterator[None]:
    yield
    routines.end_threads()
