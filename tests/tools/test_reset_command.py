"""``reset``: its output, exit codes, refusals, and requests to the broker."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

from pyspark_kafka_group.offsets.commit_metadata import CommitNote, new_lineage
from pyspark_kafka_group.offsets.notes import ResetNote, read
from pyspark_kafka_group.offsets.types import Offset
from pyspark_kafka_group.wire.describe_requests import DescribedGroup, DescribedMember
from pyspark_kafka_group.wire.fields import Reader
from pyspark_kafka_group.wire.group_requests import FetchedOffset, FetchedOffsets, OffsetCommit
from pyspark_kafka_group.wire.requests import read_by_topic
from pyspark_kafka_group.wire.topic_requests import ClusterMetadata, PartitionMetadata, TopicMetadata
from pyspark_kafka_group.wire.types import TopicPartition
from tests.tools.shell import refused, run_for_etl
from tests.wire import answers
from tests.wire.fake_broker import HANG_UP, FakeBroker
from tests.wire.fake_group import CLASSIC, FETCH, LIST, METADATA, classic, fetched, listed, topic_metadata

UNKNOWN_MEMBER, TOPIC_REFUSED, GROUP_REFUSED, UNSTABLE = 25, 29, 30, 88
ORDERS = [TopicPartition("orders", n) for n in range(2)]
COMMIT = OffsetCommit.api.key
STARTS, ENDS = dict.fromkeys(ORDERS, 2), dict.fromkeys(ORDERS, 12)


def committed(offset: int = 5, epoch: int = 3, error: int = 0, *, count: int = 2) -> Any:
    return fetched({**dict.fromkeys(ORDERS, -1), **dict.fromkeys(ORDERS[:count], offset)}, epoch=epoch, error=error)


@pytest.fixture(autouse=True)
def two_partitions(broker: FakeBroker) -> None:
    """Set up two partitions with logs ``[2, 12)``, in which the group has committed 5."""
    broker.answers |= {
        METADATA: topic_metadata([broker], {"orders": 2}),
        FETCH: committed(),
        LIST: [listed(STARTS), listed(ENDS)],
        COMMIT: answers.commits(dict.fromkeys(ORDERS, 0)),
    }


def run(broker: FakeBroker, *options: str) -> Result:
    return run_for_etl(broker, "reset", *options)


def sent(broker: FakeBroker) -> dict[TopicPartition, tuple[int, int, str]]:
    """Return the commit of each partition: offset, leader epoch, metadata."""
    (asked,) = [asked for asked in broker.asked if asked.api == COMMIT]
    request = Reader(memoryview(asked.body), flexible=True)
    assert (request.text(), request.int32(), request.text(), request.nullable_text()) == ("etl", -1, "", None)

    def partition() -> tuple[int, tuple[int, int, str]]:
        found = request.int32(), (request.int64(), request.int32(), request.text())
        request.end()
        return found

    return read_by_topic(request, partition)


def new_offsets(found: Result) -> list[int]:
    return [part["new_offset"] for part in json.loads(found.stdout)["partitions"]]


@pytest.mark.parametrize(
    ("to", "offset", "clamped"),
    [
        ("start", 2, False),
        ("start+3", 5, False),
        ("end", 12, False),
        ("end-3", 9, False),
        ("7", 7, False),
        ("+2", 7, False),
        ("-2", 3, False),
        ("-100", 2, True),
        ("+100", 12, True),
        ("0", 2, True),
        ("99", 12, True),
    ],
)
def test_targets_are_resolved_and_kept_within_the_log(broker: FakeBroker, to: str, offset: int, clamped: bool) -> None:
    found = run(broker, "--to", to, "--json")
    assert found.exit_code == 0, found.output
    assert new_offsets(found) == [offset, offset]
    assert ("The new offset is" in found.stderr) is clamped


def test_it_counts_from_the_offsets_after_the_last_transaction(broker: FakeBroker) -> None:
    """Regression: it counted from the offsets before a transaction that ended in the meantime."""
    broker.answers[FETCH] = [committed(5), committed(8)]
    found = run(broker, "--to", "-2", "--json")
    assert new_offsets(found) == [6, 6]


def test_a_time_is_the_first_record_since_and_the_end_if_there_is_none(broker: FakeBroker) -> None:
    broker.answers[LIST] = [listed(STARTS), listed(ENDS), listed({ORDERS[0]: 8, ORDERS[1]: -1})]
    assert new_offsets(run(broker, "--to", "@-1h", "--json")) == [8, 12]


def test_nothing_is_sent_unless_it_is_told_to(broker: FakeBroker) -> None:
    for options in ((), ("--dry-run",)):
        found = run(broker, "--to", "start", *options)
        assert found.exit_code == 0, found.output
        assert "Nothing was changed. --execute sets 2 offsets of etl." in found.stdout
        broker.answers[LIST] = [listed(STARTS), listed(ENDS)]
    assert "OffsetCommit" not in broker.kinds()


@pytest.mark.parametrize("option", ["--execute", "--yes", "-y"])
def test_offsets_are_committed_with_who_from_where_and_when(broker: FakeBroker, option: str) -> None:
    found = run(broker, "--to", "end", option)
    assert (found.exit_code, found.stderr) == (0, "")
    assert "Set 2 offsets of etl." in found.stdout
    for offset, epoch, metadata in sent(broker).values():
        note = read(metadata)
        assert isinstance(note, ResetNote)
        assert (offset, epoch, note.previous) == (12, -1, 5)
        assert "@" in note.by


def test_only_chosen_partitions_are_reset(broker: FakeBroker) -> None:
    assert run(broker, "--to", "start", "--topics", "orders:1", "-y").exit_code == 0
    assert [*sent(broker)] == [ORDERS[1]]


def test_the_offsets_of_another_group_come_with_their_leader_epochs(broker: FakeBroker) -> None:
    broker.answers[FETCH] = [committed(), committed(9, 4), committed()]
    assert run(broker, "--to-group", "other", "-y").exit_code == 0
    assert {value[:2] for value in sent(broker).values()} == {(9, 4)}


@pytest.mark.parametrize("options", [("--to-group", "other"), ("--to", "-1")])
def test_an_offset_of_a_deleted_topic_is_not_copied(broker: FakeBroker, options: tuple[str, ...]) -> None:
    ids = ["AAAAAAAAAAAAAAAAAAAAAQ", "AAAAAAAAAAAAAAAAAAAAAg"]
    numbers = tuple(PartitionMetadata(n, 0, 1, 1) for n in range(2))
    found = ClusterMetadata({1: broker.address}, (TopicMetadata("orders", 0, ids[1], numbers),), "here")
    broker.answers[METADATA] = answers.metadata(found)
    # MirrorMaker has translated the last one, and copied its metadata.
    for topic_id, cluster_id, code in ((ids[0], "here", 2), (ids[1], "here", 0), (ids[0], "another", 0)):
        note = CommitNote("q", topic_id, 2, Offset(0), new_lineage(), cluster_id=cluster_id).encode()
        offsets = {tp: FetchedOffset(0, 5, 3, note) for tp in ORDERS}
        broker.answers[FETCH] = answers.offsets(FetchedOffsets(0, offsets))
        broker.answers[LIST] = [listed(STARTS), listed(ENDS)]
        done = run(broker, *options)
        assert done.exit_code == code, done.output
        if code:
            refused(done, "orders-0, orders-1 counts the records of a deleted topic", "such as --to start")


def test_offsets_come_from_a_file(broker: FakeBroker, tmp_path: Path) -> None:
    file = tmp_path / "offsets.json"
    file.write_text('[{"topic": "orders", "partition": 1, "offset": 6}]', encoding="utf-8")
    assert run(broker, "--to-file", str(file), "-y").exit_code == 0
    assert {tp: value[0] for tp, value in sent(broker).items()} == {ORDERS[1]: 6}


def test_a_group_with_members_is_1_and_they_are_named(broker: FakeBroker) -> None:
    members = tuple(DescribedMember(f"m-{n}", None, "app", f"/10.0.0.{n}", frozenset(), None, None) for n in range(2))
    broker.answers[CLASSIC] = answers.classic_group(DescribedGroup(0, "", "Stable", None, members))
    refused(
        run(broker, "--to", "start", "--execute"), "app at 10.0.0.0, app at 10.0.0.1", "Nothing was changed", code=1
    )
    broker.answers[CLASSIC] = classic("PreparingRebalance")
    assert run(broker, "--to", "start", "--execute").exit_code == 1
    assert "OffsetCommit" not in broker.kinds()


def test_a_member_that_joins_meanwhile_is_1(broker: FakeBroker) -> None:
    broker.answers[COMMIT] = answers.commits(dict.fromkeys(ORDERS, UNKNOWN_MEMBER))
    refused(run(broker, "--to", "start", "--execute"), "is in use", code=1)


@pytest.mark.parametrize("intended", [False, True])
def test_a_reset_may_say_that_it_is_intended(broker: FakeBroker, intended: bool) -> None:
    found = run(broker, "--to", "start", "--execute", *["--intended"] * intended)
    notes = [read(metadata) for _, _, metadata in sent(broker).values()]
    assert [note.intended for note in notes if isinstance(note, ResetNote)] == [intended] * 2
    assert ("accepts the new offsets at its next start, once" in " ".join(found.stdout.split())) is intended


def test_what_is_refused_in_part_is_2_and_said_exactly(broker: FakeBroker) -> None:
    note = ResetNote("alice@laptop", 0, None)
    done = answers.offsets(FetchedOffsets(0, {ORDERS[0]: FetchedOffset(0, 2, -1, note.encode())}))

    class Same(ResetNote):
        def encode(self) -> str:
            return note.encode()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("pyspark_kafka_group.tools.reset_command.ResetNote", Same)
        broker.answers[COMMIT] = answers.commits({ORDERS[0]: 0, ORDERS[1]: TOPIC_REFUSED})
        broker.answers[FETCH] = [committed(), committed(), done]
        refused(run(broker, "--to", "start", "--execute"), "1 of 2 offsets were set, but not orders-1")


def test_a_lost_answer_is_settled_by_what_is_committed(broker: FakeBroker) -> None:
    broker.answers[COMMIT] = HANG_UP
    refused(run(broker, "--to", "start", "--execute"), "nothing was changed so far")


def test_a_refused_commit_is_said_in_the_words_of_the_command_line(broker: FakeBroker) -> None:
    """Regression: the error named the option 'kafka.group.id', and the user of "this query"."""
    broker.answers[COMMIT] = answers.commits(dict.fromkeys(ORDERS, GROUP_REFUSED))
    found = run(broker, "--to", "start", "--execute")
    refused(found, "nothing was changed: The user of this connection may not use the group 'etl'")


def test_a_result_that_stays_unknown_is_said(broker: FakeBroker) -> None:
    """Regression: the error was only that the cluster does not answer, although the offsets may have been set."""
    broker.answers[COMMIT] = HANG_UP
    broker.answers[FETCH] = [committed(), committed(), HANG_UP]
    refused(run(broker, "--to", "start", "--execute"), "it is unknown whether the offsets were set")


def test_an_open_transaction_of_the_group_is_2(broker: FakeBroker) -> None:
    """When the transaction ends, its offsets would overwrite those of ``reset``."""
    broker.answers[FETCH] = [committed(), committed(error=UNSTABLE)]
    refused(run(broker, "--to", "start", "--execute"), "An open transaction commits offsets of the group 'etl'")
    assert "OffsetCommit" not in broker.kinds()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "Give one of --to, --to-group and --to-file"),
        (("--to", "start", "--to-group", "other"), "Give one of --to, --to-group and --to-file"),
        (("--to", "begin"), "'begin' is not valid"),
        (("--to", "start", "--dry-run", "-y"), "contradict each other"),
        (("--to-file", "/no/such/file"), "/no/such/file: No such file"),
        (("--to", "start", "--topics", "payments"), "The topic 'payments' does not exist"),
        (("--to", "start", "--topics", "orders:7"), "orders-7 does not exist"),
    ],
)
def test_whatever_is_wrong_is_2_and_nothing_is_changed(
    broker: FakeBroker, arguments: tuple[str, ...], said: str
) -> None:
    refused(run(broker, *arguments, *([] if "--dry-run" in arguments else ["--execute"])), said)
    assert "OffsetCommit" not in broker.kinds()


def test_topics_that_are_new_to_the_group_have_to_be_allowed(broker: FakeBroker) -> None:
    broker.answers[FETCH] = committed(count=0)
    refused(run(broker, "--to", "start", "--topics", "orders", "--execute"), "has never committed offsets of orders")
    assert "Name topics with --topics" in run(broker, "--to", "start", "--execute").stderr
    assert "OffsetCommit" not in broker.kinds()
    broker.answers[LIST] = [listed(STARTS), listed(ENDS)]
    assert run(broker, "--to", "start", "--topics", "orders", "--allow-new-topics", "--execute").exit_code == 0
    assert {tp: value[0] for tp, value in sent(broker).items()} == dict.fromkeys(ORDERS, 2)


def test_a_partition_without_an_offset_cannot_be_counted_from(broker: FakeBroker) -> None:
    broker.answers[FETCH] = committed(count=1)
    assert new_offsets(run(broker, "--to", "+1", "--json")) == [6]
    broker.answers[LIST] = [listed(STARTS), listed(ENDS)]
    refused(run(broker, "--to", "+1", "--topics", "orders:0,1"), "orders-1 has no committed offset to count from")
    assert (
        "The group 'other' has committed no offset of orders-1"
        in run(broker, "--to-group", "other", "--topics", "orders:1").stderr
    )


def test_a_topic_that_the_source_does_not_have_is_not_left_out_silently(broker: FakeBroker, tmp_path: Path) -> None:
    """Regression: with a misspelt topic beside a right one, only the right one was reset."""
    refused(
        run(broker, "--to-group", "other", "--topics", "orders", "--topics", "paymets", "--execute"),
        "The group 'other' has committed no offset of paymets. Check its name",
    )
    file = tmp_path / "offsets.json"
    file.write_text('[{"topic": "orders", "partition": 0, "offset": 7}]', encoding="utf-8")
    refused(
        run(broker, "--to-file", str(file), "--topics", "orders", "--topics", "paymets", "--execute"),
        "The file has no offset of paymets",
    )
    assert "OffsetCommit" not in broker.kinds()
