"""A partition starts as the table of ``offsets/start_position.py`` says: one test per row, and the edge cases."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pyspark_kafka_group.offsets.batch_offset import PartitionEntry
from pyspark_kafka_group.offsets.commit_metadata import ANYBODY, CommitNote, Former
from pyspark_kafka_group.offsets.errors import (
    DataLossError,
    NoOffsetAtTimeError,
    OffsetRewindError,
    OutdatedCheckpointError,
)
from pyspark_kafka_group.offsets.notes import ResetNote
from pyspark_kafka_group.offsets.start_inputs import (
    NoMatch,
    PartitionInfo,
    ProcessedOffset,
    QueryInfo,
    RewindPolicy,
    StartingOffset,
    StartPolicy,
)
from pyspark_kafka_group.offsets.start_position import Start, decide_start
from pyspark_kafka_group.offsets.types import LeaderEpoch, Offset, OffsetRange, TopicPartition

TP = TopicPartition("t", 1)

ME, ANOTHER = "me", "another"
LOG, OLD_LOG = "id of the log", "id of the log before"
FIRST, SECOND, NEW = "first", "second", "new"
"""Lineages: of two starts of the group, and of the start that the test decides."""

BEFORE, NOW = LeaderEpoch(5), LeaderEpoch(7)

INFO = PartitionInfo(
    committed=None,
    log_start=Offset(10),
    log_end=Offset(90),
    high_watermark=Offset(100),
    topic_partitions=4,
    topic_started=False,
    initial_partition_count=None,
    topic_id=LOG,
    leader_epoch=NOW,
)
NAMELESS = replace(INFO, topic_id=None, leader_epoch=None)
"""The facts from brokers without topic ids and without leader epochs."""

EARLIEST = StartPolicy(group_id="g", default=StartingOffset.EARLIEST, explicit={}, fail_on_data_loss=True)
LATEST = replace(EARLIEST, default=StartingOffset.LATEST)
LENIENT = replace(EARLIEST, fail_on_data_loss=False)


def note(
    query: str = ANOTHER,
    since: int = 0,
    *,
    topic_id: str | None = LOG,
    lineage: str = FIRST,
    initial_partition_count: int = 4,
    former: tuple[Former, ...] = (),
) -> CommitNote:
    """Return the note of a committed offset, by default one of many commits of another query."""
    return CommitNote(query, topic_id, initial_partition_count, Offset(since), lineage, former)


def decide(
    committed: int | None = None,
    *,
    by: CommitNote | None = note(),  # noqa: B008  # never changed
    finished: int | None = None,
    processed_epoch: LeaderEpoch | None = NOW,
    processed_id: str | None = LOG,
    processed_lineage: str = FIRST,
    logged: PartitionEntry | None = None,
    recreated: bool = False,
    committed_epoch: LeaderEpoch | None = None,
    epoch_ends: Mapping[LeaderEpoch, int] | None = None,
    policy: StartPolicy = EARLIEST,
    info: PartitionInfo = INFO,
    tp: TopicPartition = TP,
) -> Start:
    """Decide the start: C is ``committed`` with the note ``by``; H is ``finished``, of the same log and lineage."""
    processed = (
        None
        if finished is None
        else ProcessedOffset(Offset(finished), processed_epoch, processed_id, processed_lineage)
    )
    told = replace(
        info,
        committed=None if committed is None else Offset(committed),
        note=None if committed is None else by,
        committed_leader_epoch=committed_epoch,
        epoch_ends={epoch: Offset(end) for epoch, end in (epoch_ends or {}).items()},
    )
    return decide_start(tp, told, QueryInfo(ME, NEW, processed, logged, recreated), policy)


def explicit(offset: int | StartingOffset, *, tp: TopicPartition = TP) -> StartPolicy:
    wanted = offset if isinstance(offset, StartingOffset) else Offset(offset)
    return replace(LATEST, explicit={tp: wanted})


def logged(
    start: int, until: int, *, leader_epoch: LeaderEpoch | None = NOW, topic_id: str | None = LOG
) -> PartitionEntry:
    """Return the range that the batch reads, which Spark will run again."""
    return PartitionEntry(OffsetRange(Offset(start), Offset(until)), leader_epoch, topic_id, FIRST)


# -- C, and no H or C >= H


@pytest.mark.parametrize("finished", [None, 30, 50])
def test_committed_offset_is_the_start_if_this_query_has_not_come_further(finished: int | None) -> None:
    start = decide(50, finished=finished)
    assert (start.position, start.committed, start.durable_first) == (50, 50, False)
    assert (start.rewound, start.recreated, start.lost, start.truncated_batch) == (False, False, None, False)


def test_a_start_has_the_leader_epoch_of_now() -> None:
    """The query has checked that the log has everything below the position."""
    assert decide(50).leader_epoch == NOW
    assert decide(40, finished=60).leader_epoch == NOW
    assert decide(4, policy=LENIENT).leader_epoch == NOW
    assert decide(50, info=NAMELESS).leader_epoch is None


def test_committed_offset_between_log_end_and_high_watermark_is_inside_the_log() -> None:
    """With read_committed, the log ends at the last stable offset.  The group may have read further earlier."""
    start = decide(95)
    assert (start.position, start.lost) == (95, None)


@pytest.mark.parametrize("finished", [None, 30, 50])
def test_nobodys_offset_that_is_not_below_the_processed_offset_is_followed_and_committed_once_more_under_our_name(
    finished: int | None,
) -> None:
    """An earlier consumer or an operator has set an offset without a note, so the query follows it."""
    start = decide(50, by=None, finished=finished)
    assert (start.position, start.committed, start.durable_first, start.rewound) == (50, 50, True, False)
    assert (start.note.query_id, start.note.lineage, start.note.since) == (ME, NEW, 50)


@pytest.mark.parametrize("lineage", [FIRST, SECOND])
def test_offset_that_another_query_has_raised_is_followed_whatever_it_descends_from(lineage: str) -> None:
    start = decide(70, by=note(lineage=lineage), finished=60)
    assert (start.position, start.durable_first, start.note.lineage) == (70, False, lineage)


# -- C < H, of the same start


@pytest.mark.parametrize("by", [note(ME, 0), note(ME, 40), note(ANOTHER, 0)], ids=["batch", "start", "another's"])
def test_own_processed_offset_is_the_start_if_the_group_has_less_of_the_same_lineage(by: CommitNote) -> None:
    """The query could not commit its last batch, or an older commit came late.  The next commit corrects both."""
    start = decide(40, by=by, finished=60)
    assert (start.position, start.committed, start.durable_first) == (60, 40, False)
    assert (start.rewound, start.note.lineage) == (False, FIRST)


# -- any other C < H, or no C although H exists


REWINDS = pytest.mark.parametrize(
    ("committed", "by", "finished"),
    [
        pytest.param(40, None, 60, id="by nobody"),
        pytest.param(49, None, 50, id="by one"),
        pytest.param(10, None, 11, id="to the beginning"),
        pytest.param(40, note(lineage=SECOND), 60, id="taken up by another query"),
        pytest.param(40, note(since=40, lineage=SECOND), 60, id="just taken up by another query"),
        pytest.param(None, None, 60, id="deleted"),
    ],
)


@REWINDS
def test_committed_offset_that_went_back_or_is_gone_is_a_rewind(
    committed: int | None, by: CommitNote | None, finished: int
) -> None:
    with pytest.raises(OffsetRewindError) as found:
        decide(committed, by=by, finished=finished)
    error = found.value
    assert (error.topic, error.partition) == TP
    assert (error.committed, error.finished) == (committed, finished)


@REWINDS
def test_rewind_with_checkpoint_goes_on_at_what_was_finished_and_has_to_be_committed(
    committed: int | None, by: CommitNote | None, finished: int
) -> None:
    policy = replace(LATEST, on_rewind=RewindPolicy.CHECKPOINT)
    start = decide(committed, by=by, finished=finished, policy=policy)
    assert (start.position, start.committed, start.rewound) == (finished, committed, True)
    assert start.durable_first == (committed is None)
    assert start.note.lineage == FIRST, "the group is put back to where it was"


@REWINDS
def test_rewind_with_group_follows_the_group(committed: int | None, by: CommitNote | None, finished: int) -> None:
    policy = replace(EARLIEST, on_rewind=RewindPolicy.GROUP)
    start = decide(committed, by=by, finished=finished, policy=policy)
    assert (start.position, start.rewound) == (10 if committed is None else committed, True)
    assert start.note.lineage == (NEW if by is None else by.lineage)
    assert start.durable_first == (by is None), "then it is committed under our name first"


LOST = QueryInfo(ME, NEW, read_before=True)
"""The checkpoint has a processed offset of another partition of the topic."""


def test_group_without_offsets_of_a_topic_that_this_query_has_read_is_a_rewind() -> None:
    with pytest.raises(OffsetRewindError, match="has no offsets of this topic") as found:
        decide_start(TP, INFO, LOST, LATEST)
    assert (found.value.committed, found.value.finished) == (None, None)


@pytest.mark.parametrize(
    ("policy", "position", "first"), [(RewindPolicy.CHECKPOINT, 10, 0), (RewindPolicy.GROUP, 90, 4)]
)
def test_partition_of_such_a_topic_begins_by_the_policy(policy: RewindPolicy, position: int, first: int) -> None:
    start = decide_start(TP, INFO, LOST, replace(LATEST, on_rewind=policy))
    assert (start.position, start.rewound, start.durable_first) == (position, True, True)
    assert start.note.initial_partition_count == first


@pytest.mark.parametrize(
    ("info", "policy"),
    [(replace(INFO, topic_started=True, initial_partition_count=4), LATEST),
     (INFO, replace(LATEST, keeps_offsets=False))],
    ids=["the group has others", "no group"],
)  # fmt: skip
def test_partition_that_nobody_has_begun_is_no_rewind(info: PartitionInfo, policy: StartPolicy) -> None:
    start = decide_start(TP, info, LOST, policy)
    assert (start.position, start.rewound) == (90, False)


@pytest.mark.parametrize("policy", [LATEST, explicit(50)])
def test_log_that_is_begun_anew_is_read_from_its_beginning_whatever_the_options_say(policy: StartPolicy) -> None:
    told = replace(INFO, topic_started=True, initial_partition_count=0)
    for start in (
        decide_start(TP, told, QueryInfo(ME, NEW), policy),
        decide_start(TP, INFO, QueryInfo(ME, NEW, begins_anew=True), policy),
    ):
        assert (start.position, start.note.initial_partition_count) == (10, 0)


@pytest.mark.parametrize(
    ("policy", "position"),
    [(EARLIEST, 10), (LATEST, 60), (explicit(50), 50), (explicit(70), 60), (replace(LATEST, time_ms=1000), 60)],
)
def test_rewind_with_group_to_a_deleted_offset_leaves_out_no_unread_record(policy: StartPolicy, position: int) -> None:
    """Regression: with `latest`, the query began at the log end, so no query read what came after its last batch."""
    info = replace(INFO, at_time=Offset(80))
    start = decide(None, finished=60, policy=replace(policy, on_rewind=RewindPolicy.GROUP), info=info)
    assert (start.position, start.committed, start.durable_first) == (position, None, True)
    assert (start.rewound, start.note.lineage) == (True, NEW)


def test_rewind_policy_does_not_matter_where_nothing_went_back() -> None:
    for policy in RewindPolicy:
        start = decide(40, finished=60, policy=replace(EARLIEST, on_rewind=policy))
        assert (start.position, start.committed, start.rewound) == (60, 40, False)


def test_a_reset_that_was_answered_is_not_a_reset_the_next_time() -> None:
    """With onOffsetRewind=group, the note and the next run's processed offset contain the new start."""
    back = decide(40, by=None, finished=60, policy=replace(EARLIEST, on_rewind=RewindPolicy.GROUP))
    again = decide(40, by=back.note, finished=50, processed_lineage=back.note.lineage)
    assert (again.position, again.rewound) == (50, False)


