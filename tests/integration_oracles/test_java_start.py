from __future__ import annotations

import pytest

from integration.java_start import environment
from pyspark_kafka_group.testing.local import JAVA_OPTIONS_VARIABLE


def test_what_the_user_has_set_stays_and_a_worker_adds_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JDK_JAVA_OPTIONS", "-Dmine=1")
    monkeypatch.setenv(JAVA_OPTIONS_VARIABLE, "-Xmx1g")
    found = environment()
    assert found["JDK_JAVA_OPTIONS"].startswith("-Dmine=1 -XX:+UseSerialGC -XX:TieredStopAtLevel=1")
    assert found[JAVA_OPTIONS_VARIABLE].startswith("-Xmx1g")
    for name, value in found.items():
        monkeypatch.setenv(name, value)
    assert environment() == {}
