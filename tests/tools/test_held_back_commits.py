"""Commands if an open transaction hides the newest commits of a group: no verdict, rather than a false one."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator

import pytest

from pyspark_kafka_group.tools.analysis.group_records import LoggedRecord, decode
from pyspark_kafka_group.tools.analysis.offsets_topic import OffsetsTopicHeldBackError
from pyspark_kafka_group.wire.types import TopicPartition
from tests.tools.analysis import records
from tests.tools.shell import run_for_etl
from tests.wire.fake_broker import FakeBroker

SAID = "An open transaction has held back __consumer_offsets-19 since offset 70"


@pytest.fixture
def log_of(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Return a function that lets the log of ``etl`` have commits of these offsets, and then an open transaction."""

    def given(*committed: int) -> None:
        key = records.offset_key(tp=TopicPartition("orders", 0))

        def read_group(*_: object, **__: object) -> Iterator[LoggedRecord]:
            for at, offset in enumerate(committed):
                yield LoggedRecord(at, at, decode(key, records.offset_value(offset)))
            raise OffsetsTopicHeldBackError(19, 70)

        for module in ("analysis.history", "analysis.group_view", "doctor.examination"):
            monkeypatch.setattr(f"pyspark_kafka_group.tools.{module}.read_group", read_group)

    return given


def test_rewinds_cannot_know_that_there_are_none(broker: FakeBroker, log_of: Callable[..., None]) -> None:
    """Regression: it said "Nothing found" and ended with 0, so an alert never fired."""
    log_of(5)
    found = run_for_etl(broker, "rewinds")
    assert (found.exit_code, found.stdout) == (2, "")
    assert SAID in found.stderr
    log_of(5, 3)
    found = run_for_etl(broker, "rewinds", "--json")
    assert (found.exit_code, json.loads(found.stdout)["lowest_offset"]) == (1, 3)
    assert SAID in found.stderr


def test_history_shows_the_commits_before_the_transaction(broker: FakeBroker, log_of: Callable[..., None]) -> None:
    log_of(5, 7)
    found = run_for_etl(broker, "history", "--json")
    assert found.exit_code == 2
    assert [json.loads(line)["committed_offset"] for line in found.stdout.splitlines()] == [5, 7]
    assert SAID in found.stderr


def test_describe_does_not_judge_the_lag(broker: FakeBroker, log_of: Callable[..., None]) -> None:
    """Regression: the verdict was that of the commits before the transaction."""
    log_of(5)
    found = run_for_etl(broker, "describe", "--json")
    document = json.loads(found.stdout)
    assert (found.exit_code, document["lag"], document["status"]) == (0, 4, None)
    assert f"the lag is not judged. {SAID}" in found.stderr


def test_the_doctor_finds_the_transaction(broker: FakeBroker, log_of: Callable[..., None]) -> None:
    """Regression: nothing was wrong."""
    log_of(5)
    found = run_for_etl(broker, "doctor", "--json")
    assert found.exit_code == 1
    (finding,) = [one for one in json.loads(found.stdout)["findings"] if one["code"] == "OPEN_TRANSACTION"]
    assert (finding["severity"], finding["object"]) == ("ERROR", "__consumer_offsets-19")
    assert "--start-offset 70 --topic __consumer_offsets --partition 19" in finding["remedy"]
