"""Run a test once with each client that readers can use."""

from __future__ import annotations

import shutil
from collections.abc import Iterator

import pytest

from pyspark_kafka_group.columns.chunk_reader import CHUNKS
from pyspark_kafka_group.columns.native_library import READER_OVERRIDE
from pyspark_kafka_group.offsets.errors import KafkaGroupError
from pyspark_kafka_group.reading import direct_client, librdkafka_client
from pyspark_kafka_group.reading.client_cache import CONSUMERS
from pyspark_kafka_group.reading.direct_client import DirectClient
from tests.missing_tools import skip_without


def need_native_library() -> None:
    """Skip the test without a C compiler.  Fail if there is a compiler, but no library."""
    if CHUNKS.library is None:
        if shutil.which("cc") is None:
            skip_without("compiler", "no C compiler: the accelerated reader cannot be here")
        pytest.fail("the accelerated reader was not built although there is a C compiler")


@pytest.fixture(params=["direct", "native", "python"])
def any_client(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Read with one client after the other.

    The direct client must not leave the reading to librdkafka.  With the mark ``librdkafka_takes_over`` it must, and
    with ``maybe=True`` it may.
    """
    kind: str = request.param
    CONSUMERS.close_idle()
    if kind != "python":
        need_native_library()
    monkeypatch.setenv(READER_OVERRIDE, {"direct": "", "native": "librdkafka", "python": "off"}[kind])
    librdkafka_client._missing.cache_clear()
    given_up: list[Exception] = []
    fall_back = DirectClient._fall_back

    def note(client: DirectClient, reason: Exception) -> None:
        try:
            fall_back(client, reason)
        finally:
            if client._librdkafka_reads or isinstance(reason, KafkaGroupError):  # otherwise it gave up only followers
                given_up.append(reason)

    monkeypatch.setattr(DirectClient, "_fall_back", note)
    marker = request.node.get_closest_marker("librdkafka_takes_over")
    if marker:
        monkeypatch.setattr(direct_client, "_PATIENCE_S", 0.2)  # shorten the wait for a silent broker
    yield kind
    CONSUMERS.close_idle()
    monkeypatch.undo()
    librdkafka_client._missing.cache_clear()
    if kind == "direct" and not (marker and marker.kwargs.get("maybe")):
        assert bool(given_up) == bool(marker), given_up or "librdkafka did not take over"