def reset_from(previous: int | None) -> PartitionInfo:
    return replace(INFO, reset=ResetNote("alice", 0, None if previous is None else Offset(previous)))


@pytest.mark.parametrize("finished", [40, 30])
def test_reset_below_what_another_query_has_processed_is_a_rewind_also_where_this_query_once_stood(
    finished: int,
) -> None:
    """Regression: an event reported it, but the query processed the records again, whatever onOffsetRewind said."""
    info = reset_from(70)
    with pytest.raises(OffsetRewindError, match=r"is back at 40, but the group had committed 70 before\. .*\[40, 70\)"):
        decide(40, by=None, finished=finished, info=info)
    start = decide(
        40, by=None, finished=finished, info=info, policy=replace(EARLIEST, on_rewind=RewindPolicy.CHECKPOINT)
    )
    assert (start.position, start.committed, start.rewound) == (70, 40, True)
    start = decide(40, by=None, finished=finished, info=info, policy=replace(EARLIEST, on_rewind=RewindPolicy.GROUP))
    assert (start.position, start.rewound) == (40, True)


@pytest.mark.parametrize("policy", RewindPolicy)
@pytest.mark.parametrize("finished", [60, 40, 30])
def test_a_reset_that_is_intended_is_accepted_once_whatever_the_policy(policy: RewindPolicy, finished: int) -> None:
    reset = reset_from(70).reset
    assert reset is not None
    info = replace(INFO, reset=reset._replace(intended=True))
    lenient = replace(EARLIEST, on_rewind=policy)
    start = decide(40, by=None, finished=finished, info=info, policy=lenient)
    assert (start.position, start.committed, start.rewound) == (40, 40, True)
    again = decide(40, by=start.note, finished=50, processed_lineage=start.note.lineage, policy=lenient)
    assert (again.position, again.rewound) == (50, False), "its own commit has replaced the note"


