"""Fixtures of the tests of the command line: a broker with a group, and short timeouts."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from pyspark_kafka_group.tools.analysis import group_view
from tests.wire.fake_broker import FakeBroker
from tests.wire.fake_group import fake_group


@pytest.fixture
def broker() -> Iterator[FakeBroker]:
    """Yield a broker with the empty group ``etl``, which has a lag of 4 in the one partition of ``orders``."""
    with fake_group("orders", [5], end=9) as made:
        yield made


@pytest.fixture(autouse=True)
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let commands time out at once, and hide the user's environment variables."""
    monkeypatch.setattr(group_view, "_PATIENCE_S", 0.0)
    for variable in ("BOOTSTRAP_SERVERS", "CONFIG", "PROFILE", "DEBUG"):
        monkeypatch.delenv(f"KAFKA_GROUP_{variable}", raising=False)
