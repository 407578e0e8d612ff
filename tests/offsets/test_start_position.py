"""A partition starts as the table of ``offsets/start_position.py`` says: rows for each of its rows, and the edges."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

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
from pyspark_kafka_group.offsets.notes import BookmarkNote, ResetNote
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
ALONE = replace(EARLIEST, keeps_offsets=False)
"""The policy of ``assign``."""


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
    by: CommitNote | BookmarkNote | None = note(),  # noqa: B008  # never changed
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
    beside = None if committed is None else by
    told = replace(
        info,
        committed=None if committed is None else Offset(committed),
        note=beside if isinstance(beside, CommitNote) else None,
        bookmark=beside if isinstance(beside, BookmarkNote) else None,
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


Facts = dict[str, Any]


def known(committed: int | None = None, **facts: Any) -> Facts:
    """Return arguments of :func:`decide`."""
    return {"committed": committed, **facts}


def at(position: int, committed: int | None, **differs: Any) -> Facts:
    """Return what a start must be: without anything unusual, but for ``differs``."""
    usual = {"durable_first": False, "rewound": False, "recreated": False, "lost": None, "truncated_batch": False}
    return {"position": position, "committed": committed, **usual, **differs}


def rows(cases: Mapping[str, tuple[Facts, Any]]) -> pytest.MarkDecorator:
    """Run a test for each row: its name, the facts, and what they call for."""
    return pytest.mark.parametrize(("facts", "expected"), cases.values(), ids=cases.keys())


def check(facts: Facts, expected: Facts) -> None:
    start = decide(**facts)
    found = {name: getattr(start if hasattr(start, name) else start.note, name) for name in expected}
    assert found == expected


def lost_by(**facts: Any) -> tuple[int, int]:
    """Return the range that the error names."""
    with pytest.raises(DataLossError) as found:
        decide(**facts)
    error = found.value
    assert ((error.topic, error.partition), error.log_start, error.log_end) == (TP, 10, 100)
    return error.lost_from, error.lost_until


# -- C, and no H or C >= H; or C < H, of the same start


@rows(
    {
        "C": (known(50), at(50, 50)),
        "C > H": (known(50, finished=30), at(50, 50)),
        "C = H": (known(50, finished=50), at(50, 50)),
        "the beginning of the log": (known(10), at(10, 10)),
        "the end of the log": (known(100), at(100, 100)),
        # With read_committed, the log ends at the last stable offset.  The group may have read further earlier.
        "beyond the last stable offset": (known(95), at(95, 95)),
        # An earlier consumer or an operator has set an offset without a note, so the query follows it.
        "nobody's": (known(50, by=None), at(50, 50, durable_first=True, query_id=ME, lineage=NEW, since=50)),
        "nobody's > H": (known(50, by=None, finished=30), at(50, 50, durable_first=True, lineage=NEW)),
        "a bookmark's": (known(50, by=BookmarkNote(LOG, 4)), at(50, 50, durable_first=True, lineage=NEW, since=50)),
        "nobody's = H": (known(50, by=None, finished=50), at(50, 50, durable_first=True, lineage=NEW)),
        "raised by another query": (known(70, finished=60), at(70, 70, lineage=FIRST)),
        "raised, of another start": (known(70, by=note(lineage=SECOND), finished=60), at(70, 70, lineage=SECOND)),
        # The query could not commit its last batch, or an older commit came late.  The next commit corrects both.
        "H > C, an own batch": (known(40, by=note(ME, 0), finished=60), at(60, 40, lineage=FIRST)),
        "H > C, an own start": (known(40, by=note(ME, 40), finished=60), at(60, 40, lineage=FIRST)),
        "H > C, another's": (known(40, finished=60), at(60, 40, lineage=FIRST)),
    }
)
def test_the_further_offset_of_one_start_is_the_start(facts: Facts, expected: Facts) -> None:
    check(facts, expected)


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


def answered(policy: RewindPolicy, base: StartPolicy = EARLIEST) -> StartPolicy:
    return replace(base, on_rewind=policy)


@REWINDS
def test_committed_offset_that_went_back_or_is_gone_is_a_rewind(
    committed: int | None, by: CommitNote | None, finished: int
) -> None:
    with pytest.raises(OffsetRewindError) as found:
        decide(committed, by=by, finished=finished)
    error = found.value
    assert ((error.topic, error.partition), error.committed, error.finished) == (TP, committed, finished)


@REWINDS
def test_rewind_is_answered_by_the_policy(committed: int | None, by: CommitNote | None, finished: int) -> None:
    facts = known(committed, by=by, finished=finished)
    back = at(finished, committed, rewound=True, durable_first=committed is None, lineage=FIRST)
    check({**facts, "policy": answered(RewindPolicy.CHECKPOINT, LATEST)}, back)
    position = 10 if committed is None else committed
    forth = at(position, committed, rewound=True, durable_first=by is None, lineage=NEW if by is None else by.lineage)
    check({**facts, "policy": answered(RewindPolicy.GROUP)}, forth)


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
    start = decide_start(TP, INFO, LOST, answered(policy, LATEST))
    assert (start.position, start.rewound, start.durable_first) == (position, True, True)
    assert start.note.initial_partition_count == first


def test_partition_that_nobody_has_begun_is_no_rewind() -> None:
    started = replace(INFO, topic_started=True, initial_partition_count=4)
    for info, policy in ((started, LATEST), (INFO, replace(LATEST, keeps_offsets=False))):
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
    facts = known(finished=60, policy=answered(RewindPolicy.GROUP, policy), info=replace(INFO, at_time=Offset(80)))
    check(facts, at(position, None, durable_first=True, rewound=True, lineage=NEW))


@pytest.mark.parametrize("policy", RewindPolicy)
def test_rewind_policy_does_not_matter_where_nothing_went_back(policy: RewindPolicy) -> None:
    check(known(40, finished=60, policy=answered(policy)), at(60, 40))


def test_a_reset_that_was_answered_is_not_a_reset_the_next_time() -> None:
    """With onOffsetRewind=group, the note and the next run's processed offset contain the new start."""
    back = decide(40, by=None, finished=60, policy=answered(RewindPolicy.GROUP))
    check(known(40, by=back.note, finished=50, processed_lineage=back.note.lineage), at(50, 40))


