"""``import-checkpoint`` and ``export-checkpoint``: their output, exit codes, and requests to the broker."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import pytest
from click.testing import Result

from pyspark_kafka_group.offsets.commit_metadata import CommitNote
from pyspark_kafka_group.offsets.notes import ResetNote, read
from pyspark_kafka_group.offsets.types import Offset
from pyspark_kafka_group.wire.describe_requests import DescribedGroup, DescribedMember
from pyspark_kafka_group.wire.group_requests import FetchedOffset, FetchedOffsets, OffsetCommit
from pyspark_kafka_group.wire.topic_requests import ClusterMetadata, PartitionMetadata, TopicMetadata
from pyspark_kafka_group.wire.types import TopicPartition
from tests.tools.analysis.spark_checkpoints import write_checkpoint
from tests.tools.shell import refused, run, run_for_etl
from tests.tools.test_reset_command import sent
from tests.wire import answers
from tests.wire.fake_broker import Answer, FakeBroker
from tests.wire.fake_group import CLASSIC, FETCH, LIST, METADATA, classic, fetched, logs, topic_metadata

UNSTABLE = 88
ORDERS = [TopicPartition("orders", n) for n in range(3)]
IDS = ["YhMexcyTRceVqnxn21WHXQ", "QtOXfeWAR9uadceaKEMIPw"]
COMMIT = OffsetCommit.api.key
STARTS, ENDS = dict.fromkeys(ORDERS, 2), dict.fromkeys(ORDERS, 12)
MEMBER = DescribedMember("m-1", None, "app", "/10.0.0.1", frozenset(), None, None)


@pytest.fixture(autouse=True)
def three_partitions(broker: FakeBroker) -> None:
    """Set up a cluster without groups, and with three partitions whose logs are ``[2, 12)``."""
    broker.answers |= {
        METADATA: topic_metadata([broker], {"orders": 3}),
        CLASSIC: classic("Dead"),
        FETCH: fetched(dict.fromkeys(ORDERS, -1)),
        LIST: logs(ENDS, STARTS),
        COMMIT: answers.commits(dict.fromkeys(ORDERS, 0)),
    }


def import_from(broker: FakeBroker, folder: Path, *options: str) -> Result:
    return run("import-checkpoint", "-b", str(broker.address), "--group", "etl", *options, str(folder))


def offsets(*values: int) -> str:
    return json.dumps({"orders": {str(n): value for n, value in enumerate(values)}})


def committed(values: Mapping[TopicPartition, int], *, metadata: str = "", error: int = 0) -> Answer:
    return answers.offsets(
        FetchedOffsets(0, {tp: FetchedOffset(error, value, -1, metadata) for tp, value in values.items()})
    )


# -- import-checkpoint


def test_nothing_is_sent_unless_it_is_told_to(broker: FakeBroker, tmp_path: Path) -> None:
    """The table and the last line are the same as with ``reset``."""
    found = import_from(broker, write_checkpoint(tmp_path, offsets(3, 4, 12)))
    assert found.exit_code == 0, found.output
    assert [line.split() for line in found.stdout.splitlines()] == [
        ["TOPIC", "PARTITION", "CURRENT-OFFSET", "NEW-OFFSET", "MOVED", "NEW-LAG"],
        ["orders", "0", "-", "3", "-", "9"],
        ["orders", "1", "-", "4", "-", "8"],
        ["orders", "2", "-", "12", "-", "0"],
        [],
        ["Nothing", "was", "changed.", "--execute", "sets", "3", "offsets", "of", "etl."],
    ]
    assert "these are the offsets after batch 0, the last one that the query has finished" in found.stderr
    assert "OffsetCommit" not in broker.kinds()


def test_offsets_are_committed_as_reset_does_it(broker: FakeBroker, tmp_path: Path) -> None:
    found = import_from(broker, write_checkpoint(tmp_path, offsets(3, 4, 12)), "--execute")
    assert (found.exit_code, found.stdout.splitlines()[-1]) == (0, "Set 3 offsets of etl."), found.output
    assert {tp: value[0] for tp, value in sent(broker).items()} == dict(zip(ORDERS, (3, 4, 12), strict=True))
    for _, _, metadata in sent(broker).values():
        assert isinstance(read(metadata), ResetNote)


def test_partitions_that_are_new_to_the_checkpoint_begin_at_the_beginning(broker: FakeBroker, tmp_path: Path) -> None:
    """Spark's own source does the same.  Without an offset they would begin at ``startingOffsets``, often the end."""
    found = import_from(broker, write_checkpoint(tmp_path, offsets(3, 4)), "--json")
    assert found.exit_code == 0, found.output
    assert [part["new_offset"] for part in json.loads(found.stdout)["partitions"]] == [3, 4, 2]
    assert "orders-2: not in the checkpoint. The group begins at the beginning" in found.stderr
    found = import_from(broker, tmp_path, "--json", "--topics", "orders:0,1")
    assert [part["new_offset"] for part in json.loads(found.stdout)["partitions"]] == [3, 4]
    assert "orders-2" not in found.stderr


