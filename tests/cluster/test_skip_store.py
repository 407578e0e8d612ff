"""Skip markers are durable, or an error reports that they are not."""

from __future__ import annotations

from typing import Any

import pytest

from pyspark_kafka_group.cluster import skip_store
from pyspark_kafka_group.cluster.cluster_answers import Answers, CommittedOffset
from pyspark_kafka_group.cluster.error_remedies import TryAgainError
from pyspark_kafka_group.cluster.skip_store import SkipStore, read_markers
from pyspark_kafka_group.offsets import notes
from pyspark_kafka_group.offsets.errors import AuthenticationError, BrokerError, OffsetFormatError
from pyspark_kafka_group.offsets.notes import SkipNote
from pyspark_kafka_group.offsets.skip_markers import SkipMarker
from pyspark_kafka_group.offsets.types import Offset, OffsetRange, TopicPartition

A, B, C = (TopicPartition("t", n) for n in range(3))
ONE, TWO = (SkipMarker(OffsetRange(Offset(start), Offset(start + 5)), 0) for start in (0, 5))
MARKERS = {A: (ONE,), B: (ONE, TWO)}


class FakeCluster:
    """A fake cluster that keeps committed offsets, or refuses them."""

    def __init__(self) -> None:
        self.stored: dict[TopicPartition, CommittedOffset] = {}
        self.refused: dict[TopicPartition, str] = {}

    def committed(self, group: str, partitions: Any, *, require_stable: bool) -> Answers[CommittedOffset]:
        assert require_stable
        assert group.startswith("g-skips-q-")
        found = {tp: stored for tp, stored in self.stored.items() if tp in partitions}
        return Answers(found, self.refused)

    def commit(self, group: str, member: str, generation: int, instance: None, offsets: Any) -> dict[Any, str]:
        assert (member, generation, instance) == ("", -1, None)
        assert group.startswith("g-skips-q-")
        self.stored |= {tp: CommittedOffset(*offset) for tp, offset in offsets.items() if tp not in self.refused}
        return self.refused

    def close(self) -> None: ...


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> FakeCluster:
    made = FakeCluster()
    monkeypatch.setattr(skip_store, "connect", lambda *_, **__: made)
    return made


@pytest.fixture
def store(cluster: FakeCluster) -> SkipStore:
    return SkipStore({}, group_id="g", query_id="q")


def test_marker_that_one_partition_refuses_is_not_taken_for_durable(store: SkipStore, cluster: FakeCluster) -> None:
    cluster.refused = {B: "UNKNOWN_TOPIC_OR_PARTITION"}
    with pytest.raises(TryAgainError, match="skip marker of t-1: UNKNOWN_TOPIC_OR_PARTITION"):
        store.write(MARKERS)
    with pytest.raises(TryAgainError, match="skip marker of t-1"):
        store.read([A, B])


def test_all_markers_of_a_partition_are_written_beside_the_beginning_of_the_newest(
    store: SkipStore, cluster: FakeCluster
) -> None:
    store.write(MARKERS)
    assert {tp: notes.read(stored.metadata) for tp, stored in cluster.stored.items()} == {
        tp: SkipNote(markers) for tp, markers in MARKERS.items()
    }
    assert [stored.offset for stored in cluster.stored.values()] == [0, 5]


def test_markers_are_found_again_and_an_offset_without_one_is_an_error(store: SkipStore, cluster: FakeCluster) -> None:
    store.write(MARKERS)
    assert store.read([A, B, C]) == MARKERS
    cluster.stored[C] = CommittedOffset(Offset(5), None, "someone else's")
    with pytest.raises(OffsetFormatError, match="skip marker"):
        store.read([A, B, C])


@pytest.mark.parametrize(
    "text", ["", "someone else's", '{"v":1,"m":7}', '{"v":2,"m":[[3,9,2]]}', '{"v":1,"m":[[3,9,2],[9,3,2]]}']
)
def test_metadata_that_is_no_marker_does_not_mean_that_nothing_was_skipped(
    store: SkipStore, cluster: FakeCluster, text: str
) -> None:
    """Regression: a marker of a newer version, or a damaged one, counted as none, and its records were lost.

    ``tests/offsets/test_notes.py`` has more texts that are no marker.
    """
    cluster.stored[A] = CommittedOffset(Offset(3), None, text)
    with pytest.raises(OffsetFormatError, match="cannot be read"):
        store.read([A])


class FakeStore:
    """A fake store with these answers, one for each read."""

    def __init__(self, *answers: Any) -> None:
        self.answers = list(answers)
        self.closed = False

    def read(self, _: object) -> Any:
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        return answer

    def close(self) -> None:
        self.closed = True


def read(store: FakeStore) -> Any:
    return read_markers(lambda: store, [A])  # type: ignore[arg-type,return-value]  # what it needs of a store


def test_markers_are_asked_for_until_the_cluster_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(skip_store, "_RETRY_S", 0.0)
    store = FakeStore(TryAgainError("loading"), TryAgainError("loading"), MARKERS)
    assert read(store) == MARKERS
    assert store.closed


def test_a_query_does_not_start_without_knowing_what_it_has_left_to_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(skip_store, "CONNECT_TIMEOUT_S", -1.0)
    store = FakeStore(TryAgainError("loading"))
    with pytest.raises(BrokerError, match=r"left to other queries: loading"):
        read(store)
    assert store.closed


def test_who_may_not_read_the_companion_group_does_not_start() -> None:
    """Regression: the query ignored the markers of a former run, so no query read the records that they name."""
    store = FakeStore(AuthenticationError("no"))
    with pytest.raises(AuthenticationError):
        read(store)
    assert store.closed