def reset_from(previous: int | None, *, intended: bool = False) -> PartitionInfo:
    before = None if previous is None else Offset(previous)
    return replace(INFO, reset=ResetNote("alice", 0, before, intended=intended))


@pytest.mark.parametrize("finished", [40, 30])
def test_reset_below_what_another_query_has_processed_is_a_rewind_also_where_this_query_once_stood(
    finished: int,
) -> None:
    """Regression: an event reported it, but the query processed the records again, whatever onOffsetRewind said."""
    facts = known(40, by=None, finished=finished, info=reset_from(70))
    with pytest.raises(OffsetRewindError, match=r"is back at 40, but the group had committed 70 before\. .*\[40, 70\)"):
        decide(**facts)
    check({**facts, "policy": answered(RewindPolicy.CHECKPOINT)}, at(70, 40, rewound=True))
    check({**facts, "policy": answered(RewindPolicy.GROUP)}, at(40, 40, rewound=True, durable_first=True))


@pytest.mark.parametrize("policy", RewindPolicy)
@pytest.mark.parametrize("finished", [60, 40, 30])
def test_a_reset_that_is_intended_is_accepted_once_whatever_the_policy(policy: RewindPolicy, finished: int) -> None:
    info = reset_from(70, intended=True)
    start = decide(40, by=None, finished=finished, info=info, policy=answered(policy))
    assert (start.position, start.committed, start.rewound) == (40, 40, True)
    again = known(40, by=start.note, finished=50, processed_lineage=start.note.lineage, policy=answered(policy))
    check(again, at(50, 40))  # its own commit has replaced the note


@pytest.mark.parametrize("policy", RewindPolicy)
def test_a_reset_that_is_intended_is_accepted_by_the_next_owner_too(policy: RewindPolicy) -> None:
    """Regression: the first query's commit replaced the note, and the second one failed."""
    first = decide(40, by=None, finished=60, info=reset_from(70, intended=True), policy=answered(policy))
    taken = first.note._replace(query_id="another")
    second = decide(50, by=taken, finished=70, policy=answered(policy))
    assert (second.position, second.rewound, second.note.intended) == (50, True, True)
    # A later reset needs a decision of its own, and a commit of an earlier start that arrives late is no reset.
    later = known(45, by=taken._replace(lineage=SECOND, intended=False), finished=70, processed_lineage=NEW)
    check({**later, "policy": answered(RewindPolicy.CHECKPOINT)}, at(70, 45, rewound=True))
    late = known(45, by=taken, finished=70, processed_lineage=SECOND)
    check({**late, "policy": answered(RewindPolicy.CHECKPOINT)}, at(70, 45, rewound=True))


def test_reset_from_an_offset_that_the_log_has_lost_since_leaves_no_commit_above_the_start() -> None:
    """Otherwise the next owner would start there, and leave out the records between the start and the commit."""
    facts = known(95, by=None, finished=60, info=reset_from(150), policy=answered(RewindPolicy.CHECKPOINT, LENIENT))
    check(facts, at(90, None, durable_first=True, rewound=True, lost=(100, 150)))


@rows(
    {
        "from nothing": (known(finished=40, info=reset_from(None)), None),
        "forth": (known(finished=40, info=reset_from(30)), None),
        "to the same": (known(finished=40, info=reset_from(40)), None),
        "of a new query": (known(info=reset_from(70)), None),
    }
)
def test_reset_that_takes_nothing_back_is_no_rewind(facts: Facts, expected: None) -> None:
    check({**facts, "committed": 40, "by": None}, at(40, 40, durable_first=True))