def test_deleted_records_move_the_offset_and_it_is_said(broker: FakeBroker, tmp_path: Path) -> None:
    found = import_from(broker, write_checkpoint(tmp_path, offsets(1, 4, 5)), "--json")
    assert [part["new_offset"] for part in json.loads(found.stdout)["partitions"]] == [2, 4, 5]
    assert "orders-0: 1 is before the start of the log. The new offset is 2." in found.stderr


def test_an_offset_beyond_the_end_is_refused(broker: FakeBroker, tmp_path: Path) -> None:
    """The topic was created again, or this is another cluster.  The log end would skip all present records."""
    refused(
        import_from(broker, write_checkpoint(tmp_path, offsets(3, 13, 5)), "--execute"),
        "orders-1: the offset of the checkpoint is after the end of the log",
    )
    assert "OffsetCommit" not in broker.kinds()


def test_a_batch_that_was_not_finished_is_said(broker: FakeBroker, tmp_path: Path) -> None:
    found = import_from(broker, write_checkpoint(tmp_path, offsets(3, 4, 5), begun=(0, 1)))
    assert found.exit_code == 0, found.output
    assert "batch 1 was begun and not finished. The group reads its records again" in found.stderr
    found = import_from(broker, write_checkpoint(tmp_path / "new", finished=(), starts={"0": offsets(3, 4, 5)}))
    assert "the query has finished no batch. These are the offsets at which it began" in found.stderr


def test_one_of_several_sources_is_chosen(broker: FakeBroker, tmp_path: Path) -> None:
    folder = write_checkpoint(tmp_path, '{"returns":{"0":1}}', offsets(3, 4, 5))
    found = import_from(broker, folder)
    refused(found, "The query has several Kafka sources: 0 (returns), 1 (orders). Choose one with --source.")
    found = import_from(broker, folder, "--source", "1", "--json")
    assert {part["topic"] for part in json.loads(found.stdout)["partitions"]} == {"orders"}


def test_a_topic_of_the_checkpoint_that_does_not_exist_is_2(broker: FakeBroker, tmp_path: Path) -> None:
    refused(
        import_from(broker, write_checkpoint(tmp_path, '{"payments":{"0":1}}'), "--execute"),
        "The topic 'payments' does not exist.",
    )


def test_a_group_with_members_is_1(broker: FakeBroker, tmp_path: Path) -> None:
    broker.answers[CLASSIC] = answers.classic_group(DescribedGroup(0, "", "Stable", None, (MEMBER,)))
    refused(
        import_from(broker, write_checkpoint(tmp_path, offsets(3, 4, 5)), "--execute"),
        "app at 10.0.0.1. Nothing was changed. Stop the members first",
        code=1,
    )
    assert "OffsetCommit" not in broker.kinds()


# -- export-checkpoint


def export(broker: FakeBroker, *options: str) -> Result:
    return run_for_etl(broker, "export-checkpoint", *options)


