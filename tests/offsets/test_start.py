"""Where a partition starts: each row of the table of ``offsets/start.py``, and its edges."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pyspark_kafka_group.offsets.errors import DataLossError, OffsetRewindError
from pyspark_kafka_group.offsets.start import Facts, RewindPolicy, Start, StartingOffset, StartPolicy, decide_start
from pyspark_kafka_group.offsets.types import Offset, TopicPartition

TP = TopicPartition("t", 1)

FACTS = Facts(
    committed=None,
    log_start=Offset(10),
    log_end=Offset(90),
    high_watermark=Offset(100),
    topic_partitions=4,
    topic_started=False,
    first_partitions=None,
)
EARLIEST = StartPolicy(group_id="g", default=StartingOffset.EARLIEST, explicit={}, fail_on_data_loss=True)
LATEST = replace(EARLIEST, default=StartingOffset.LATEST)
LENIENT = replace(EARLIEST, fail_on_data_loss=False)


def decide(
    committed: int | None = None,
    *,
    finished: int | None = None,
    seen: int | None = None,
    policy: StartPolicy = EARLIEST,
    facts: Facts = FACTS,
    tp: TopicPartition = TP,
) -> Start:
    return decide_start(
        tp,
        replace(facts, committed=None if committed is None else Offset(committed)),
        finished=None if finished is None else Offset(finished),
        seen=None if seen is None else Offset(seen),
        policy=policy,
    )


def explicit(offset: int | StartingOffset, *, tp: TopicPartition = TP) -> StartPolicy:
    wanted = offset if isinstance(offset, StartingOffset) else Offset(offset)
    return replace(LATEST, explicit={tp: wanted})


# -- C, and no H or C >= H


@pytest.mark.parametrize(("finished", "seen"), [(None, None), (30, 20), (50, 50), (50, None), (None, 50)])
def test_committed_offset_is_the_start_if_this_query_has_not_come_further(
    finished: int | None, seen: int | None
) -> None:
    start = decide(50, finished=finished, seen=seen)
    assert (start.position, start.committed, start.durable_first) == (50, 50, False)


def test_committed_offset_between_log_end_and_high_watermark_is_inside_the_log() -> None:
    """Under read_committed the log ends at the last stable offset; the group may have read further before."""
    start = decide(95)
    assert (start.position, start.skipped) == (95, None)


# -- K <= C < H


@pytest.mark.parametrize("seen", [None, 20, 40])
def test_own_mark_is_the_start_if_what_this_query_finished_was_never_committed(seen: int | None) -> None:
    start = decide(40, finished=60, seen=seen)
    assert (start.position, start.committed, start.durable_first) == (60, 40, False)


# -- C < K, or no C although H or K exists


@pytest.mark.parametrize(
    ("committed", "finished", "seen"),
    [(40, 60, 50), (40, None, 50), (49, 50, 50), (None, 60, 50), (None, 60, None), (None, None, 50), (0, 1, 1)],
)
def test_committed_offset_that_went_back_or_is_gone_is_a_rewind(
    committed: int | None, finished: int | None, seen: int | None
) -> None:
    with pytest.raises(OffsetRewindError) as found:
        decide(committed, finished=finished, seen=seen)
    error = found.value
    assert (error.topic, error.partition) == TP
    assert (error.committed, error.finished, error.seen) == (committed, finished, seen)


REWINDS = pytest.mark.parametrize(
    ("committed", "finished", "seen", "checkpoint"),
    [(40, 60, 50, 60), (40, None, 50, 50), (40, 45, 50, 50), (None, 60, 50, 60), (None, 60, None, 60)],
)


@REWINDS
def test_rewind_with_checkpoint_goes_on_at_what_was_finished_and_has_to_be_committed(
    committed: int | None, finished: int | None, seen: int | None, checkpoint: int
) -> None:
    start = decide(committed, finished=finished, seen=seen, policy=replace(LATEST, on_rewind=RewindPolicy.CHECKPOINT))
    assert (start.position, start.committed, start.rewound) == (checkpoint, committed, True)
    assert start.durable_first == (committed is None)


@REWINDS
def test_rewind_with_group_follows_the_group(
    committed: int | None, finished: int | None, seen: int | None, checkpoint: int
) -> None:
    start = decide(committed, finished=finished, seen=seen, policy=replace(EARLIEST, on_rewind=RewindPolicy.GROUP))
    assert (start.position, start.rewound) == (10 if committed is None else committed, True)


def test_rewind_policy_does_not_matter_where_nothing_went_back() -> None:
    for policy in RewindPolicy:
        start = decide(40, finished=60, seen=30, policy=replace(EARLIEST, on_rewind=policy))
        assert (start.position, start.committed, start.rewound) == (60, 40, False)


def test_log_that_ends_below_the_mark_and_has_no_committed_offset_is_a_new_one_and_not_a_rewind() -> None:
    with pytest.raises(DataLossError, match="created again"):
        decide(None, finished=160, seen=160)


def test_new_log_is_read_from_its_beginning_where_loss_is_allowed() -> None:
    start = decide(None, finished=160, seen=160, policy=LENIENT)
    assert (start.position, start.durable_first, start.skipped) == (10, True, (100, 160))


# -- no C, no H: the group starts this topic


def test_first_start_at_earliest_is_the_log_start_and_has_to_be_committed_first() -> None:
    start = decide(policy=EARLIEST)
    assert (start.position, start.committed, start.durable_first) == (10, None, True)


def test_first_start_at_latest_is_the_log_end_of_the_readers() -> None:
    """The last stable offset, not the high watermark: what an open transaction holds is still to come."""
    start = decide(policy=LATEST)
    assert (start.position, start.committed, start.durable_first) == (90, None, True)


def test_first_start_at_an_explicit_offset_is_that_offset() -> None:
    assert decide(policy=explicit(42)).position == 42


@pytest.mark.parametrize(("word", "position"), [(StartingOffset.EARLIEST, 10), (StartingOffset.LATEST, 90)], ids=str)
def test_explicit_word_counts_for_its_partition(word: StartingOffset, position: int) -> None:
    policy = replace(explicit(word), default=StartingOffset.EARLIEST if position == 90 else StartingOffset.LATEST)
    assert decide(policy=policy).position == position


def test_explicit_offset_of_another_partition_does_not_count() -> None:
    assert decide(policy=explicit(42, tp=TopicPartition("t", 2))).position == 90


def test_explicit_offset_does_not_count_once_the_group_has_committed() -> None:
    assert decide(50, policy=explicit(42)).position == 50


# -- no C, no H: the partition was added later


def test_partition_that_was_added_to_a_started_topic_starts_at_its_beginning() -> None:
    facts = replace(FACTS, topic_started=True, first_partitions=1)
    start = decide(policy=LATEST, facts=facts)
    assert (start.position, start.durable_first) == (10, True)


def test_explicit_offset_counts_for_an_added_partition_too() -> None:
    facts = replace(FACTS, topic_started=True, first_partitions=1)
    assert decide(policy=explicit(42), facts=facts).position == 42


def test_partition_that_was_there_when_the_group_started_the_topic_follows_the_option() -> None:
    facts = replace(FACTS, topic_started=True, first_partitions=2)
    assert decide(policy=LATEST, facts=facts).position == 90


def test_partition_starts_at_its_beginning_if_the_topic_was_started_by_commits_without_a_count() -> None:
    """Another program has committed other partitions: nobody knows when; skipping records would be worse."""
    facts = replace(FACTS, topic_started=True, first_partitions=None)
    assert decide(policy=LATEST, facts=facts).position == 10


def test_two_members_that_start_a_topic_at_the_same_time_both_follow_the_option() -> None:
    first = decide(policy=LATEST, tp=TopicPartition("t", 0))
    told = replace(FACTS, topic_started=True, first_partitions=first.first_partitions, log_end=Offset(95))
    second = decide(policy=LATEST, tp=TopicPartition("t", 1), facts=told)
    assert (first.position, second.position) == (90, 95)


# -- the count that every commit carries


def test_first_commit_of_a_topic_carries_how_many_partitions_it_has() -> None:
    assert decide().first_partitions == 4


def test_later_commits_carry_the_first_count_on_although_partitions_were_added() -> None:
    facts = replace(FACTS, topic_started=True, first_partitions=2, topic_partitions=8)
    assert decide(50, facts=facts).first_partitions == 2


def test_count_survives_a_start_that_skips_records() -> None:
    facts = replace(FACTS, topic_started=True, first_partitions=2)
    assert decide(5, facts=facts, policy=LENIENT).first_partitions == 2


# -- outside the log


def test_start_below_the_log_is_an_error_with_the_exact_range() -> None:
    with pytest.raises(DataLossError) as found:
        decide(4)
    error = found.value
    assert (error.topic, error.partition) == TP
    assert (error.lost_from, error.lost_until) == (4, 10)
    assert (error.log_start, error.log_end) == (10, 100)


def test_start_below_the_log_goes_on_at_its_beginning_if_loss_is_accepted() -> None:
    start = decide(4, policy=LENIENT)
    assert (start.position, start.skipped) == (10, (4, 10))
    assert (start.committed, start.durable_first) == (4, True)


def test_own_mark_below_the_log_is_judged_like_a_committed_offset() -> None:
    start = decide(2, finished=6, seen=2, policy=LENIENT)
    assert (start.position, start.skipped, start.committed) == (10, (6, 10), 2)


def test_start_beyond_the_log_is_an_error_with_the_exact_range() -> None:
    with pytest.raises(DataLossError) as found:
        decide(120)
    assert (found.value.lost_from, found.value.lost_until) == (100, 120)


def test_start_in_a_recreated_topic_goes_on_at_the_log_end_and_forgets_the_old_offset() -> None:
    start = decide(120, finished=120, seen=120, policy=LENIENT)
    assert (start.position, start.skipped) == (90, (100, 120))
    assert (start.committed, start.durable_first) == (None, True)


def test_explicit_offset_outside_the_log_is_judged_like_any_other() -> None:
    with pytest.raises(DataLossError):
        decide(policy=explicit(5))
    with pytest.raises(DataLossError):
        decide(policy=explicit(101))


@pytest.mark.parametrize("committed", [10, 100])
def test_both_ends_of_the_log_are_inside(committed: int) -> None:
    start = decide(committed)
    assert (start.position, start.skipped, start.durable_first) == (committed, None, False)


def test_empty_log_starts_where_it_is() -> None:
    empty = replace(FACTS, log_start=Offset(10), log_end=Offset(10), high_watermark=Offset(10))
    assert decide(policy=EARLIEST, facts=empty).position == 10
    assert decide(policy=LATEST, facts=empty).position == 10