# -- C is this query's own commit of a batch, and higher than anything in its checkpoint


def former(*owners: tuple[str, int]) -> tuple[Former, ...]:
    return tuple(Former(query, Offset(until)) for query, until in owners)


@rows(
    {
        "its own": (known(80, by=note(ME, 20), finished=60), (80, 60)),
        "of an unknown partition": (known(80, by=note(ME, 20)), (80, None)),
        "above the unfinished batch": (known(81, by=note(ME, 20), finished=60, logged=logged(60, 80)), (81, 60)),
        "beside an unfinished batch of another log": (
            known(80, by=note(ME, 20), finished=60, logged=logged(60, 80, topic_id=OLD_LOG)),
            (80, 60),
        ),
        "before another query's": (known(80, by=note(ANOTHER, 70, former=former((ME, 70))), finished=60), (70, 60)),
        "before an own start": (
            known(80, by=note(ME, 80, former=former((ME, 70), (ANOTHER, 80))), finished=60),
            (70, 60),
        ),
        # The query has followed the reset, and the copy of its checkpoint is older than the reset.
        "after a reset": (known(50, by=note(ME, 40, lineage=SECOND), finished=60), (50, 60)),
    }
)
def test_own_commit_above_the_checkpoint_tells_that_it_is_an_old_copy(
    facts: Facts, expected: tuple[int, int | None]
) -> None:
    for policy in (EARLIEST, *(answered(on_rewind, LENIENT) for on_rewind in RewindPolicy)):
        with pytest.raises(OutdatedCheckpointError) as found:
            decide(**facts, policy=policy)
        assert (found.value.topic, found.value.partition) == TP
        assert (found.value.committed, found.value.finished) == expected


@rows(
    {
        "own start": (known(80, by=note(ME, 80), finished=60), 80),
        "own start, new to the checkpoint": (known(80, by=note(ME, 80)), 80),
        "own start, put back": (known(80, by=note(ME, 85), finished=60), 80),
        "another query's batch": (known(80, by=note(ANOTHER, 20), finished=60), 80),
        "nobody's": (known(80, by=None, finished=60), 80),
        # The query finished and committed the batch, but the entry in Spark's commit log did not become durable.
        "begin of the unfinished batch": (known(60, by=note(ME, 20), finished=60, logged=logged(60, 80)), 60),
        "within it": (known(70, by=note(ME, 20), finished=60, logged=logged(60, 80)), 70),
        "end of it": (known(80, by=note(ME, 20), finished=60, logged=logged(60, 80)), 80),
        "end of it, new to the checkpoint": (known(80, by=note(ME, 20), logged=logged(20, 80)), 80),
        "former one, known": (known(80, by=note(former=former((ME, 60))), finished=60), 80),
        "former one, anybody's": (known(80, by=note(former=former((ANYBODY, 70))), finished=60), 80),
        "former one, another query's": (known(80, by=note(former=former((ANOTHER, 70))), finished=60), 80),
        "former one, beyond the log": (known(60, by=note(ANOTHER, 60, former=former((ME, 70))), finished=60), 60),
        # Spark's log contains the batch as the query planned it before the reset.
        "batch that ran again after a reset": (known(60, by=note(ME, 40, lineage=SECOND), finished=60), 60),
    }
)
def test_any_other_commit_above_the_checkpoint_is_no_sign_of_an_old_copy(facts: Facts, expected: int) -> None:
    assert decide(**facts).position == expected


# -- another log: the topic was deleted and created again


OF_OLD_LOG = note(topic_id=OLD_LOG)
H_OF_OLD_LOG: Facts = {"finished": 60, "processed_id": OLD_LOG}

RECREATED = rows(
    {
        "C": (known(50, by=OF_OLD_LOG), (50, 10)),
        "H": (known(**H_OF_OLD_LOG), (60, 10)),
        "both": (known(50, by=OF_OLD_LOG, **H_OF_OLD_LOG), (60, 10)),
        "own C": (known(50, by=note(ME, 0, topic_id=OLD_LOG)), (50, 10)),
        "C beyond the end": (known(160, by=OF_OLD_LOG), (160, 10)),
        "H beyond the end": (known(finished=160, processed_id=OLD_LOG), (160, 10)),
        "another partition's processed offset": (known(recreated=True), (-1, 10)),
        # Regression: it counted in the new log, and the records below it were never read.
        "a bookmark's C": (known(50, by=BookmarkNote(OLD_LOG, 4)), (50, 10)),
        "H, and another has begun": (known(30, **H_OF_OLD_LOG), (60, 30)),
        "H, and a reset since": (known(30, by=None, **H_OF_OLD_LOG), (60, 30)),
        "H and an own commit that only the old log has": (
            known(80, by=note(ME, 20, topic_id=OLD_LOG), **H_OF_OLD_LOG),
            (60, 10),
        ),
    }
)


