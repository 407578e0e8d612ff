"""Where a partition starts if the option says ``committed``: each line of the table."""

from __future__ import annotations

import pytest

from pyspark_kafka_group.batch.committed_starts import committed_starts
from pyspark_kafka_group.cluster.cluster_answers import CommittedOffset, TopicInfo
from pyspark_kafka_group.offsets.commit_metadata import CommitNote
from pyspark_kafka_group.offsets.errors import ConfigurationError, DataLossError
from pyspark_kafka_group.offsets.notes import BookmarkNote
from pyspark_kafka_group.offsets.range_bounds import NotCommitted
from pyspark_kafka_group.offsets.start_inputs import StartingOffset
from pyspark_kafka_group.offsets.types import Offset, TopicPartition

P0, P1, P2 = (TopicPartition("t", n) for n in range(3))
TOPICS = {"t": TopicInfo("id", {0: 0, 1: 0, 2: 0}, "here")}
EARLIEST, LATEST = StartingOffset.EARLIEST, StartingOffset.LATEST
ANY = [None, *NotCommitted]


def bookmark(partition_count: int, topic_id: str | None = "id") -> str:
    return BookmarkNote(topic_id, partition_count).encode()


def stream(initial_partition_count: int, topic_id: str | None = "id") -> str:
    return CommitNote("q", topic_id, initial_partition_count, Offset(0), "l").encode()


# MirrorMaker has translated these offsets, and copied their metadata.
FOREIGN = [
    BookmarkNote("x", 1, 5, "another").encode(),
    CommitNote("q", "x", 1, Offset(0), "l", cluster_id="another").encode(),
]


def started(
    tp: TopicPartition,
    otherwise: NotCommitted | None,
    committed: dict[TopicPartition, tuple[int, str]],
    *,
    fail_on_data_loss: bool = True,
) -> int | StartingOffset:
    offsets = {at: CommittedOffset(Offset(offset), None, metadata) for at, (offset, metadata) in committed.items()}
    found = committed_starts({tp: otherwise}, offsets, TOPICS, group_id="g", fail_on_data_loss=fail_on_data_loss)
    return found[tp]


@pytest.mark.parametrize("otherwise", ANY)
@pytest.mark.parametrize("metadata", ["", "text", bookmark(1), bookmark(1, None), stream(1), stream(1, None), *FOREIGN])
def test_an_offset_decides(otherwise: NotCommitted | None, metadata: str) -> None:
    assert started(P1, otherwise, {P1: (7, metadata), P0: (3, "")}) == 7


@pytest.mark.parametrize(
    ("otherwise", "start"), [(None, EARLIEST), (NotCommitted.EARLIEST, EARLIEST), (NotCommitted.LATEST, LATEST)]
)
def test_the_option_decides_of_a_topic_without_offsets(otherwise: NotCommitted | None, start: StartingOffset) -> None:
    assert started(P1, otherwise, {}) is start


def test_a_topic_without_offsets_and_fail() -> None:
    with pytest.raises(ConfigurationError, match="'g' has no committed offset for t-1, nor for any partition"):
        started(P1, NotCommitted.FAIL, {})


@pytest.mark.parametrize("otherwise", ANY)
def test_an_added_partition_starts_at_its_beginning(otherwise: NotCommitted | None) -> None:
    assert started(P2, otherwise, {P0: (3, bookmark(2)), P1: (4, bookmark(2))}) is EARLIEST
    assert started(P2, otherwise, {P0: (3, bookmark(2)), P1: (4, "")}) is EARLIEST


@pytest.mark.parametrize(
    "metadata",
    [
        bookmark(3),  # a bookmark has committed all three
        stream(2),  # a stream may have read partitions that were added after it started the topic
        "",
        "text",
    ],
)
def test_a_partition_that_may_have_lost_its_offset(metadata: str) -> None:
    offsets = {P0: (3, metadata)}
    for otherwise in (None, NotCommitted.FAIL):
        with pytest.raises(ConfigurationError, match="'g' has no committed offset for t-2, but for other partitions"):
            started(P2, otherwise, offsets)
    for otherwise in (NotCommitted.EARLIEST, NotCommitted.LATEST):
        assert started(P2, otherwise, offsets) is EARLIEST


def test_the_last_bookmark_counts() -> None:
    """Another job of the group reads only some partitions, and its last bookmark is older."""
    with pytest.raises(ConfigurationError):
        started(P2, None, {P0: (3, bookmark(2)), P1: (4, bookmark(3))})


@pytest.mark.parametrize("note", [bookmark, stream])
@pytest.mark.parametrize("otherwise", ANY)
def test_offsets_of_a_topic_that_was_created_again_do_not_count(note: object, otherwise: NotCommitted | None) -> None:
    assert callable(note)
    stale = {P0: (3, note(2, "old"))}
    for tp in (P0, P2):
        with pytest.raises(
            DataLossError, match=r"t-0: the topic was deleted and created again\. .* from offset 3 on are lost"
        ):
            started(tp, otherwise, stale)
        assert started(tp, otherwise, stale, fail_on_data_loss=False) is EARLIEST
    mixed = {**stale, P1: (2, bookmark(3))}
    assert started(P1, otherwise, mixed, fail_on_data_loss=False) == 2
    assert started(P0, otherwise, mixed, fail_on_data_loss=False) is EARLIEST