def test_the_committed_offsets_are_printed_as_starting_offsets(broker: FakeBroker) -> None:
    broker.answers |= {CLASSIC: classic("Empty"), FETCH: committed(dict(zip(ORDERS, (3, 4, 12), strict=True)))}
    found = export(broker)
    assert (found.exit_code, found.stdout, found.stderr) == (0, '{"orders":{"0":3,"1":4,"2":12}}\n', "")
    document = json.loads(export(broker, "--json").stdout)
    assert document == {"group": "etl", "starting_offsets": {"orders": {"0": 3, "1": 4, "2": 12}}}


def test_a_partition_without_an_offset_is_read_from_its_beginning(broker: FakeBroker) -> None:
    """Spark needs an offset of every partition, and the group has read nothing from this one."""
    broker.answers |= {CLASSIC: classic("Empty"), FETCH: fetched({**dict.fromkeys(ORDERS[:2], 5), ORDERS[2]: -1})}
    found = export(broker)
    assert (found.exit_code, found.stdout) == (0, '{"orders":{"0":5,"1":5,"2":-2}}\n')
    assert "orders-2: the group has no offset there. Spark begins at the beginning (-2)." in found.stderr
    assert export(broker, "--topics", "orders:0,1").stdout == '{"orders":{"0":5,"1":5}}\n'


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ((), "The group 'etl' has never committed offsets. Check the names."),
        (("--topics", "returns"), "The group 'etl' has never committed offsets of returns. Check the names."),
    ],
)
def test_offsets_that_do_not_exist_are_2(broker: FakeBroker, options: tuple[str, ...], said: str) -> None:
    broker.answers |= {
        METADATA: topic_metadata([broker], {"orders": 3, "returns": 1}),
        CLASSIC: classic("Empty"),
        FETCH: fetched(dict.fromkeys(ORDERS, 5) if options else {}),
    }
    refused(export(broker, *options), said)


def test_offsets_of_a_topic_that_was_created_again_are_2(broker: FakeBroker) -> None:
    topic = TopicMetadata("orders", 0, IDS[0], tuple(PartitionMetadata(n, 0, 1, 1) for n in range(3)))
    broker.answers[METADATA] = answers.metadata(ClusterMetadata({1: broker.address}, (topic,), "here"))

    def exported_with(topic_id: str, cluster_id: str | None = None) -> Result:
        note = CommitNote("q", topic_id, 3, Offset(0), "1f", cluster_id=cluster_id)
        broker.answers |= {
            CLASSIC: classic("Empty"),
            FETCH: committed(dict.fromkeys(ORDERS, 5), metadata=note.encode()),
        }
        return export(broker)

    assert exported_with(IDS[0]).exit_code == 0
    assert exported_with(IDS[1], "another").exit_code == 0, "MirrorMaker has copied the note"
    refused(exported_with(IDS[1]), "The topic 'orders' was created again since the group committed orders-0")


def test_an_offset_after_the_end_of_the_log_is_2(broker: FakeBroker) -> None:
    """Regression: Spark got it without a word.  ``import-checkpoint`` has always refused it."""
    broker.answers |= {CLASSIC: classic("Empty"), FETCH: committed(dict(zip(ORDERS, (3, 4, 13), strict=True)))}
    refused(export(broker), "orders-2: the committed offset is after the end of the log.")
    assert export(broker, "--topics", "orders:0,1").exit_code == 0


def test_a_group_whose_offsets_still_move_is_refused(broker: FakeBroker) -> None:
    broker.answers[CLASSIC] = answers.classic_group(DescribedGroup(0, "", "Stable", None, (MEMBER,)))
    refused(export(broker), "The group 'etl' is in use", code=1)
    before = committed(dict.fromkeys(ORDERS, 5))
    broker.answers |= {
        CLASSIC: classic("Empty"),
        FETCH: [before, committed(dict.fromkeys(ORDERS, 5), error=UNSTABLE)],
    }
    refused(export(broker), "An open transaction commits offsets of the group 'etl'")