def test_reset_from_an_offset_that_the_log_has_lost_since_leaves_no_commit_above_the_start() -> None:
    """Otherwise the next owner would start there, and leave out the records between the start and the commit."""
    policy = replace(LENIENT, on_rewind=RewindPolicy.CHECKPOINT)
    start = decide(95, by=None, finished=60, info=reset_from(150), policy=policy)
    assert (start.position, start.lost, start.committed, start.durable_first) == (90, (100, 150), None, True)


@pytest.mark.parametrize("previous", [None, 30, 40])
def test_reset_to_the_same_offset_or_a_higher_one_is_no_rewind(previous: int | None) -> None:
    start = decide(40, by=None, finished=40, info=reset_from(previous))
    assert (start.position, start.rewound) == (40, False)


def test_new_query_begins_where_the_group_was_reset_to() -> None:
    start = decide(40, by=None, info=reset_from(70))
    assert (start.position, start.rewound) == (40, False)


# -- C is this query's own commit of a batch, and higher than anything in its checkpoint


def test_own_commit_of_a_batch_above_the_checkpoint_tells_that_it_is_an_old_copy() -> None:
    with pytest.raises(OutdatedCheckpointError) as found:
        decide(80, by=note(ME, 20), finished=60)
    error = found.value
    assert (error.topic, error.partition, error.committed, error.finished) == (*TP, 80, 60)


def test_own_commit_of_a_partition_that_the_checkpoint_does_not_know_tells_so_too() -> None:
    with pytest.raises(OutdatedCheckpointError) as found:
        decide(80, by=note(ME, 20))
    assert found.value.finished is None


@pytest.mark.parametrize("policy", [LENIENT, *(replace(LENIENT, on_rewind=on_rewind) for on_rewind in RewindPolicy)])
def test_no_option_makes_an_old_copy_of_the_checkpoint_good(policy: StartPolicy) -> None:
    with pytest.raises(OutdatedCheckpointError):
        decide(80, by=note(ME, 20), finished=60, policy=policy)


@pytest.mark.parametrize(
    "by",
    [
        pytest.param(note(ME, 80), id="own start"),
        pytest.param(note(ME, 85), id="own start, put back"),
        pytest.param(note(ANOTHER, 20), id="another query's batch"),
        pytest.param(None, id="nobody's"),
    ],
)
@pytest.mark.parametrize("finished", [None, 60])
def test_an_offset_above_the_checkpoint_that_is_not_own_work_is_the_start(
    by: CommitNote | None, finished: int | None
) -> None:
    assert decide(80, by=by, finished=finished).position == 80


@pytest.mark.parametrize("committed", [60, 70, 80])
def test_own_commit_within_the_unfinished_batch_is_no_sign_of_an_old_copy(committed: int) -> None:
    """The query finished and committed the batch, but the entry in Spark's commit log did not become durable."""
    start = decide(committed, by=note(ME, 20), finished=60, logged=logged(60, 80))
    assert (start.position, start.committed) == (committed, committed)


def test_own_commit_within_the_unfinished_batch_of_a_partition_that_is_new_to_the_checkpoint_is_no_such_sign() -> None:
    assert decide(80, by=note(ME, 20), logged=logged(20, 80)).position == 80


def test_own_commit_above_the_unfinished_batch_tells_that_the_checkpoint_is_an_old_copy() -> None:
    with pytest.raises(OutdatedCheckpointError):
        decide(81, by=note(ME, 20), finished=60, logged=logged(60, 80))


def test_unfinished_batch_of_another_log_does_not_explain_a_commit_in_this_one() -> None:
    with pytest.raises(OutdatedCheckpointError):
        decide(80, by=note(ME, 20), finished=60, logged=logged(60, 80, topic_id=OLD_LOG))


def test_former_commit_above_the_checkpoint_tells_of_an_old_copy_though_others_have_committed_since() -> None:
    with pytest.raises(OutdatedCheckpointError) as found:
        decide(80, by=note(ANOTHER, 70, former=(Former(ME, Offset(70)),)), finished=60)
    assert (found.value.committed, found.value.finished) == (70, 60)


def test_former_commit_before_an_own_start_tells_of_an_old_copy() -> None:
    with pytest.raises(OutdatedCheckpointError):
        decide(80, by=note(ME, 80, former=(Former(ME, Offset(70)), Former(ANOTHER, Offset(80)))), finished=60)


@pytest.mark.parametrize(
    "former",
    [
        pytest.param(Former(ME, Offset(60)), id="known to the checkpoint"),
        pytest.param(Former(ANYBODY, Offset(70)), id="anybody's"),
        pytest.param(Former(ANOTHER, Offset(70)), id="another query's"),
    ],
)
def test_former_commit_that_is_no_unknown_work_of_this_query_does_not_matter(former: Former) -> None:
    assert decide(80, by=note(ANOTHER, 75, former=(former,)), finished=60).position == 80


def test_former_commit_of_which_the_log_has_lost_the_end_counts_up_to_there() -> None:
    assert decide(60, by=note(ANOTHER, 60, former=(Former(ME, Offset(70)),)), finished=60).position == 60


def test_own_commit_after_a_reset_that_the_checkpoint_does_not_know_tells_of_an_old_copy() -> None:
    """The query has followed the reset, and the copy of its checkpoint is older than the reset."""
    with pytest.raises(OutdatedCheckpointError):
        decide(50, by=note(ME, 40, lineage="later"), finished=60, processed_lineage="before")


def test_own_commit_of_the_batch_that_ran_again_after_a_reset_is_no_sign_of_an_old_copy() -> None:
    """Spark's log contains the batch as the query planned it before the reset."""
    again = decide(60, by=note(ME, 40, lineage="later"), finished=60, processed_lineage="before")
    assert again.position == 60


# -- another log: the topic was deleted and created again


