"""Topics that are created or deleted between the starts of a query."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import cast

import pytest

from pyspark_kafka_group.cluster.error_remedies import TryAgainError
from pyspark_kafka_group.cluster.group_offsets import GroupOffsets
from pyspark_kafka_group.coordinator.absent_topics import added_partitions, first_topics, tell_of_deleted
from pyspark_kafka_group.coordinator.handover import events
from pyspark_kafka_group.coordinator.handover.inputs import Restored
from pyspark_kafka_group.coordinator.handover.state import State
from pyspark_kafka_group.coordinator.handover.step import step
from pyspark_kafka_group.coordinator.settings import CommitMode, GroupSettings
from pyspark_kafka_group.offsets import lasting
from pyspark_kafka_group.offsets.batch_offset import INITIAL, BatchOffset
from pyspark_kafka_group.offsets.errors import AuthenticationError, BrokerError, DataLossError, UnknownTopicError
from pyspark_kafka_group.offsets.types import TopicPartition
from tests.coordinator.fakes import FakeOffsets, InlineWorker
from tests.coordinator.machine import EMPTY, POLICY, A, B, entry

END = BatchOffset("q", {A: entry(0, 10)})


def _settings(pattern: str | None) -> GroupSettings:
    return GroupSettings(
        properties={},
        group_id="g",
        topics=(),
        pattern=pattern,
        commit_mode=CommitMode.TRANSACTION,
        drain_timeout_s=1.0,
        read_committed=True,
        start=POLICY,
    )


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Treat a missing topic as deleted at once."""
    monkeypatch.setattr(lasting, "GONE_S", 0.0)


class Start:
    """The start of a query that has finished, or only logged, a batch of topic ``t``."""

    def __init__(self, *, tolerates: bool = False, finished: bool = True) -> None:
        policy = replace(POLICY, fail_on_data_loss=not tolerates)
        restored = Restored(END, "q", {}, None) if finished else Restored(INITIAL, "q", {}, END)
        self.state, _ = step(replace(EMPTY, policy=policy), restored)
        self.offsets = FakeOffsets()
        self.offsets.missing = frozenset({"t"})
        self.told: list[events.Event] = []

    def __call__(self, *topics: str, pattern: str | None = "t|u") -> State:
        return tell_of_deleted(
            replace(_settings(pattern), start=self.state.policy),
            self.state,
            topics,
            client_id="etl",
            offsets=cast(GroupOffsets, self.offsets),
            worker=InlineWorker(),
            emit=self.told.append,
            patience_s=0,
        )


@pytest.mark.parametrize("topics", [("u",), ()])
def test_a_topic_that_is_gone_ends_the_query(topics: tuple[str, ...]) -> None:
    with pytest.raises(DataLossError, match=r"Topic deleted: t\."):
        Start()(*topics)


@pytest.mark.parametrize("topics", [("u",), ()])
@pytest.mark.parametrize("finished", [True, False])
def test_where_loss_is_allowed_it_is_told(topics: tuple[str, ...], finished: bool) -> None:
    start = Start(tolerates=True, finished=finished)

    assert start(*topics).deleted == {A}
    assert start.told == [events.LogChanged(partitions=(A,), change="deleted", ranges={})]


@pytest.mark.parametrize(("topics", "pattern"), [(("t", "u"), "t|u"), (("u",), "u"), ((), None)])
def test_what_is_there_or_not_subscribed_is_not_asked_for(topics: tuple[str, ...], pattern: str | None) -> None:
    start = Start()

    assert start(*topics, pattern=pattern) == start.state
    assert start.offsets.asked == []


def test_a_topic_that_only_this_look_has_missed_is_not_gone() -> None:
    start = Start()
    start.offsets.missing = frozenset()

    assert start("u") == start.state


def test_a_topic_that_may_not_be_described_any_more_is_not_gone(caplog: pytest.LogCaptureFixture) -> None:
    start = Start()
    start.offsets.problem = AuthenticationError("DESCRIBE on t is missing")

    with caplog.at_level(logging.WARNING):
        assert start("u") == start.state
    assert "were deleted, and continues: DESCRIBE on t is missing" in caplog.text


def test_brokers_that_do_not_answer_end_the_start() -> None:
    start = Start()
    start.offsets.problem = TryAgainError("nobody answers")

    with pytest.raises(BrokerError, match=r"were deleted: t \(nobody answers\)"):
        start("u")


def test_a_batch_that_runs_again_needs_what_it_has_read_and_is_still_there() -> None:
    start = Start(finished=False)
    start.offsets.missing = frozenset()

    with pytest.raises(UnknownTopicError):
        start()


@pytest.mark.parametrize(
    ("start", "unfinished", "by_name", "by_pattern"),
    [
        (INITIAL, None, {"t", "new"}, {"t", "new"}),
        (INITIAL, END, {"t"}, {"t"}),
        (INITIAL, BatchOffset("q", {}), {"t", "new"}, {"t", "new"}),  # the query had no partitions
        (END, None, {"t"}, set()),
        (END, END, {"t"}, set()),
        (BatchOffset("q", {}), None, {"t", "new"}, set()),  # the first batch was empty, because no topic existed
        (BatchOffset("q", {}, first=("t",)), None, {"t"}, {"t"}),  # because the group was slow
        (BatchOffset("q", {A: entry(0, 5)}, first=("u",)), None, {"t", "u"}, {"u"}),  # one topic had no leader
    ],
    ids=[
        "the first start",
        "its batch runs again",
        "it has read nothing",
        "a restart",
        "a batch runs again",
        "a restart after an empty batch without topics",
        "a restart after an empty batch",
        "a restart after a batch without one topic",
    ],
)
def test_which_topics_were_there_at_the_first_start(
    start: BatchOffset, unfinished: BatchOffset | None, by_name: set[str], by_pattern: set[str]
) -> None:
    """Regression: topics that were created after a failed first batch, or added to `subscribe`, started at `latest`.

    Regression: with a pattern, `latest` was ignored after a restart whose first batch was empty.
    """
    topics = frozenset({"t", "new"})
    assert first_topics(_settings("t|new"), topics, start, unfinished) == by_pattern
    assert first_topics(_settings(None), topics, start, unfinished) == by_name
    without_group = replace(_settings(None), start=replace(POLICY, keeps_offsets=False))
    assert first_topics(without_group, topics, start, unfinished) == by_pattern


@pytest.mark.parametrize(
    ("start", "unfinished", "added"),
    [
        (INITIAL, None, set()),
        (INITIAL, END, {B}),
        (END, None, {B}),
        (END, BatchOffset("q", {A: entry(10, 20), B: entry(0, 5)}), set()),
        (BatchOffset("q", {}), None, set()),
    ],
    ids=["the first start", "its batch runs again", "a restart", "its next batch runs again", "it has read nothing"],
)
def test_which_partitions_were_added_to_assign(
    start: BatchOffset, unfinished: BatchOffset | None, added: set[TopicPartition]
) -> None:
    """A partition of a topic that the checkpoint does not contain was added with its topic."""
    other = TopicPartition("other", 0)
    assert added_partitions(replace(_settings(None), partitions=(A, B, other)), start, unfinished) == added
    assert not added_partitions(_settings(None), start, unfinished)
