"""The frozen keys of ``--json``.  Scripts depend on them, so you may add a key, but never remove or rename one."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any, cast
from unittest.mock import MagicMock

from pyspark_kafka_group.cluster.cluster import Cluster
from pyspark_kafka_group.cluster.cluster_answers import GroupCoordinator
from pyspark_kafka_group.cluster.group_description import GroupDescription, GroupMember, GroupProtocol
from pyspark_kafka_group.offsets.notes import ResetNote
from pyspark_kafka_group.offsets.types import Offset
from pyspark_kafka_group.tools.analysis.documents import (
    coordinator_document,
    entry_document,
    group_document,
    incident_document,
    reset_document,
    sample_document,
)
from pyspark_kafka_group.tools.analysis.group_samples import GroupSample, Rates
from pyspark_kafka_group.tools.analysis.group_view import GroupView, PartitionView
from pyspark_kafka_group.tools.analysis.history import Entry, Move
from pyspark_kafka_group.tools.analysis.lag_judgement import Status
from pyspark_kafka_group.tools.analysis.membership import Owner
from pyspark_kafka_group.tools.analysis.reset_plan import Change
from pyspark_kafka_group.tools.analysis.rewinds import EndedOffset, Gap, Incident, Rewind
from pyspark_kafka_group.tools.doctor.examination import diagnosis_document
from pyspark_kafka_group.tools.doctor.facts import Finding, GroupFacts, Severity
from pyspark_kafka_group.tools.texts import (
    HISTORY,
    INCIDENTS,
    coordinator_text,
    diagnosis_text,
    group_text,
    polled_widths,
    reset_text,
    table,
)
from pyspark_kafka_group.wire.types import Address, TopicPartition

TP, NEW = TopicPartition("orders", 3), TopicPartition("orders", 4)
NODE = GroupCoordinator(1, Address("kafka", 9092))
MEMBER = GroupMember(
    member_id="m-1",
    instance_id="static",
    client_id="app",
    host="/10.0.0.1",
    assignment=frozenset({TP, NEW}),
    member_epoch=5,
)
GROUP = GroupView(
    group="etl",
    description=GroupDescription(state="Stable", protocol=GroupProtocol.CONSUMER, members=(MEMBER,), epoch=5),
    coordinator=NODE,
    partitions=(
        PartitionView(
            tp=TP,
            committed_offset=5,
            leader_epoch=2,
            metadata="note",
            log_end_offset=9,
            owner=MEMBER,
            status=Status.STALL,
            lag_seconds=95.0004,
        ),
        PartitionView(tp=NEW, committed_offset=None, log_end_offset=7, owner=MEMBER),
    ),
)
ENTRY = Entry(
    log_offset=77,
    time_ms=1_795_377_600_123,
    tp=TP,
    move=Move.BACK,
    previous=9,
    offset=5,
    leader_epoch=2,
    topic_id="QtOXfeWAR9uadceaKEMIPw",
    query_id="q-1",
    owner=Owner("m-1", "app", "/10.0.0.1"),
    member_count=1,
    metadata="note",
)
END = Entry(log_offset=78, time_ms=0, tp=TP, move=Move.EXPIRED, previous=9, offset=None)

WHO = {"member_id": "m-1", "client_id": "app", "host": "/10.0.0.1"}
WHERE = {"group": "etl", "topic": "orders", "partition": 3, "time": "2026-11-22T20:00:00.123Z"}
COORDINATOR = {"node_id": 1, "host": "kafka", "port": 9092}


def printed(document: dict[str, Any]) -> Any:
    return json.loads(json.dumps(document))


def test_describe() -> None:
    totals = {"lag": 4, "expired": 0, "lag_seconds": 95.0, "catch_up_seconds": None}
    part = {"group": "etl", "topic": "orders", "query_id": None, **WHO, "catch_up_seconds": None, "problem": None}
    unknown = ("committed_offset", "lag", "expired", "lag_seconds", "leader_epoch", "metadata", "status")
    first = {"partition": 3, "committed_offset": 5, "log_end_offset": 9, "leader_epoch": 2, "metadata": "note"}
    group = {"group": "etl", "state": "Stable", "protocol": "consumer", "assignor": None, "group_epoch": 5}
    assert printed(group_document(GROUP)) == {
        **group,
        **totals,
        "coordinator": COORDINATOR,
        "status": "ERR",
        "partitions": [
            {**part, **first, **totals, "status": "STALL"},
            {**part, **dict.fromkeys(unknown), "partition": 4, "log_end_offset": 7},
        ],
        "members": [
            {
                **WHO,
                "group_instance_id": "static",
                "member_epoch": 5,
                "assignment": [{"topic": "orders", "partition": 3}, {"topic": "orders", "partition": 4}],
            }
        ],
    }


CHANGE = Change(
    tp=TP, previous=Offset(9), requested=-1, offset=Offset(2), log_start=Offset(2), log_end=Offset(12), leader_epoch=3
)


def test_reset() -> None:
    (part,) = printed(reset_document("etl", [CHANGE], executed=True)).pop("partitions")
    moved = {"committed_offset": 9, "requested_offset": -1, "new_offset": 2, "leader_epoch": 3}
    log = {"log_start_offset": 2, "log_end_offset": 12}
    assert part == {"group": "etl", "topic": "orders", "partition": 3, **moved, **log}
    document = printed(reset_document("etl", [], executed=True))
    assert document == {"group": "etl", "executed": True, "partitions": []}


def test_watch() -> None:
    sample = GroupSample(time_ms=ENTRY.time_ms, view=GROUP, rates={TP: Rates(1.5, 2.25)}, rebalances=3)
    document = printed(sample_document(sample, "no answer"))
    of_parts = {"consumed_per_second", "produced_per_second"}
    assert [part.keys() for part in document["partitions"]] == [
        part.keys() | of_parts for part in group_document(GROUP)["partitions"]
    ]
    assert [part["consumed_per_second"] for part in document["partitions"]] == [1.5, None]
    of_watch = {key: value for key, value in document.items() if key not in group_document(GROUP)}
    assert of_watch == {
        "time": "2026-11-22T20:00:00.123Z",
        "consumed_per_second": 1.5,
        "produced_per_second": 2.25,
        "rebalances": 3,
        "error": "no answer",
    }
    assert document.keys() - of_watch.keys() == group_document(GROUP).keys()


FACTS = GroupFacts(group="etl", state="Stable", protocol=GroupProtocol.CLASSIC)


def test_doctor() -> None:
    error = Finding(Severity.ERROR, "RECORDS_DELETED", "orders-3", "it is so", "do that")
    note = Finding(Severity.NOTE, "NO_TRANSACTIONS", "cluster", "a", "b")
    shared = {"group": "etl", "state": "Stable", "members": 0, "partitions": 0}
    known = {"severity": "NOTE", "code": "NO_TRANSACTIONS", "object": "cluster", "evidence": "a", "remedy": "b"}
    found = printed(diagnosis_document(FACTS, [error, note]))
    assert [finding["code"] for finding in found.pop("findings")] == ["RECORDS_DELETED", "NO_TRANSACTIONS"]
    assert found == {**shared, "healthy": False}
    assert printed(diagnosis_document(FACTS, [note])) == {**shared, "healthy": True, "findings": [known]}


def test_people_are_shown_what_the_doctor_has_found() -> None:
    bad = Finding(Severity.ERROR, "CODE", "orders-3", "it \x1b[31mis " + "so " * 40, "do that")
    note = Finding(Severity.NOTE, "NO_TRANSACTIONS", "cluster", "a", "b")
    lines = diagnosis_text(diagnosis_document(FACTS, [bad, note]))
    assert lines[:3] == ["etl: 1 finding, 1 note (Stable, 0 members, 0 partitions)", "", "ERROR CODE: orders-3"]
    assert max(map(len, lines)) <= 80
    assert "\x1b" not in "".join(lines)
    assert diagnosis_text(diagnosis_document(FACTS, [])) == ["etl: nothing is wrong (Stable, 0 members, 0 partitions)"]


GOES_BACK = [
    "A query with a checkpoint stops at its next start with OffsetRewindError. Use",
    "  --intended, or start it once with onOffsetRewind=group. A query with assign",
    "  and a checkpoint ignores the reset.",
]


def test_people_are_shown_what_a_reset_does() -> None:
    new = replace(CHANGE, previous=None)
    assert reset_text(reset_document("etl", [CHANGE, new], executed=False)) == [
        "TOPIC   PARTITION  CURRENT-OFFSET  NEW-OFFSET  MOVED  NEW-LAG",
        "orders          3               9           2     -7       10",
        "orders          3               -           2      -       10",
        "",
        "Nothing was changed. --execute sets 2 offsets of etl.",
        *GOES_BACK,
    ]
    assert reset_text(reset_document("etl", [CHANGE], executed=True))[-4:] == ["Set 1 offset of etl.", *GOES_BACK]
    accepted = reset_text(reset_document("etl", [CHANGE], executed=True), intended=True)[-2:]
    assert accepted == [
        "A query with a checkpoint accepts the new offsets at its next start, once. A",
        "  query with assign and a checkpoint ignores the reset.",
    ]


def test_people_are_shown_what_a_reset_skips() -> None:
    forth = replace(CHANGE, previous=Offset(5), offset=Offset(9))
    new = replace(CHANGE, previous=None)
    assert reset_text(reset_document("etl", [forth, forth, new], executed=True))[-2:] == [
        "Set 3 offsets of etl.",
        "The group skips the records of 8 offsets in 2 partitions.",
    ]
    # the brokers have deleted the records below log_start
    expired = replace(CHANGE, previous=Offset(1))
    assert reset_text(reset_document("etl", [expired, new], executed=True))[-1] == "Set 2 offsets of etl."


def asked(leaders: dict[int, int], node: GroupCoordinator = NODE) -> dict[str, Any]:
    inspection = MagicMock(coordinator=lambda _group: node, leaders=lambda _topic: leaders)
    return coordinator_document(cast(Cluster, inspection), "etl")


def test_coordinator() -> None:
    topic = {"offsets_topic_partitions": 50, "offsets_topic_partition": 15, "leader": 1}
    expected = {"group": "etl", "hash": 100_765, "coordinator": COORDINATOR}
    assert printed(asked(dict.fromkeys(range(50), 1))) == {**expected, **topic}
    assert printed(asked({})) == {**expected, **dict.fromkeys(topic)}


INCIDENT = {**WHERE, **WHO, "metadata": "note", "query_id": "q-1", "reset_by": None, "members": 1, "log_offset": 77}


def test_history() -> None:
    moved = {"move": "back", "previous_offset": 9, "committed_offset": 5, "leader_epoch": 2}
    assert printed(entry_document("etl", ENTRY)) == {**INCIDENT, **moved, "topic_id": "QtOXfeWAR9uadceaKEMIPw"}
    by = replace(ENTRY, query_id=None, owner=None, reset=ResetNote("alice@laptop", 0, None))
    assert printed(entry_document("etl", by))["reset_by"] == "alice@laptop"


def test_rewinds() -> None:
    moved = {"kind": "rewind", "committed_offset": 5, "previous_offset": 9, "highest_offset": 9, "lowest_offset": 4}
    ended = {"ended": "deleted", "recovered": "1970-01-01T00:00:00.000Z", "needs_attention": False}
    rewind = Rewind(entry=ENTRY, high=9, lowest=4, ended=Move.DELETED, recovered_ms=0)
    assert printed(incident_document("etl", rewind)) == {**INCIDENT, **moved, **ended}
    gap, end = (printed(incident_document("etl", found)) for found in (Gap(entry=ENTRY), EndedOffset(entry=END)))
    assert gap.keys() == end.keys() == {*INCIDENT, *moved, *ended}
    assert gap["kind"] == "gap"
    assert (end["kind"], end["ended"], end["highest_offset"]) == ("ended", "expired", 9)
    assert end["committed_offset"] is None


# -- the same as text, within 80 columns


def test_people_are_shown_a_group() -> None:
    assert group_text(group_document(GROUP)) == [
        "etl: Stable, consumer protocol, 1 member, lag 4, ERR",
        "1 min 35 s behind",
        "coordinator: broker 1, kafka:9092",
        "",
        "TOPIC   PARTITION  CURRENT-OFFSET  LAG  BEHIND  CATCH-UP  STATUS  CLIENT-ID",
        "orders          3               5    4     95s         -  STALL   app",
        "orders          4               -    -       -         -  -       app",
    ]
    (head, *_) = [line for line in group_text(group_document(GROUP), wide=True) if line.startswith("GROUP")]
    # Kafka's own columns come first, in their order.
    assert head.split() == [
        *["GROUP", "TOPIC", "PARTITION", "CURRENT-OFFSET", "LOG-END-OFFSET", "LAG", "CONSUMER-ID", "HOST", "CLIENT-ID"],
        *["LEADER-EPOCH", "BEHIND", "CATCH-UP", "STATUS"],
    ]


def test_people_are_shown_why_a_broker_coordinates() -> None:
    assert coordinator_text(asked(dict.fromkeys(range(50), 1))) == [
        "etl is coordinated by broker 1, kafka:9092.",
        "Its name has the hash 100765 (Java's hashCode), and __consumer_offsets has 50",
        "partitions: 100765 % 50 = 15. Broker 1 leads that partition.",
    ]
    assert "may not see it" in coordinator_text(asked({}))[1]
    assert "It has no leader" in coordinator_text(asked(dict.fromkeys(range(50), -1)))[2]
    assert "leadership is moving" in coordinator_text(asked(dict.fromkeys(range(50), 2)))[3]


def history_text(entries: list[Entry]) -> list[str]:
    return table(HISTORY, [entry_document("etl", entry) for entry in entries])


def test_a_history_that_comes_line_by_line_fits_a_terminal() -> None:
    least = polled_widths(80)
    long = replace(ENTRY, tp=TopicPartition("orders-of-the-european-warehouses", 12), owner=None, offset=123_456_789)
    lines = table(HISTORY, [entry_document("etl", long)], least=least, width=80)
    assert max(map(len, lines)) <= 80
    assert lines[0].index("MOVE") == table(HISTORY, [], least=least, width=80)[0].index("MOVE")


def test_people_are_shown_a_history_and_what_was_found() -> None:
    assert history_text([ENTRY, END]) == [
        "TIME (UTC)           TOPIC-PARTITION  FROM  TO  MOVE     BY",
        "2026-11-22 20:00:00  orders-3            9   5  back     app",
        "1970-01-01 00:00:00  orders-3            9   -  expired  -",
    ]
    reset = replace(ENTRY, query_id=None, owner=None, reset=ResetNote("alice@laptop", 0, None))
    assert history_text([reset])[1].endswith("back  reset by alice@laptop")
    rewind = Rewind(entry=ENTRY, high=9, lowest=4, recovered_ms=ENTRY.time_ms + 61_000)
    incidents: list[Incident] = [rewind, Gap(entry=ENTRY), EndedOffset(entry=END)]
    assert table(INCIDENTS, [incident_document("etl", incident) for incident in incidents]) == [
        "TIME (UTC)           TOPIC-PARTITION  WHAT     FROM  TO  BY   RECOVERED",
        "2026-11-22 20:00:00  orders-3         rewind      9   4  app  after 1 min 1 s",
        "2026-11-22 20:00:00  orders-3         gap         9   5  app  -",
        "1970-01-01 00:00:00  orders-3         expired     9   -  -    -",
    ]
