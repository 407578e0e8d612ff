"""Ends the threads of pyiceberg after each test."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyiceberg.utils.concurrent import ExecutorFactory


@pytest.fixture(autouse=True)
def _no_threads() -> Iterator[None]:
    yield
    if ExecutorFactory._instance is not None:
        ExecutorFactory._instance.shutdown()
        ExecutorFactory._instance = None