RECREATED = pytest.mark.parametrize(
    ("known", "finished", "position"),
    [
        pytest.param({"committed": 50, "by": note(topic_id=OLD_LOG)}, 50, 10, id="C"),
        pytest.param({"finished": 60, "processed_id": OLD_LOG}, 60, 10, id="H"),
        pytest.param(
            {"committed": 50, "by": note(topic_id=OLD_LOG), "finished": 60, "processed_id": OLD_LOG},
            60,
            10,
            id="both",
        ),
        pytest.param({"committed": 50, "by": note(ME, 0, topic_id=OLD_LOG)}, 50, 10, id="own C"),
        pytest.param({"committed": 160, "by": note(topic_id=OLD_LOG)}, 160, 10, id="C beyond the end"),
        pytest.param({"finished": 160, "processed_id": OLD_LOG}, 160, 10, id="H beyond the end"),
        pytest.param({"recreated": True}, None, 10, id="another partition's processed offset"),
        pytest.param({"committed": 30, "finished": 60, "processed_id": OLD_LOG}, 60, 30, id="H, and another has begun"),
        pytest.param(
            {"committed": 30, "by": None, "finished": 60, "processed_id": OLD_LOG}, 60, 30, id="H, and a reset since"
        ),
    ],
)


@RECREATED
def test_topic_that_was_created_again_is_an_error_that_says_so(
    known: dict[str, object], finished: int | None, position: int
) -> None:
    for on_rewind in RewindPolicy:
        with pytest.raises(DataLossError, match="was deleted and created again") as found:
            decide(**known, policy=replace(EARLIEST, on_rewind=on_rewind))  # type: ignore[arg-type]
        assert (found.value.topic, found.value.partition) == TP
        assert (found.value.lost_from, found.value.log_end) == (-1 if finished is None else finished, 100)


@RECREATED
def test_topic_that_was_created_again_is_read_from_its_beginning_where_loss_is_accepted(
    known: dict[str, object], finished: int | None, position: int
) -> None:
    """startingOffsets does not apply: the query was reading this topic, and continues where others have begun."""
    policy = replace(LATEST, fail_on_data_loss=False)
    start = decide(**known, policy=policy)  # type: ignore[arg-type]
    assert (start.position, start.recreated, start.rewound, start.lost) == (position, True, False, None)
    assert start.note.topic_id == LOG
    if position == 10:
        assert (start.committed, start.durable_first) == (None, True)
        assert (start.note.lineage, start.note.since) == (NEW, 10)


@pytest.mark.parametrize("policy", [EARLIEST, LENIENT], ids=["fail", "lenient"])
def test_own_start_commit_in_the_new_log_shows_that_it_was_begun(policy: StartPolicy) -> None:
    """The query began the new topic, and its process died before it logged a batch."""
    start = decide(10, by=note(ME, 10), finished=60, processed_id=OLD_LOG, policy=policy)
    assert (start.position, start.committed, start.recreated, start.lost) == (10, 10, False, None)


LATE_COMMIT = pytest.mark.parametrize("on_rewind", RewindPolicy)


@LATE_COMMIT
def test_late_commit_of_the_old_log_is_no_rewind_where_this_query_has_begun_the_new_one(
    on_rewind: RewindPolicy,
) -> None:
    """A former member has overwritten the commit.  The query continues at its own offset and commits it again."""
    policy = replace(EARLIEST, on_rewind=on_rewind)
    start = decide(50, by=note(topic_id=OLD_LOG), finished=20, policy=policy)
    assert (start.position, start.committed, start.durable_first) == (20, None, True)
    assert (start.recreated, start.rewound, start.lost) == (False, False, None)
    assert (start.note.topic_id, start.note.query_id) == (LOG, ME)


@LATE_COMMIT
def test_late_commit_of_the_old_log_does_not_hide_that_the_new_one_was_truncated(on_rewind: RewindPolicy) -> None:
    policy = replace(EARLIEST, on_rewind=on_rewind)
    with pytest.raises(DataLossError) as found:
        decide(50, by=note(topic_id=OLD_LOG), finished=150, policy=policy)
    assert (found.value.lost_from, found.value.lost_until) == (100, 150)


def test_offset_in_the_new_log_counts_though_another_partition_knows_the_old_one() -> None:
    start = decide(50, recreated=True)
    assert (start.position, start.recreated) == (50, False)


def test_old_copy_of_the_checkpoint_is_not_told_by_offsets_of_another_log() -> None:
    with pytest.raises(DataLossError, match="created again"):
        decide(80, by=note(ME, 20, topic_id=OLD_LOG), finished=60, processed_id=OLD_LOG)


@LATE_COMMIT
def test_late_commit_of_an_older_start_of_this_query_is_no_rewind(on_rewind: RewindPolicy) -> None:
    """Since that commit, the query has decided this start again and has read further."""
    policy = replace(EARLIEST, on_rewind=on_rewind)
    start = decide(20, by=note(ME, 20, lineage="a"), finished=50, processed_lineage="b", policy=policy)
    assert (start.position, start.committed, start.durable_first, start.rewound) == (50, None, True, False)
    assert start.note.lineage == "b"


@pytest.mark.parametrize(
    "by",
    [
        pytest.param(note(ME, 20, lineage="c"), id="a newer start"),
        pytest.param(note(ANOTHER, 20, lineage="a"), id="of another query"),
        pytest.param(note(ME, 10, lineage="a"), id="more than a start"),
    ],
)
def test_every_other_start_below_what_was_finished_is_a_rewind(by: CommitNote) -> None:
    with pytest.raises((OffsetRewindError, OutdatedCheckpointError)):
        decide(20, by=by, finished=50, processed_lineage="b")


# -- unknown topic ids


UNKNOWN_IDS = pytest.mark.parametrize(
    ("info", "processed_id"), [(NAMELESS, None), (NAMELESS, LOG), (INFO, None)], ids=["both", "brokers", "checkpoint"]
)


@UNKNOWN_IDS
def test_log_that_ends_below_the_processed_offset_and_has_no_committed_offset_is_a_new_one_and_not_a_rewind(
    info: PartitionInfo, processed_id: str | None
) -> None:
    with pytest.raises(DataLossError, match="created again"):
        decide(None, finished=160, info=info, processed_id=processed_id)


@UNKNOWN_IDS
def test_new_log_is_read_from_its_beginning_where_loss_is_allowed(
    info: PartitionInfo, processed_id: str | None
) -> None:
    start = decide(None, finished=160, info=info, processed_id=processed_id, policy=LENIENT)
    assert (start.position, start.durable_first, start.recreated) == (10, True, True)


def test_log_of_a_known_id_that_ends_below_the_processed_offset_was_truncated_and_not_created_again() -> None:
    with pytest.raises(DataLossError) as found:
        decide(None, finished=160)
    assert (found.value.lost_from, found.value.lost_until) == (100, 160)