@RECREATED
def test_topic_that_was_created_again_is_an_error_that_says_so(facts: Facts, expected: tuple[int, int]) -> None:
    for on_rewind in RewindPolicy:
        with pytest.raises(DataLossError, match="was deleted and created again") as found:
            decide(**facts, policy=answered(on_rewind))
        assert (found.value.topic, found.value.partition) == TP
        assert (found.value.lost_from, found.value.log_end) == (expected[0], 100)


def test_the_error_names_another_cluster_if_only_the_checkpoint_shows_another_log() -> None:
    new_checkpoint = "If the query has used this checkpoint with another cluster, give it a new one: it begins at"
    with pytest.raises(DataLossError, match=new_checkpoint):
        decide(50, by=None, **H_OF_OLD_LOG)
    with pytest.raises(DataLossError) as found:
        decide(50, by=OF_OLD_LOG, **H_OF_OLD_LOG)
    assert "another cluster" not in str(found.value)


def test_the_note_names_the_cluster() -> None:
    assert decide(50, info=replace(INFO, cluster_id="here")).note.cluster_id == "here"


@RECREATED
def test_topic_that_was_created_again_is_read_from_its_beginning_where_loss_is_accepted(
    facts: Facts, expected: tuple[int, int]
) -> None:
    """startingOffsets does not apply: the query was reading this topic, and continues where others have begun."""
    start = decide(**facts, policy=replace(LATEST, fail_on_data_loss=False))
    assert (start.position, start.recreated, start.rewound, start.lost) == (expected[1], True, False, None)
    assert start.note.topic_id == LOG
    if start.position == 10:
        assert (start.committed, start.durable_first) == (None, True)
        assert (start.note.lineage, start.note.since) == (NEW, 10)


# A former member has overwritten the commit.  The query continues at its own offset and commits it again.
OVERWRITTEN: Facts = {"durable_first": True, "topic_id": LOG, "query_id": ME}


@rows(
    {
        # The query began the new topic, and its process died before it logged a batch.
        "C, an own start": (known(10, by=note(ME, 10), **H_OF_OLD_LOG), at(10, 10)),
        "C, known only of another partition": (known(50, recreated=True), at(50, 50)),
        "H, and a late commit": (known(50, by=OF_OLD_LOG, finished=20), at(20, None, **OVERWRITTEN)),
        "H, and one of a bookmark": (known(50, by=BookmarkNote(OLD_LOG, 4), finished=20), at(20, None, **OVERWRITTEN)),
        # Since that commit, the query has decided this start again and has read further.
        "H, and a late commit of an older start": (
            known(20, by=note(ME, 20, lineage="a"), finished=50, processed_lineage="b"),
            at(50, None, lineage="b", **OVERWRITTEN),
        ),
    }
)
def test_what_this_query_has_begun_in_the_new_log_counts(facts: Facts, expected: Facts) -> None:
    for policy in (LENIENT, *map(answered, RewindPolicy)):
        check({**facts, "policy": policy}, expected)


@pytest.mark.parametrize("on_rewind", RewindPolicy)
def test_late_commit_of_the_old_log_does_not_hide_that_the_new_one_was_truncated(on_rewind: RewindPolicy) -> None:
    assert lost_by(committed=50, by=OF_OLD_LOG, finished=150, policy=answered(on_rewind)) == (100, 150)


@pytest.mark.parametrize(
    "by",
    [note(ME, 20, lineage="c"), note(ANOTHER, 20, lineage="a"), note(ME, 10, lineage="a")],
    ids=["a newer start", "of another query", "more than a start"],
)
def test_every_other_start_below_what_was_finished_is_a_rewind(by: CommitNote) -> None:
    with pytest.raises((OffsetRewindError, OutdatedCheckpointError)):
        decide(20, by=by, finished=50, processed_lineage="b")


# -- unknown topic ids


@pytest.mark.parametrize(
    ("info", "processed_id"), [(NAMELESS, None), (NAMELESS, LOG), (INFO, None)], ids=["both", "brokers", "checkpoint"]
)
def test_without_ids_only_a_log_that_ends_below_the_processed_offset_is_another_one(
    info: PartitionInfo, processed_id: str | None
) -> None:
    facts: Facts = {"by": note(topic_id=None), "info": info, "processed_id": processed_id}
    with pytest.raises(DataLossError, match="created again"):
        decide(finished=160, **facts)
    check(known(finished=160, policy=LENIENT, **facts), at(10, None, durable_first=True, recreated=True))
    check(known(50, finished=40, **facts), at(50, 50))
    check(known(40, finished=60, **facts), at(60, 40))
    read_to_its_end = known(finished=100, policy=answered(RewindPolicy.CHECKPOINT), **facts)
    check(read_to_its_end, at(100, None, durable_first=True, rewound=True))


