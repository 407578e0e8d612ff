"""Tests that hold for both ways of taking records out of librdkafka run once with each."""

from __future__ import annotations

import shutil
from collections.abc import Iterator

import pytest

from pyspark_kafka_group import native_client
from pyspark_kafka_group.consumer_cache import CONSUMERS
from pyspark_kafka_group.native_chunks import native_library


def need_native_library() -> None:
    """Skip where there is no C compiler; fail where there is one and the library is missing all the same."""
    if native_library() is None:
        if shutil.which("cc") is None:
            pytest.skip("no C compiler: the accelerated reader cannot be here")
        pytest.fail("the accelerated reader was not built although there is a C compiler")


@pytest.fixture(params=["native", "python"])
def either_client(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Reads with the one client, then with the other."""
    kind: str = request.param
    CONSUMERS.close_idle()
    if kind == "native":
        need_native_library()
    else:
        monkeypatch.setenv(native_client.SWITCH, "off")
    native_client._missing.cache_clear()
    yield kind
    CONSUMERS.close_idle()
    monkeypatch.undo()
    native_client._missing.cache_clear()