@UNKNOWN_IDS
def test_without_ids_nothing_is_taken_for_another_log_that_is_long_enough(
    info: PartitionInfo, processed_id: str | None
) -> None:
    by = note(topic_id=None)
    assert decide(50, by=by, finished=40, info=info, processed_id=processed_id).position == 50
    assert decide(40, by=by, finished=60, info=info, processed_id=processed_id).position == 60


@UNKNOWN_IDS
def test_without_ids_and_commits_a_log_that_was_read_to_its_end_is_the_same_log(
    info: PartitionInfo, processed_id: str | None
) -> None:
    policy = replace(EARLIEST, on_rewind=RewindPolicy.CHECKPOINT)
    start = decide(None, finished=100, info=info, processed_id=processed_id, policy=policy)
    assert (start.position, start.recreated) == (100, False)


def test_processed_offset_without_a_leader_epoch_is_judged_by_the_end_of_the_log_alone() -> None:
    start = decide(40, finished=60, processed_epoch=None, epoch_ends={BEFORE: 50})
    assert (start.position, start.lost) == (60, None)


def test_leader_epoch_whose_end_nobody_has_told_is_judged_by_the_end_of_the_log_alone() -> None:
    assert decide(40, finished=60, processed_epoch=BEFORE).position == 60
    assert decide(50, committed_epoch=BEFORE).position == 50
    with pytest.raises(DataLossError):
        decide(120, committed_epoch=BEFORE)


# -- truncated, according to the ends of leader epochs


TRUNCATED = pytest.mark.parametrize(
    ("known", "lost"),
    [
        pytest.param({"committed": 40, "finished": 60, "processed_epoch": BEFORE}, (50, 60), id="H"),
        pytest.param({"committed": 60, "committed_epoch": BEFORE}, (50, 60), id="C"),
        pytest.param(
            {"committed": 60, "committed_epoch": BEFORE, "finished": 70, "processed_epoch": BEFORE},
            (50, 70),
            id="both",
        ),
        pytest.param(
            {"committed": 80, "committed_epoch": BEFORE, "finished": 70, "processed_epoch": BEFORE},
            (50, 80),
            id="C most",
        ),
        pytest.param({"committed": 60, "committed_epoch": BEFORE, "finished": 60}, (50, 60), id="C, not H"),
    ],
)


@TRUNCATED
def test_offset_above_the_end_of_its_leader_epoch_is_lost_data(known: dict[str, object], lost: tuple[int, int]) -> None:
    with pytest.raises(DataLossError, match=r"were truncated.*Other records have these offsets") as found:
        decide(**known, epoch_ends={BEFORE: 50})  # type: ignore[arg-type]
    assert (found.value.lost_from, found.value.lost_until) == lost
    assert (found.value.log_start, found.value.log_end) == (10, 100)


@TRUNCATED
def test_truncated_log_is_read_on_from_where_it_was_cut_where_loss_is_accepted(
    known: dict[str, object], lost: tuple[int, int]
) -> None:
    start = decide(**known, epoch_ends={BEFORE: 50}, policy=LENIENT)  # type: ignore[arg-type]
    whole_processed_offset = known.get("finished") == 60 and "processed_epoch" not in known
    assert start.position == (60 if whole_processed_offset else 50)
    assert (start.lost, start.leader_epoch) == (lost, NOW)
    assert (start.rewound, start.recreated) == (False, False)


def test_end_of_a_leader_epoch_counts_no_further_than_the_log() -> None:
    """The leader reports the end of the epoch after the end of the log, so the log may have grown in between."""
    start = decide(100, finished=120, processed_epoch=BEFORE, epoch_ends={BEFORE: 130}, policy=LENIENT)
    assert (start.position, start.lost) == (100, (100, 120))


def test_committed_offset_that_was_truncated_is_lowered_before_anything_is_planned() -> None:
    start = decide(60, committed_epoch=BEFORE, epoch_ends={BEFORE: 50}, policy=LENIENT)
    assert (start.committed, start.durable_first, start.note.lineage) == (None, True, FIRST)


def test_processed_offset_that_was_truncated_below_the_committed_offset_is_no_rewind() -> None:
    start = decide(50, finished=60, processed_epoch=BEFORE, epoch_ends={BEFORE: 50}, policy=LENIENT)
    assert (start.position, start.committed, start.durable_first, start.rewound) == (50, 50, False, False)


@pytest.mark.parametrize("end", [50, 60, 99])
def test_offset_at_or_below_the_end_of_its_leader_epoch_is_whole(end: int) -> None:
    start = decide(50, committed_epoch=BEFORE, finished=45, processed_epoch=BEFORE, epoch_ends={BEFORE: end})
    assert (start.position, start.lost) == (50, None)


def test_leader_epoch_cannot_end_behind_the_log() -> None:
    with pytest.raises(DataLossError):
        decide(120, committed_epoch=BEFORE, epoch_ends={BEFORE: 200})


# -- the batch that Spark will run again


def test_unfinished_batch_that_would_read_other_records_is_lost_data() -> None:
    with pytest.raises(DataLossError) as found:
        decide(40, finished=40, logged=logged(40, 60, leader_epoch=BEFORE), epoch_ends={BEFORE: 50})
    assert (found.value.lost_from, found.value.lost_until) == (50, 60)


def test_unfinished_batch_that_was_truncated_altogether_has_lost_its_whole_range() -> None:
    with pytest.raises(DataLossError) as found:
        decide(30, finished=30, logged=logged(40, 60, leader_epoch=BEFORE), epoch_ends={BEFORE: 30})
    assert (found.value.lost_from, found.value.lost_until) == (40, 60)


@pytest.mark.parametrize(
    ("batch", "epoch_ends", "lost"),
    [
        (logged(40, 60, leader_epoch=BEFORE), {BEFORE: 50}, (50, 60)),
        (logged(40, 60, leader_epoch=BEFORE), {BEFORE: 40}, (40, 60)),
        (logged(40, 120), {}, (100, 120)),
        (logged(40, 120, leader_epoch=None, topic_id=None), {}, (100, 120)),
    ],
)
def test_unfinished_batch_that_was_truncated_is_told_where_loss_is_accepted(
    batch: PartitionEntry, epoch_ends: dict[LeaderEpoch, int], lost: tuple[int, int]
) -> None:
    start = decide(40, finished=40, logged=batch, epoch_ends=epoch_ends, policy=LENIENT)
    assert (start.truncated_batch, start.lost, start.position) == (True, lost, 40)