def test_log_of_a_known_id_that_ends_below_the_processed_offset_was_truncated_and_not_created_again() -> None:
    assert lost_by(finished=160) == (100, 160)


# -- truncated, according to the ends of leader epochs


H_OF_BEFORE: Facts = {"processed_epoch": BEFORE}
C_OF_BEFORE: Facts = {"committed_epoch": BEFORE}

TRUNCATED = rows(
    {
        "H": (known(40, finished=60, **H_OF_BEFORE), (50, (50, 60))),
        "C": (known(60, **C_OF_BEFORE), (50, (50, 60))),
        "both": (known(60, finished=70, **C_OF_BEFORE, **H_OF_BEFORE), (50, (50, 70))),
        "C most": (known(80, finished=70, **C_OF_BEFORE, **H_OF_BEFORE), (50, (50, 80))),
        "C, not H": (known(60, finished=60, **C_OF_BEFORE), (60, (50, 60))),
    }
)


@TRUNCATED
def test_offset_above_the_end_of_its_leader_epoch_is_lost_data(
    facts: Facts, expected: tuple[int, tuple[int, int]]
) -> None:
    with pytest.raises(DataLossError, match=r"were truncated.*Other records have these offsets") as found:
        decide(**facts, epoch_ends={BEFORE: 50})
    assert (found.value.lost_from, found.value.lost_until) == expected[1]
    assert (found.value.log_start, found.value.log_end) == (10, 100)


@TRUNCATED
def test_truncated_log_is_read_on_from_where_it_was_cut_where_loss_is_accepted(
    facts: Facts, expected: tuple[int, tuple[int, int]]
) -> None:
    start = decide(**facts, epoch_ends={BEFORE: 50}, policy=LENIENT)
    assert (start.position, start.lost, start.leader_epoch) == (*expected, NOW)
    assert (start.rewound, start.recreated) == (False, False)


@rows(
    {
        # The leader reports the end of the epoch after the end of the log, so the log may have grown in between.
        "an epoch ends no further than the log": (
            known(100, finished=120, **H_OF_BEFORE, epoch_ends={BEFORE: 130}),
            at(100, 100, lost=(100, 120)),
        ),
        "C is lowered before anything is planned": (
            known(60, **C_OF_BEFORE, epoch_ends={BEFORE: 50}),
            at(50, None, durable_first=True, lost=(50, 60), lineage=FIRST),
        ),
        "H below C is no rewind": (
            known(50, finished=60, **H_OF_BEFORE, epoch_ends={BEFORE: 50}),
            at(50, 50, lost=(50, 60)),
        ),
        "own commits continue from the cut": (
            known(50, by=note(ME, 48), finished=50, **H_OF_BEFORE, **C_OF_BEFORE, epoch_ends={BEFORE: 45}),
            at(45, None, durable_first=True, lost=(45, 50), since=45),
        ),
    }
)
def test_a_truncation_that_is_accepted(facts: Facts, expected: Facts) -> None:
    check({**facts, "policy": LENIENT}, expected)


@rows(
    {
        "at the end of its epoch": (known(50, finished=45, **C_OF_BEFORE, **H_OF_BEFORE, epoch_ends={BEFORE: 50}), 50),
        "below it": (known(50, finished=45, **C_OF_BEFORE, **H_OF_BEFORE, epoch_ends={BEFORE: 51}), 50),
        "H without an epoch": (known(40, finished=60, processed_epoch=None, epoch_ends={BEFORE: 50}), 60),
        "H of an epoch whose end nobody has told": (known(40, finished=60, **H_OF_BEFORE), 60),
        "C of an epoch whose end nobody has told": (known(50, **C_OF_BEFORE), 50),
    }
)
def test_no_truncation(facts: Facts, expected: int) -> None:
    start = decide(**facts)
    assert (start.position, start.lost) == (expected, None)


# -- the batch that Spark will run again


@pytest.mark.parametrize(
    ("batch", "epoch_ends", "lost"),
    [
        (logged(40, 60, leader_epoch=BEFORE), {BEFORE: 50}, (50, 60)),
        (logged(40, 60, leader_epoch=BEFORE), {BEFORE: 40}, (40, 60)),
        (logged(40, 60, leader_epoch=BEFORE), {BEFORE: 30}, (40, 60)),
        (logged(40, 120), {}, (100, 120)),
        (logged(40, 120, leader_epoch=None, topic_id=None), {}, (100, 120)),
    ],
)
def test_unfinished_batch_that_would_read_other_records_is_lost_data(
    batch: PartitionEntry, epoch_ends: dict[LeaderEpoch, int], lost: tuple[int, int]
) -> None:
    facts = known(40, finished=40, logged=batch, epoch_ends=epoch_ends)
    assert lost_by(**facts) == lost
    check({**facts, "policy": LENIENT}, at(40, 40, truncated_batch=True, lost=lost))


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
    check(known(40, finished=40, logged=batch, epoch_ends={BEFORE: 50}), at(40, 40))


