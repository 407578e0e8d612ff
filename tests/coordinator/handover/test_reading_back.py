"""Commits that arrive after their successors."""

from __future__ import annotations

import pytest

from pyspark_kafka_group.coordinator.handover import events
from pyspark_kafka_group.coordinator.handover.inputs import (
    CommitAnswered,
    End,
    Leave,
    LogChange,
    LogChangeFound,
    Lose,
    OffsetsReadBack,
    ReadBack,
    Retry,
    Revoke,
)
from pyspark_kafka_group.coordinator.handover.lifecycle import Ending
from pyspark_kafka_group.coordinator.handover.outputs import (
    Commit,
    FetchOffsets,
    ScheduleRetry,
)
from pyspark_kafka_group.coordinator.handover.transitions import Phase
from pyspark_kafka_group.offsets.commit_metadata import CommitNote
from pyspark_kafka_group.offsets.start_inputs import GroupOffset
from pyspark_kafka_group.offsets.types import Offset
from tests.coordinator.machine import NEW_LINEAGE, NEW_LOG, A, Machine, active, fed, in_flight, note, span

UNCLEAR = CommitAnswered("no answer", unclear=True)


def found(offset: int | None, by: CommitNote | None = None) -> OffsetsReadBack:
    """Return the offset of A that the query reads back, with the note ``by``, or with a note of this query."""
    return OffsetsReadBack({A: None if offset is None else GroupOffset(Offset(offset), by or note("q"))})


def foreign(offset: int) -> OffsetsReadBack:
    return OffsetsReadBack({A: GroupOffset(Offset(offset), None)})


def doubted() -> Machine:
    """Return a machine that has finished [0, 5).  Its first commit got no answer, and its second has succeeded."""
    machine = in_flight()
    machine.finish()
    machine.feed(UNCLEAR, Retry(), CommitAnswered(None))
    machine.said.clear()
    return machine


def test_without_a_doubt_nothing_is_read_back() -> None:
    machine = in_flight()
    machine.finish()
    machine.feed(CommitAnswered("refused"), Retry(), CommitAnswered(None))
    assert not machine.state.in_doubt
    assert machine.feed(ReadBack(tuple(machine.state.doubted))) == []
    assert machine.feed(Revoke((A,))) == [events.Released(partitions=(A,))]


def test_offset_that_has_gone_back_is_committed_again() -> None:
    """Regression: the group's offset stayed too low, and the next owner repeated records of committed batches."""
    machine = doubted()
    assert machine.feed(ReadBack((A,))) == [FetchOffsets((A,))]
    assert machine.feed(ReadBack((A,))) == [], "it has been asked for"
    [commit] = machine.feed(found(3))
    assert isinstance(commit, Commit)
    assert machine.due() == {A: 5}
    machine.feed(CommitAnswered(None))
    assert not machine.state.uncommitted
    assert machine.state.in_doubt, "there may be another one"


def test_revoked_partition_leaves_when_its_offset_was_read_back() -> None:
    machine = doubted()
    assert machine.feed(Revoke((A,))) == [events.Draining(partitions=(A,)), FetchOffsets((A,))]
    [commit] = machine.feed(found(3))
    assert isinstance(commit, Commit)
    assert machine.feed(CommitAnswered(None))[-1] == FetchOffsets((A,)), "once more"
    assert machine.feed(found(5)) == [events.Released(partitions=(A,))]
    assert not machine.state.doubted


def test_revoked_partition_leaves_also_if_another_program_has_set_its_offset() -> None:
    machine = fed(doubted(), Revoke((A,)))
    assert machine.feed(foreign(2)) == [events.Released(partitions=(A,))]


@pytest.mark.parametrize(
    "leaves", [End(Ending.FINISH), Revoke((A,))], ids=["the query ends", "the partition is revoked"]
)
def test_a_doubt_does_not_end_with_a_read_back_before_a_commit_that_is_to_be_tried_again(leaves: End | Revoke) -> None:
    """Regression: the query reported a clean end, and then its late commit lowered the group's offset."""
    machine = in_flight()
    machine.finish()
    machine.feed(UNCLEAR, leaves, ReadBack((A,)), found(0))
    machine.feed(Retry())
    assert machine.feed(CommitAnswered(None))[-1] == FetchOffsets((A,))
    machine.feed(found(5))
    assert not machine.state.in_doubt


