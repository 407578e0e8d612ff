"""Views have the columns that the command line prints."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, cast
from unittest.mock import MagicMock

import pytest

from pyspark_kafka_group.cluster.cluster import Cluster
from pyspark_kafka_group.cluster.cluster_answers import Answers, DatedOffset, GroupCoordinator
from pyspark_kafka_group.cluster.error_remedies import TryAgainError
from pyspark_kafka_group.cluster.group_description import GroupDescription, GroupMember, GroupProtocol
from pyspark_kafka_group.offsets.errors import BrokerError, OptionError
from pyspark_kafka_group.offsets.types import Offset, TopicPartition
from pyspark_kafka_group.tools.analysis.documents import entry_document, group_document, incident_document
from pyspark_kafka_group.tools.analysis.group_view import GroupView, PartitionView, with_time_lags
from pyspark_kafka_group.tools.analysis.history import Entry, Move
from pyspark_kafka_group.tools.analysis.rewinds import EndedOffset
from pyspark_kafka_group.views.reader import KafkaGroupViewReader
from pyspark_kafka_group.views.schemas import VIEWS, names, schema_of
from pyspark_kafka_group.wire.types import Address

GIVEN = {"kafka.bootstrap.servers": "x:1", "kafka.group.id": "g"}


@pytest.mark.parametrize("view", VIEWS)
def test_every_view_has_a_schema(view: str) -> None:
    found = ",".join(f"{field.name}{field.dataType.simpleString()}" for field in schema_of(view))
    assert found == VIEWS[view].lower().replace(" ", "")


BEHIND, DONE = TopicPartition("t", 0), TopicPartition("t", 1)
VIEW = GroupView(
    group="g",
    description=GroupDescription(
        state="Stable",
        protocol=GroupProtocol.CONSUMER,
        members=(
            GroupMember(member_id="m", instance_id=None, client_id="c", host="h", assignment=frozenset({BEHIND})),
        ),
    ),
    coordinator=GroupCoordinator(1, Address("kafka", 9092)),
    partitions=(
        PartitionView(tp=BEHIND, committed_offset=5, leader_epoch=None, metadata="", log_end_offset=9),
        PartitionView(tp=DONE, committed_offset=7, leader_epoch=None, metadata="", log_end_offset=7),
    ),
)


def documents() -> dict[str, dict[str, Any]]:
    """Return one object for each view, as the command line prints it."""
    whole = group_document(VIEW)
    entry = Entry(log_offset=1, time_ms=0, tp=BEHIND, move=Move.EXPIRED, previous=9, offset=None)
    return {
        "lag": whole["partitions"][0],
        "members": {**{key: whole[key] for key in ("group", "state", "protocol")}, **whole["members"][0]},
        "history": entry_document("g", entry),
        "rewinds": incident_document("g", EndedOffset(entry=entry)),
    }


@pytest.mark.parametrize("view", VIEWS)
def test_the_columns_are_the_keys_of_the_command_line(view: str) -> None:
    """A view has all keys in the same order.  A new key is a new column."""
    assert names(view) == [*documents()[view]]


def test_the_lag_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[TopicPartition] = []

    def records_at(times_ms: Mapping[TopicPartition, int], *, leaders: object) -> Answers[DatedOffset | None]:
        asked.extend(times_ms)
        return Answers(dict.fromkeys(times_ms, DatedOffset(Offset(5), 1_000_000)), {})

    inspection = MagicMock(records_at=records_at)
    monkeypatch.setattr("time.time", lambda: 1095.5)
    shown = group_document(with_time_lags(VIEW, cast(Cluster, inspection)))["partitions"]
    assert [part["lag_seconds"] for part in shown] == [95.5, 0.0]
    assert {*asked} == {BEHIND}
    inspection.look.side_effect = TryAgainError("no answer")
    monkeypatch.setattr("pyspark_kafka_group.tools.analysis.group_view.view_group", lambda *_: VIEW)
    monkeypatch.setattr("pyspark_kafka_group.tools.analysis.group_view.read_group", lambda *_, **__: iter(()))
    reader = KafkaGroupViewReader({**GIVEN, "show": "lag"})
    undated = reader._documents(cast(Cluster, inspection))
    assert [part["lag_seconds"] for part in undated] == [None, None], "the view is shown all the same"


def test_a_view_logs_in_with_the_options_of_databricks() -> None:
    """Regression: they were refused, although a stream with the same options works."""
    reader = KafkaGroupViewReader(
        {
            **GIVEN,
            "kafka.bootstrap.servers": "ns.servicebus.windows.net:9093",
            "show": "lag",
            "databricks.serviceCredential": "shop",
        }
    )
    assert reader._properties["sasl.oauthbearer.provider"] == "databricks:shop"


def test_another_view() -> None:
    with pytest.raises(OptionError, match=r"'latency' is not a view\. Write lag, members, history, rewinds"):
        names("latency")


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({**GIVEN, "show": "lag", "subscribe": "t"}, "'subscribe': it changes nothing in a view"),
        ({"kafka.bootstrap.servers": "x:1", "show": "lag"}, "'kafka.group.id': it is missing"),
        ({"kafka.group.id": "g", "show": "lag"}, "'kafka.bootstrap.servers': it is missing"),
    ],
)
def test_what_is_refused(options: dict[str, str], expected: str) -> None:
    with pytest.raises(OptionError, match=expected):
        KafkaGroupViewReader(options)


def test_a_cluster_that_falls_silent_in_the_middle(monkeypatch: pytest.MonkeyPatch) -> None:
    reader = KafkaGroupViewReader({**GIVEN, "show": "history"})

    def documents_of(_: object) -> Iterator[dict[str, Any]]:
        yield documents()["history"]
        raise TryAgainError("broker 2: no answer")

    monkeypatch.setattr("pyspark_kafka_group.views.reader.connect", lambda *_, **__: MagicMock())
    monkeypatch.setattr(reader, "_documents", documents_of)
    rows = reader.read(reader.partitions()[0])
    assert next(rows)[:3] == ("g", "t", 0)
    with pytest.raises(BrokerError, match=r"The cluster does not answer: broker 2: no answer\. Check"):
        next(rows)


def test_a_view_refuses_unknown_properties_and_asks_for_the_group_of_a_stream() -> None:
    reader = KafkaGroupViewReader({**GIVEN, "show": "lag", "kafka.group.id": " g ", "kafka.nonsense": "1"})
    assert reader._properties["group.id"] == "g"
    with pytest.raises(OptionError, match="nonsense"):
        reader.partitions()
    with pytest.raises(OptionError, match="'startingOffsets'"):
        KafkaGroupViewReader({**GIVEN, "show": "lag", "startingoffsets": "latest"})