# -- no C, no H


def started(count: int | None, **changes: Any) -> PartitionInfo:
    """Return the facts of a topic that the group has started, with this number of partitions at that time."""
    return replace(INFO, topic_started=True, initial_partition_count=count, **changes)


AT_TIME = Offset(42)
SINCE = replace(LATEST, time_ms=1000)
SINCE_OR_LATEST = replace(SINCE, no_match=NoMatch.LATEST)
OWN_TIME = replace(LATEST, times_ms={TP: 1000})
WORDS = replace(EARLIEST, topics={TP.topic: StartingOffset.LATEST})


@rows(
    {
        "earliest": (known(policy=EARLIEST), 10),
        # This is the last stable offset: the records of an open transaction are still to come.
        "latest": (known(policy=LATEST), 90),
        "an offset": (known(policy=explicit(42)), 42),
        "a word": (known(policy=explicit(StartingOffset.EARLIEST)), 10),
        "another word": (known(policy=replace(explicit(StartingOffset.LATEST), default=StartingOffset.EARLIEST)), 90),
        "an offset of another partition": (known(policy=explicit(42, tp=TopicPartition("t", 2))), 90),
        "a word for the topic": (known(policy=WORDS), 90),
        "an offset besides": (known(policy=replace(WORDS, explicit={TP: Offset(50)})), 50),
        "a time": (known(policy=SINCE, info=replace(INFO, at_time=AT_TIME)), 42),
        "a time below the log start, which has moved": (known(policy=SINCE, info=replace(INFO, at_time=Offset(4))), 10),
        "a time that no record has": (known(policy=SINCE_OR_LATEST), 90),
        "a time of the partition": (known(policy=OWN_TIME, info=replace(INFO, at_time=AT_TIME)), 42),
        "a time before an offset": (
            known(policy=replace(SINCE_OR_LATEST, explicit={TP: Offset(50)}), info=replace(INFO, at_time=AT_TIME)),
            42,
        ),
        "there from the beginning": (known(policy=LATEST, info=started(2)), 90),
        "added later": (known(policy=LATEST, info=started(1)), 10),
        # Another program has committed other partitions at an unknown time.  It would be worse to skip records.
        "perhaps added later": (known(policy=LATEST, info=started(None)), 10),
        "added later, an offset": (known(policy=explicit(42), info=started(1)), 42),
        "added later, a word for the topic": (known(policy=WORDS, info=started(1)), 10),
        "added later, a time": (known(policy=SINCE, info=started(1, at_time=AT_TIME)), 10),
        "added later, a time of its own": (known(policy=OWN_TIME, info=started(1, at_time=AT_TIME)), 42),
    }
)
def test_the_first_start_follows_the_options_and_is_committed_first(facts: Facts, expected: int) -> None:
    """A later owner must not look again."""
    check(facts, at(expected, None, durable_first=True, others=None, since=expected))


def test_options_do_not_count_once_the_group_has_committed() -> None:
    assert decide(50, policy=explicit(42)).position == 50
    assert decide(50, policy=SINCE, info=replace(INFO, at_time=AT_TIME)).position == 50


def test_two_members_that_start_a_topic_at_the_same_time_both_follow_the_option() -> None:
    first = decide(policy=LATEST, tp=TopicPartition("t", 0))
    info = started(first.note.initial_partition_count, log_end=Offset(95))
    second = decide(policy=LATEST, tp=TopicPartition("t", 1), info=info)
    assert (first.position, second.position) == (90, 95)


@pytest.mark.parametrize(("policy", "option"), [(SINCE, "startingTimestamp"), (OWN_TIME, "startingOffsetsByTimestamp")])
def test_a_time_that_no_record_has_is_an_error(policy: StartPolicy, option: str) -> None:
    with pytest.raises(NoOffsetAtTimeError) as raised:
        decide(policy=policy)
    assert (raised.value.topic, raised.value.partition, raised.value.time_ms) == (TP.topic, TP.partition, 1000)
    assert raised.value.option == option


# -- the note that every commit carries


def test_first_commit_of_a_topic_carries_how_many_partitions_it_has() -> None:
    assert decide().note == CommitNote(ME, LOG, 4, Offset(10), NEW, (Former(ANYBODY, Offset(10)),))


@pytest.mark.parametrize("committed", [50, 5], ids=["read on", "records skipped"])
def test_later_commits_carry_the_first_count_on_although_partitions_were_added(committed: int) -> None:
    info = started(2, topic_partitions=8)
    assert decide(committed, info=info, policy=LENIENT).note.initial_partition_count == 2


def test_own_commits_go_on_from_where_this_query_has_taken_over() -> None:
    owners = former((ME, 5), (ANOTHER, 20))
    start = decide(50, by=note(ME, 20, former=owners), finished=60)
    assert start.others == OffsetRange(Offset(5), Offset(20))
    assert (start.note.since, start.note.lineage, start.note.former) == (20, FIRST, owners)


