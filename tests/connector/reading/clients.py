"""Run a test once with each client that readers can use."""

from __future__ import annotations

import shutil
from collections.abc import Iterator

import pytest

from pyspark_kafka_group.columns.chunk_reader import CHUNKS
from pyspark_kafka_group.columns.native_library import READER_OVERRIDE
from pyspark_kafka_group.reading.client_cache import CONSUMERS
from pyspark_kafka_group.reading.direct_client import DirectClient
from tests.missing_tools import skip_without


def need_native_library() -> None:
    """Skip the test without a C compiler.  Fail if there is a compiler, but no library."""
    if CHUNKS.library is None:
        if shutil.which("cc") is None:
            skip_without("compiler", "no C compiler: the accelerated reader cannot be here")
        pytest.fail("the accelerated reader was not built although there is a C compiler")


@pytest.fixture(params=["direct", "python"])
def any_client(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Read with one client after the other.  The direct client must not leave the reading to the other one."""
    kind: str = request.param
    CONSUMERS.close_idle()
    if kind == "direct":
        need_native_library()
        monkeypatch.setattr(DirectClient, "_fall_back", lambda _, reason: pytest.fail(f"it falls back: {reason}"))
    monkeypatch.setenv(READER_OVERRIDE, {"direct": "", "python": "off"}[kind])
    yield kind
    CONSUMERS.close_idle()