@pytest.mark.parametrize(
    "batch",
    [
        pytest.param(logged(40, 50, leader_epoch=BEFORE), id="ends below"),
        pytest.param(logged(40, 60), id="of the leader of now"),
        pytest.param(logged(40, 60, leader_epoch=None), id="leader unknown"),
        pytest.param(logged(60, 60, leader_epoch=BEFORE), id="does not read the partition"),
        pytest.param(logged(40, 60, leader_epoch=BEFORE, topic_id=OLD_LOG), id="of another log"),
    ],
)
def test_unfinished_batch_whose_records_are_there_is_not_truncated(batch: PartitionEntry) -> None:
    start = decide(40, finished=40, logged=batch, epoch_ends={BEFORE: 50})
    assert (start.truncated_batch, start.lost) == (False, None)


# -- no C, no H: the group starts this topic


def test_first_start_at_earliest_is_the_log_start_and_has_to_be_committed_first() -> None:
    start = decide(policy=EARLIEST)
    assert (start.position, start.committed, start.durable_first) == (10, None, True)


def test_first_start_at_latest_is_the_log_end_of_the_readers() -> None:
    """This is the last stable offset, not the high watermark: the records of an open transaction are still to come."""
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
    info = replace(INFO, topic_started=True, initial_partition_count=1)
    start = decide(policy=LATEST, info=info)
    assert (start.position, start.durable_first) == (10, True)


def test_explicit_offset_counts_for_an_added_partition_too() -> None:
    info = replace(INFO, topic_started=True, initial_partition_count=1)
    assert decide(policy=explicit(42), info=info).position == 42


def test_partition_that_was_there_when_the_group_started_the_topic_follows_the_option() -> None:
    info = replace(INFO, topic_started=True, initial_partition_count=2)
    assert decide(policy=LATEST, info=info).position == 90


def test_partition_starts_at_its_beginning_if_the_topic_was_started_by_commits_without_a_count() -> None:
    """Another program has committed other partitions at an unknown time.  It would be worse to skip records."""
    info = replace(INFO, topic_started=True, initial_partition_count=None)
    assert decide(policy=LATEST, info=info).position == 10


def test_two_members_that_start_a_topic_at_the_same_time_both_follow_the_option() -> None:
    first = decide(policy=LATEST, tp=TopicPartition("t", 0))
    told = replace(
        INFO, topic_started=True, initial_partition_count=first.note.initial_partition_count, log_end=Offset(95)
    )
    second = decide(policy=LATEST, tp=TopicPartition("t", 1), info=told)
    assert (first.position, second.position) == (90, 95)


# -- the note that every commit carries


def test_first_commit_of_a_topic_carries_how_many_partitions_it_has() -> None:
    assert decide().note == CommitNote(ME, LOG, 4, Offset(10), NEW, (Former(ANYBODY, Offset(10)),))


def test_later_commits_carry_the_first_count_on_although_partitions_were_added() -> None:
    info = replace(INFO, topic_started=True, initial_partition_count=2, topic_partitions=8)
    assert decide(50, info=info).note.initial_partition_count == 2


def test_count_survives_a_start_that_skips_records() -> None:
    info = replace(INFO, topic_started=True, initial_partition_count=2)
    assert decide(5, info=info, policy=LENIENT).note.initial_partition_count == 2


def test_own_commits_go_on_from_where_this_query_has_taken_over() -> None:
    former = (Former(ME, Offset(5)), Former(ANOTHER, Offset(20)))
    start = decide(50, by=note(ME, 20, former=former), finished=60)
    assert start.others == OffsetRange(Offset(5), Offset(20))
    assert (start.note.since, start.note.lineage, start.note.former) == (20, FIRST, former)


def test_who_starts_without_an_offset_does_not_know_who_had_committed_below() -> None:
    """Regression: the group's offset may have been deleted, but the query took its own logged records for another's."""
    first = decide(None, policy=LATEST).note
    assert first.since == 90
    assert decide(90, by=first._replace(query_id=ANOTHER), finished=5).others == OffsetRange(Offset(90), Offset(90))


def test_what_another_program_has_committed_stays_its_own_after_a_restart() -> None:
    """Regression: after a second restart, the query read again a logged batch that another program had processed."""
    first = decide(50, by=None, finished=10)
    again = decide(50, by=first.note, finished=10)
    assert first.others == OffsetRange(Offset(0), Offset(50))
    assert again.others == first.others


def test_own_commits_go_on_from_where_the_log_was_truncated() -> None:
    ends = {BEFORE: Offset(45)}
    start = decide(
        50,
        by=note(ME, 48),
        finished=50,
        processed_epoch=BEFORE,
        committed_epoch=BEFORE,
        epoch_ends=ends,
        policy=LENIENT,
    )
    assert (start.position, start.note.since) == (45, 45)


@pytest.mark.parametrize(
    ("by", "others"),
    [
        (note(ANOTHER, 20), (0, 50)),
        (note(ANOTHER, 20, former=(Former(ME, Offset(10)), Former("third", Offset(20)))), (10, 50)),
        (note(ANOTHER, 20, former=(Former(ANYBODY, Offset(20)),)), (20, 50)),
        (note(ANOTHER, 70, former=(Former(ANYBODY, Offset(70)),)), (50, 50)),
        (None, (0, 50)),
    ],
    ids=["never this query", "this query", "forgotten", "put back", "nobody's"],
)
def test_what_others_have_processed_is_told_and_ends_where_this_query_takes_over(
    by: CommitNote | None, others: tuple[int, int]
) -> None:
    start = decide(50, by=by, finished=10)
    assert start.others == OffsetRange(Offset(others[0]), Offset(others[1]))
    assert start.note.since == 50


def test_without_a_committed_offset_others_have_processed_nothing_and_this_query_begins_at_its_position() -> None:
    start = decide(policy=explicit(42))
    assert (start.others, start.note.since) == (None, 42)


def test_a_start_that_skips_records_is_a_start_of_its_own() -> None:
    """If the start in the note equals the committed offset, the query has processed nothing yet."""
    start = decide(4, by=note(ME, 2), finished=4, policy=LENIENT)
    assert (start.position, start.note.since) == (10, 10)


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
    assert (start.position, start.lost) == (10, (4, 10))
    assert (start.committed, start.durable_first) == (4, True)


def test_own_processed_offset_below_the_log_is_judged_like_a_committed_offset() -> None:
    start = decide(2, finished=6, policy=LENIENT)
    assert (start.position, start.lost, start.committed) == (10, (6, 10), 2)


def test_start_beyond_the_log_is_an_error_with_the_exact_range() -> None:
    with pytest.raises(DataLossError) as found:
        decide(120)
    assert (found.value.lost_from, found.value.lost_until) == (100, 120)