def test_who_starts_without_an_offset_does_not_know_who_had_committed_below() -> None:
    """Regression: the group's offset may have been deleted, but the query took its own logged records for another's."""
    first = decide(None, policy=LATEST).note
    assert first.since == 90
    assert decide(90, by=first._replace(query_id=ANOTHER), finished=5).others == OffsetRange(Offset(90), Offset(90))


def test_what_another_program_has_committed_stays_its_own_after_a_restart() -> None:
    """Regression: after a second restart, the query read again a logged batch that another program had processed."""
    first = decide(50, by=None, finished=10)
    again = decide(50, by=first.note, finished=10)
    assert again.others == first.others == OffsetRange(Offset(0), Offset(50))


@rows(
    {
        "never this query": (known(by=note(ANOTHER, 20)), (0, 50)),
        "this query": (known(by=note(ANOTHER, 20, former=former((ME, 10), ("third", 20)))), (10, 50)),
        "forgotten": (known(by=note(ANOTHER, 20, former=former((ANYBODY, 20)))), (20, 50)),
        "put back": (known(by=note(ANOTHER, 70, former=former((ANYBODY, 70)))), (50, 50)),
        "nobody's": (known(by=None), (0, 50)),
    }
)
def test_what_others_have_processed_is_told_and_ends_where_this_query_takes_over(
    facts: Facts, expected: tuple[int, int]
) -> None:
    start = decide(**{**facts, "committed": 50}, finished=10)
    assert (start.others, start.note.since) == (OffsetRange(Offset(expected[0]), Offset(expected[1])), 50)


# -- outside the log


OUTSIDE = rows(
    {
        "C below": (known(4), at(10, 4, durable_first=True, lost=(4, 10))),
        # If the start in the note equals the committed offset, the query has processed nothing yet.
        "H below": (known(2, finished=6), at(10, 2, durable_first=True, lost=(6, 10), since=10)),
        "an own C below": (known(4, by=note(ME, 2), finished=4), at(10, 4, durable_first=True, lost=(4, 10), since=10)),
        "C beyond": (known(120), at(100, None, durable_first=True, lost=(100, 120))),
        "C beyond, of an older epoch": (
            known(120, **C_OF_BEFORE),
            at(100, None, durable_first=True, lost=(100, 120)),
        ),
        "C beyond, of an epoch that ends behind the log": (
            known(120, **C_OF_BEFORE, epoch_ends={BEFORE: 200}),
            at(100, None, durable_first=True, lost=(100, 120)),
        ),
        # Deliberate: the high watermark, not the end for readers, because the group had passed that end before.
        "C and H beyond": (known(120, finished=120), at(100, None, durable_first=True, lost=(100, 120))),
    }
)


@OUTSIDE
def test_start_outside_the_log_is_an_error_with_the_exact_range_unless_loss_is_accepted(
    facts: Facts, expected: Facts
) -> None:
    assert lost_by(**facts) == expected["lost"]
    check({**facts, "policy": LENIENT}, expected)


@pytest.mark.parametrize(("offset", "lost"), [(5, (5, 10)), (101, (100, 101))])
def test_explicit_offset_outside_the_log_is_an_error_that_names_the_option(offset: int, lost: tuple[int, int]) -> None:
    """Regression: the error spoke of retention, or of a truncated log."""
    wrong = rf"t-1: the option 'startingOffsets' names the offset {offset}, but the log has \[10, 100\)\."
    with pytest.raises(DataLossError, match=wrong) as found:
        decide(policy=explicit(offset))
    assert (found.value.lost_from, found.value.lost_until) == lost


def test_offset_outside_the_log_that_the_query_or_the_group_knows_is_none_of_the_option() -> None:
    for committed, finished in ((5, None), (None, 5), (101, None), (101, 101)):
        with pytest.raises(DataLossError, match=r"retention|truncated"):
            decide(committed, finished=finished, policy=answered(RewindPolicy.CHECKPOINT, explicit(101)))


@pytest.mark.parametrize("wanted", [101, 5000, 2**63 - 1])
def test_explicit_offset_beyond_the_log_goes_on_at_its_end_for_readers_if_loss_is_accepted(wanted: int) -> None:
    facts = known(policy=replace(explicit(wanted), fail_on_data_loss=False))
    check(facts, at(90, None, durable_first=True, lost=(100, wanted), since=90))


def test_empty_log_starts_where_it_is() -> None:
    empty = replace(INFO, log_start=Offset(10), log_end=Offset(10), high_watermark=Offset(10))
    assert decide(policy=EARLIEST, info=empty).position == decide(policy=LATEST, info=empty).position == 10


# -- any combination of facts


