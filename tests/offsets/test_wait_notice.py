"""The warnings about a wait."""

from __future__ import annotations

import logging
import time

import pytest

from pyspark_kafka_group.offsets.wait_notice import WaitNotice


def test_a_wait_is_logged_after_3_s_and_then_every_10_s(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    now = 100.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    notice = WaitNotice(logging.getLogger("test"), "The cluster at 'kafka:9092'", longest_s=30.0)
    for second in range(31):
        now = 100.0 + second
        notice.note("Connection refused")
    assert [record.getMessage() for record in caplog.records] == [
        f"The cluster at 'kafka:9092' has not answered for {seconds} s (Connection refused). Trying for 30 s."
        for seconds in (3, 13, 23)
    ]