def test_committed_offset_beyond_the_log_is_lowered_to_its_end_and_nothing_below_is_read_twice() -> None:
    """Deliberate: the high watermark, not the end for readers, because the group had passed that end before."""
    start = decide(120, finished=120, policy=LENIENT)
    assert (start.position, start.lost) == (100, (100, 120))
    assert (start.committed, start.durable_first) == (None, True)


@pytest.mark.parametrize(("offset", "lost"), [(5, (5, 10)), (101, (100, 101))])
def test_explicit_offset_outside_the_log_is_an_error_that_names_the_option(offset: int, lost: tuple[int, int]) -> None:
    """Regression: the error spoke of retention, or of a truncated log."""
    wrong = rf"t-1: the option 'startingOffsets' names the offset {offset}, but the log has \[10, 100\)\."
    with pytest.raises(DataLossError, match=wrong) as found:
        decide(policy=explicit(offset))
    assert (found.value.lost_from, found.value.lost_until) == lost


def test_offset_outside_the_log_that_the_query_or_the_group_knows_is_none_of_the_option() -> None:
    for committed, finished in ((5, None), (None, 5), (101, None), (101, 101)):
        policy = replace(explicit(101), on_rewind=RewindPolicy.CHECKPOINT)
        with pytest.raises(DataLossError, match=r"retention|truncated"):
            decide(committed, finished=finished, policy=policy)


@pytest.mark.parametrize("wanted", [101, 5000, 2**63 - 1])
def test_explicit_offset_beyond_the_log_goes_on_at_its_end_for_readers_if_loss_is_accepted(wanted: int) -> None:
    start = decide(policy=replace(explicit(wanted), fail_on_data_loss=False))
    assert (start.position, start.lost) == (90, (100, wanted))
    assert (start.committed, start.durable_first, start.note.since) == (None, True, 90)


@pytest.mark.parametrize("committed", [10, 100])
def test_both_ends_of_the_log_are_inside(committed: int) -> None:
    start = decide(committed)
    assert (start.position, start.lost, start.durable_first) == (committed, None, False)


def test_empty_log_starts_where_it_is() -> None:
    empty = replace(INFO, log_start=Offset(10), log_end=Offset(10), high_watermark=Offset(10))
    assert decide(policy=EARLIEST, info=empty).position == 10
    assert decide(policy=LATEST, info=empty).position == 10


# -- any combination of facts


some_offsets = st.integers(0, 30)
epochs = st.sampled_from([None, BEFORE, NOW])
log_ids = st.sampled_from([None, LOG, OLD_LOG])
lineages = st.sampled_from([FIRST, SECOND])
notes = st.none() | st.builds(
    lambda query, since, topic_id, lineage: note(query, since, topic_id=topic_id, lineage=lineage),
    st.sampled_from([ME, ANOTHER]),
    some_offsets,
    log_ids,
    lineages,
)
logs = st.lists(some_offsets, min_size=3, max_size=3).map(sorted)


@settings(max_examples=500)
@given(
    log=logs,
    committed=st.none() | some_offsets,
    by=notes,
    finished=st.none() | some_offsets,
    processed_epoch=epochs,
    processed_id=log_ids,
    processed_lineage=lineages,
    recreated=st.booleans(),
    committed_epoch=epochs,
    epoch_end=st.none() | some_offsets,
    batch=st.none() | st.tuples(some_offsets, some_offsets, epochs, log_ids),
    nameless=st.booleans(),
    strict=st.booleans(),
    on_rewind=st.sampled_from(RewindPolicy),
    default=st.sampled_from(StartingOffset),
)
def test_whatever_is_known_the_start_is_inside_the_log_or_a_named_error(
    log: list[int],
    committed: int | None,
    by: CommitNote | None,
    finished: int | None,
    processed_epoch: LeaderEpoch | None,
    processed_id: str | None,
    processed_lineage: str,
    recreated: bool,
    committed_epoch: LeaderEpoch | None,
    epoch_end: int | None,
    batch: tuple[int, int, LeaderEpoch | None, str | None] | None,
    nameless: bool,
    strict: bool,
    on_rewind: RewindPolicy,
    default: StartingOffset,
) -> None:
    first, stable, high = map(Offset, log)
    info = replace(NAMELESS if nameless else INFO, log_start=first, log_end=stable, high_watermark=high)
    policy = replace(EARLIEST, fail_on_data_loss=strict, on_rewind=on_rewind, default=default)
    to_replay = None
    if batch is not None:
        to_replay = logged(min(batch[:2]), max(batch[:2]), leader_epoch=batch[2], topic_id=batch[3])
    try:
        start = decide(
            committed,
            by=by,
            finished=finished,
            processed_epoch=processed_epoch,
            processed_id=processed_id,
            processed_lineage=processed_lineage,
            recreated=recreated,
            committed_epoch=committed_epoch,
            epoch_ends={} if epoch_end is None else {BEFORE: epoch_end},
            logged=to_replay,
            policy=policy,
            info=info,
        )
    except DataLossError:
        assert strict
        return
    except OffsetRewindError:
        assert on_rewind is RewindPolicy.FAIL
        return
    except OutdatedCheckpointError:
        assert by is not None
        assert ME[:12] in (by.query_id[:12], *(former.query for former in by.former))
        return
    assert first <= start.position <= high
    assert start.note.query_id == ME
    assert start.note.lineage in (NEW, FIRST, SECOND)
    assert start.leader_epoch == info.leader_epoch
    if strict:
        assert (start.lost, start.recreated, start.truncated_batch) == (None, False, False)
    if on_rewind is RewindPolicy.FAIL:
        assert not start.rewound
    if start.committed is None:
        assert start.durable_first, "nothing is planned before the group has an offset"
    elif start.committed > start.position:
        assert start.rewound or start.lost or start.recreated
    if start.others is not None:
        assert committed is not None
        assert start.others.until <= committed


# -- times


AT_TIME = replace(INFO, at_time=Offset(42))
SINCE = replace(LATEST, time_ms=1000)


@pytest.mark.parametrize(
    ("policy", "info", "expected"),
    [
        (SINCE, AT_TIME, 42),
        (SINCE, replace(AT_TIME, at_time=Offset(4)), 10),  # below the log start, which has moved since
        (replace(SINCE, no_match=NoMatch.LATEST), INFO, 90),
        (replace(LATEST, times_ms={TP: 1000}), AT_TIME, 42),
        (replace(SINCE, no_match=NoMatch.LATEST, explicit={TP: Offset(50)}), AT_TIME, 42),
    ],
)
def test_a_time_decides_where_the_group_starts(policy: StartPolicy, info: PartitionInfo, expected: int) -> None:
    start = decide(policy=policy, info=info)
    assert start.position == expected
    assert start.durable_first, "a later owner must not look again"