some_offsets = st.integers(0, 30)
epochs = st.sampled_from([None, BEFORE, NOW])
log_ids = st.sampled_from([None, LOG, OLD_LOG])
lineages = st.sampled_from([FIRST, SECOND])
notes = (
    st.none()
    | st.builds(BookmarkNote, log_ids, st.just(4))
    | st.builds(
        lambda query, since, topic_id, lineage: note(query, since, topic_id=topic_id, lineage=lineage),
        st.sampled_from([ME, ANOTHER]),
        some_offsets,
        log_ids,
        lineages,
    )
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
    by: CommitNote | BookmarkNote | None,
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
        assert isinstance(by, CommitNote)
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


# -- `assign`: the checkpoint decides


@rows(
    {
        "H": (known(finished=30), at(30, None, durable_first=True, lineage=FIRST)),
        # Regression: after a reset the query ended with an error, or started at the group's offset.
        **{
            f"H, whatever {who} has committed: {committed}": (
                known(committed, by=by, finished=30),
                at(30, None, durable_first=True),  # the group gets the offset back
            )
            for committed in (15, 50)
            for who, by in {"a tool": None, "this query": note("q"), "another query": note()}.items()
        },
        "C of a new query": (known(50), at(50, 50)),
        "nothing": (known(), at(10, None, durable_first=True)),
        "nothing, and latest": (known(policy=replace(ALONE, default=LATEST.default)), at(90, None, durable_first=True)),
    }
)
def test_with_assign_the_checkpoint_goes_before_the_group(facts: Facts, expected: Facts) -> None:
    check({"policy": ALONE, **facts}, expected)


def test_with_assign_a_log_that_is_gone_is_lost_all_the_same() -> None:
    with pytest.raises(DataLossError):
        decide(finished=5, policy=ALONE)
    with pytest.raises(DataLossError):
        decide(finished=30, processed_id=OLD_LOG, policy=ALONE)
    assert decide(finished=5, policy=replace(ALONE, fail_on_data_loss=False)).position == 10


# -- leader epochs that have gone back


RESTORED = replace(INFO, leader_epoch=BEFORE)
BEGUN_ANEW: Facts = {"durable_first": True, "recreated": True, "lineage": NEW}


@pytest.mark.parametrize("by", [note("another"), BookmarkNote(LOG, 4)], ids=["query", "bookmark"])
@pytest.mark.parametrize("finished", [None, 50, 120])
def test_a_log_of_a_restored_cluster_ends_the_query(finished: int | None, by: CommitNote | BookmarkNote) -> None:
    with pytest.raises(DataLossError, match="leader epochs of this log have gone back") as found:
        decide(40, committed_epoch=NOW, by=by, finished=finished, info=RESTORED)
    assert (found.value.topic, found.value.partition, found.value.log_end) == ("t", 1, 100)
    assert f"up to {finished or 40}" in str(found.value)


@rows(
    {
        # From some unknown offset on, the log may have other records below the position than the query has read.
        # Other partitions begin where they would have.
        **{
            name: (
                known(finished, committed_epoch=NOW, finished=finished),
                at(10, None, **BEGUN_ANEW, initial_partition_count=INFO.topic_partitions),
            )
            for name, finished in {"longer": 50, "shorter": 120}.items()
        },
        # Regression: each member read the log from its beginning again, or skipped to its end.
        "begun by another query": (known(30, **C_OF_BEFORE, finished=50), at(30, 30, recreated=True, lineage=FIRST)),
        "shorter, and begun": (known(30, **C_OF_BEFORE, finished=120), at(30, 30, recreated=True, lineage=FIRST)),
        # Regression: the new topic looked restored, and each member that got a partition read it from its beginning.
        "epoch of a topic that was created again": (
            known(30, **C_OF_BEFORE, finished=5, processed_id=OLD_LOG),
            at(30, 30, recreated=True),
        ),
        "logged batch of before the restore": (
            known(20, **C_OF_BEFORE, finished=20, **H_OF_BEFORE, logged=logged(20, 30)),
            at(20, 20, truncated_batch=True, lost=(20, 30)),
        ),
        # Else a batch that was logged before looks like one of before a reset.
        "late commit of before the restore": (
            known(70, committed_epoch=NOW, finished=20, **H_OF_BEFORE, processed_lineage=SECOND),
            at(20, None, durable_first=True, lineage=SECOND),
        ),
    }
)
def test_where_loss_is_allowed_a_restored_log_is_read_from_its_beginning(facts: Facts, expected: Facts) -> None:
    check({**facts, "info": RESTORED, "policy": LENIENT}, expected)


@pytest.mark.parametrize("committed", [15, 70])
def test_a_newer_commit_of_the_same_start_shows_that_the_log_was_restored(committed: int) -> None:
    """Regression: a query that was down in the newest epoch continued at its own offset."""
    facts = known(committed, committed_epoch=NOW, finished=20, **H_OF_BEFORE, info=RESTORED)
    with pytest.raises(DataLossError, match="restored from an older copy"):
        decide(**facts)
    check({**facts, "policy": LENIENT}, at(10, None, **BEGUN_ANEW))