def test_late_commit_of_records_that_were_cut_is_committed_over() -> None:
    """Regression: it stayed above the end of the log, and Kafka's tools showed no lag of the next records."""
    machine = doubted()
    (again,) = [output for output in machine.feed(found(9)) if isinstance(output, Commit)]
    assert again.entries[A].offset == 5


def test_read_back_that_nobody_answers_is_tried_again() -> None:
    machine = fed(doubted(), Revoke((A,)))
    assert machine.feed(OffsetsReadBack(None)) == [ScheduleRetry()]
    assert machine.feed(Retry()) == [FetchOffsets((A,))]


def test_member_that_leaves_with_a_doubt_names_what_may_be_repeated() -> None:
    machine = doubted()
    machine.plan((A, 9))
    machine.finish()
    machine.feed(CommitAnswered(None), End(Ending.STOP))
    assert machine.state.in_doubt
    assert machine.feed(Leave()) == [events.Expired(ranges={A: span(5, 9)})]
    assert not machine.state.clean


def test_member_leaves_cleanly_once_its_offset_was_read_back() -> None:
    machine = doubted()
    assert machine.feed(End(Ending.STOP)) == [FetchOffsets((A,))]
    machine.feed(found(5))
    assert not machine.state.in_doubt
    machine.feed(Leave())
    assert machine.state.clean


def test_lost_partition_may_be_repeated_from_the_lowest_commit_without_an_answer() -> None:
    machine = doubted()
    machine.plan((A, 9))
    machine.finish()
    machine.feed(UNCLEAR, Retry(), CommitAnswered(None))
    lost, *_ = machine.feed(Lose((A,)))
    assert lost == events.Lost(partitions=(A,), ranges={A: span(5, 9)})
    assert not machine.state.doubted


def test_doubt_ends_when_the_log_is_another_one() -> None:
    machine = fed(doubted(), LogChangeFound((A,), LogChange.TRUNCATED))
    assert not machine.state.in_doubt
    assert machine.feed(Revoke((A,))) == [events.Released(partitions=(A,))]


def test_commit_of_an_older_log_or_lineage_that_arrives_late_is_replaced() -> None:
    for stale in (note("q", log=NEW_LOG), note("q", lineage=NEW_LINEAGE)):
        machine = doubted()
        machine.feed(found(50, stale))
        assert machine.due() == {A: 5}


def test_commit_of_an_older_log_is_replaced_also_where_the_new_one_starts_at_its_beginning() -> None:
    """Regression: the group's offset stayed beyond the end of the new log."""
    machine = active()
    machine.feed(found(50, note("q", log=NEW_LOG)))
    assert machine.due() == {A: 0}
    machine.feed(CommitAnswered(None))
    assert machine.feed(found(0)) == []


def test_offset_of_another_query_of_the_same_lineage_is_raised_but_not_lowered() -> None:
    machine = doubted()
    machine.feed(found(3, note("another")))
    assert machine.due() == {A: 5}
    machine.feed(CommitAnswered(None))
    assert machine.feed(found(7, note("another"))) == []


def test_what_is_read_back_while_a_commit_is_outstanding_says_nothing() -> None:
    machine = in_flight()
    machine.finish()
    assert machine.feed(found(0)) == []
    assert machine.due() == {A: 5}


@pytest.mark.parametrize("there", [foreign(2), found(None), found(2, note("another", lineage=NEW_LINEAGE))])
def test_an_offset_that_no_late_commit_of_this_query_explains_is_left_alone(there: OffsetsReadBack) -> None:
    """The member has lost its place, and does not know that yet.  Its commits would be refused."""
    machine = doubted()
    assert machine.feed(there) == []
    assert machine.phase(A) is Phase.ACTIVE
    assert not machine.state.uncommitted


def test_a_read_back_that_changes_nothing_is_no_assignment() -> None:
    """Regression: the number of assignments in the progress rose every three seconds."""
    machine = doubted()
    before = machine.state.last_epoch
    machine.feed(ReadBack((A,)), found(5))
    assert machine.state.last_epoch == before