def test_a_committed_offset_goes_before_a_time() -> None:
    assert decide(50, policy=SINCE, info=AT_TIME).position == 50


def test_a_partition_that_was_added_later_starts_at_its_beginning_unless_it_has_a_time_of_its_own() -> None:
    later = replace(AT_TIME, topic_started=True, initial_partition_count=1)
    assert decide(policy=SINCE, info=later).position == 10
    assert decide(policy=replace(LATEST, times_ms={TP: 1000}), info=later).position == 42


@pytest.mark.parametrize(
    ("policy", "option"),
    [(SINCE, "startingTimestamp"), (replace(LATEST, times_ms={TP: 1000}), "startingOffsetsByTimestamp")],
)
def test_a_time_that_no_record_has_is_an_error(policy: StartPolicy, option: str) -> None:
    with pytest.raises(NoOffsetAtTimeError) as raised:
        decide(policy=policy)
    assert (raised.value.topic, raised.value.partition, raised.value.time_ms) == (TP.topic, TP.partition, 1000)
    assert raised.value.option == option


def test_a_topic_may_have_a_word_for_all_its_partitions() -> None:
    words = replace(EARLIEST, topics={TP.topic: StartingOffset.LATEST})
    assert decide(policy=words).position == 90
    assert decide(policy=replace(words, explicit={TP: Offset(50)})).position == 50
    later = replace(INFO, topic_started=True, initial_partition_count=1)
    assert decide(policy=words, info=later).position == 10


# -- `assign`: the checkpoint decides


ALONE = replace(EARLIEST, keeps_offsets=False)


def test_with_assign_the_checkpoint_is_gone_on_from() -> None:
    start = decide(finished=30, policy=ALONE)
    assert (start.position, start.rewound) == (30, False)
    assert start.note.lineage == FIRST, "it is the start of before"


@pytest.mark.parametrize("committed", [15, 50])
@pytest.mark.parametrize("by", [None, note("q"), note("another")], ids=["a tool", "this query", "another query"])
def test_with_assign_the_checkpoint_decides_whatever_the_group_has(committed: int, by: CommitNote | None) -> None:
    """Regression: after a reset the query ended with an error, or started at the group's offset."""
    start = decide(committed, by=by, finished=30, policy=ALONE)
    assert (start.position, start.rewound, start.lost) == (30, False, None)
    assert start.durable_first, "the group gets the offset back"


def test_with_assign_a_new_query_starts_at_the_offset_of_the_group_or_where_the_user_says() -> None:
    assert decide(50, policy=ALONE).position == 50
    assert decide(50, by=note("another"), policy=ALONE).position == 50
    assert decide(policy=ALONE).position == 10
    assert decide(policy=replace(ALONE, default=StartingOffset.LATEST)).position == 90


def test_with_assign_a_log_that_is_gone_is_lost_all_the_same() -> None:
    with pytest.raises(DataLossError):
        decide(finished=5, policy=ALONE)
    with pytest.raises(DataLossError):
        decide(finished=30, processed_id=OLD_LOG, policy=ALONE)
    assert decide(finished=5, policy=replace(ALONE, fail_on_data_loss=False)).position == 10


# -- leader epochs that have gone back


RESTORED = replace(INFO, leader_epoch=BEFORE)


@pytest.mark.parametrize("finished", [None, 50, 120])
def test_a_log_of_a_restored_cluster_ends_the_query(finished: int | None) -> None:
    with pytest.raises(DataLossError, match="leader epochs of this log have gone back") as found:
        decide(40, committed_epoch=NOW, by=note("another"), finished=finished, info=RESTORED)
    assert (found.value.topic, found.value.partition, found.value.log_end) == ("t", 1, 100)
    assert f"up to {finished or 40}" in str(found.value)


@pytest.mark.parametrize("finished", [50, 120], ids=["longer", "shorter"])
def test_where_loss_is_allowed_a_restored_log_is_read_from_its_beginning(finished: int) -> None:
    """From some unknown offset on, the log may have other records below the position than the query has read."""
    start = decide(finished, committed_epoch=NOW, finished=finished, info=RESTORED, policy=LENIENT)
    assert (start.position, start.recreated, start.rewound, start.lost) == (10, True, False, None)
    assert (start.durable_first, start.note.lineage) == (True, NEW)
    assert start.note.initial_partition_count == INFO.topic_partitions, "other partitions begin where they would have"


def test_what_another_query_has_begun_in_a_restored_log_is_gone_on_from() -> None:
    """Regression: each member read the log from its beginning again, or skipped to its end."""
    for finished in (50, 120):
        start = decide(30, by=note("another"), committed_epoch=BEFORE, finished=finished, info=RESTORED, policy=LENIENT)
        assert (start.position, start.recreated, start.lost) == (30, True, None)


def test_late_commit_of_before_the_restore_does_not_count() -> None:
    start = decide(
        70, committed_epoch=NOW, finished=20, processed_epoch=BEFORE, processed_lineage=SECOND, info=RESTORED
    )
    assert (start.position, start.committed, start.recreated, start.rewound) == (20, None, False, False)
    assert start.note.lineage == SECOND, "else a batch that was logged before looks like one of before a reset"


@pytest.mark.parametrize("committed", [15, 70])
def test_a_newer_commit_of_the_same_start_shows_that_the_log_was_restored(committed: int) -> None:
    """Regression: a query that was down in the newest epoch continued at its own offset."""
    with pytest.raises(DataLossError, match="restored from an older copy"):
        decide(committed, committed_epoch=NOW, finished=20, processed_epoch=BEFORE, info=RESTORED)
    start = decide(committed, committed_epoch=NOW, finished=20, processed_epoch=BEFORE, info=RESTORED, policy=LENIENT)
    assert (start.position, start.recreated, start.note.lineage) == (10, True, NEW)


def test_leader_epochs_of_a_topic_that_was_created_again_do_not_count_in_the_new_one() -> None:
    """Regression: the new topic looked restored, and each member that got a partition read it from its beginning."""
    start = decide(
        30, by=note("another"), committed_epoch=BEFORE, finished=5, processed_id=OLD_LOG, info=RESTORED, policy=LENIENT
    )
    assert (start.position, start.committed, start.durable_first) == (30, 30, False)


def test_logged_batch_of_before_the_restore_is_not_replayed() -> None:
    info = replace(RESTORED, committed_leader_epoch=BEFORE)
    start = decide(20, finished=20, processed_epoch=BEFORE, logged=logged(20, 30), info=info, policy=LENIENT)
    assert start.truncated_batch
