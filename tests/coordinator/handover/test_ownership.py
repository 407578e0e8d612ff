"""The state machine gains, loses and regains partitions, and handles logs that have changed.

The tests in ``tests/simulation`` check long sequences of inputs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from pyspark_kafka_group.coordinator.handover import events
from pyspark_kafka_group.coordinator.handover.inputs import (
    Assign,
    CommitAnswered,
    End,
    Expire,
    Leave,
    LogChange,
    LogChangeFound,
    Lose,
    Retry,
    Revoke,
)
from pyspark_kafka_group.coordinator.handover.lifecycle import Ending
from pyspark_kafka_group.coordinator.handover.outputs import Fail, FetchPartitionInfo
from pyspark_kafka_group.coordinator.handover.state import State
from pyspark_kafka_group.coordinator.handover.transitions import Phase
from pyspark_kafka_group.offsets.errors import DataLossError
from pyspark_kafka_group.offsets.types import Offset, OwnershipEpoch
from tests.coordinator.machine import (
    NEW_LOG,
    A,
    B,
    C,
    Machine,
    active,
    draining,
    fed,
    in_flight,
    info,
    lenient,
    resolving,
    span,
    starting,
)

# ------------------------------------------------------------------------------ assign


def test_assigned_partitions_are_asked_about_under_one_new_epoch() -> None:
    machine = Machine()
    outputs = machine.feed(Assign((A, B)))
    assert outputs == [
        events.Assigned(partitions=(A, B)),
        FetchPartitionInfo({A: OwnershipEpoch(1), B: OwnershipEpoch(1)}),
    ]


def test_partition_that_comes_back_has_a_new_epoch() -> None:
    machine = active()
    machine.feed(Revoke((A,)), Assign((A,)))
    assert machine.epoch(A) == 2


def test_empty_assignment_changes_nothing() -> None:
    machine = active()
    before = machine.state
    assert machine.feed(Assign(())) == []
    assert machine.state == before


def test_info_are_asked_for_once() -> None:
    machine = resolving()
    assert machine.feed(Assign((B,))) == [
        events.Assigned(partitions=(B,)),
        FetchPartitionInfo({B: OwnershipEpoch(2)}),
    ]


# ------------------------------------------------------------------------------ revoke


def test_idle_partition_is_released_at_once() -> None:
    machine = active(A, B)
    assert machine.feed(Revoke((A,))) == [events.Released(partitions=(A,))]
    assert set(machine.state.owned) == {B}


def test_partition_in_flight_drains_until_its_batch_is_committed() -> None:
    machine = draining()
    machine.finish()
    assert machine.phase(A) is Phase.DRAINING
    outputs = machine.feed(CommitAnswered(None))
    assert outputs == [events.Committed(offsets={A: Offset(5)}), events.Released(partitions=(A,))]
    assert machine.state.owned == {}


def test_revocation_while_a_batch_of_other_partitions_runs_waits_for_nothing() -> None:
    machine = active(A, B)
    machine.plan((B, 5))
    assert machine.feed(Revoke((A,))) == [events.Released(partitions=(A,))]


def test_partition_that_is_finished_and_not_committed_drains() -> None:
    machine = in_flight()
    machine.finish()
    assert machine.feed(Revoke((A,))) == [events.Draining(partitions=(A,))]
    machine.feed(CommitAnswered(None))
    assert machine.state.owned == {}


def test_draining_partition_stays_through_a_failed_commit() -> None:
    machine = draining()
    machine.finish()
    machine.feed(CommitAnswered("refused"))
    assert machine.phase(A) is Phase.DRAINING
    machine.feed(Retry(), CommitAnswered(None))
    assert machine.state.owned == {}


def test_partition_that_is_revoked_before_its_start_is_known_is_released_at_once() -> None:
    assert resolving().feed(Revoke((A,))) == [events.Released(partitions=(A,))]


def test_partition_that_is_revoked_while_its_start_is_committed_waits_for_that() -> None:
    """Otherwise the next owner may resolve `latest` again, to a later offset."""
    machine = starting()
    assert machine.feed(Revoke((A,))) == [events.Draining(partitions=(A,))]
    assert machine.feed(CommitAnswered(None)) == [
        events.Committed(offsets={A: Offset(0)}),
        events.Released(partitions=(A,)),
    ]


def test_two_revocations_in_one_batch_drain_side_by_side() -> None:
    machine = in_flight(A, B, C)
    machine.feed(Revoke((A,)))
    machine.feed(Revoke((B,)))
    machine.finish()
    machine.feed(CommitAnswered(None))
    assert set(machine.state.owned) == {C}


def test_revocation_of_what_is_not_owned_is_silent() -> None:
    assert active().feed(Revoke((B,))) == []


def test_revocation_of_busy_and_idle_partitions_releases_only_the_idle_ones() -> None:
    machine = active(A, B)
    machine.plan((A, 5))
    assert machine.feed(Revoke((A, B))) == [events.Released(partitions=(B,)), events.Draining(partitions=(A,))]


# ------------------------------------------------------------------------------ deadline, loss


def test_expired_partition_leaves_with_the_range_that_may_be_repeated() -> None:
    machine = draining()
    assert machine.feed(Expire()) == [events.Expired(ranges={A: span(0, 5)})]
    assert machine.state.owned == {}


def test_a_partition_whose_start_is_not_committed_leaves_with_an_event_too() -> None:
    """Regression: no event named it, so it counted as owned for ever."""
    machine = starting()
    assert machine.feed(Revoke((A,))) == [events.Draining(partitions=(A,))]
    assert machine.feed(Expire()) == [events.Released(partitions=(A,))]
    assert machine.state.owned == {}


def test_expired_partition_is_never_committed_later() -> None:
    machine = draining()
    machine.feed(Expire())
    machine.finish()
    assert machine.state.committing is None


def test_deadline_with_nothing_draining_is_silent() -> None:
    machine = in_flight()
    assert machine.feed(Expire()) == []
    assert machine.phase(A) is Phase.ACTIVE


def test_lost_partition_leaves_with_the_range_that_may_be_repeated() -> None:
    machine = in_flight(A, B)
    assert machine.feed(Lose((A, B))) == [events.Lost(partitions=(A, B), ranges={A: span(0, 5), B: span(0, 5)})]


def test_range_that_may_be_repeated_begins_at_the_committed_offset() -> None:
    machine = in_flight()
    machine.finish()
    machine.feed(CommitAnswered(None))
    machine.plan((A, 8))
    machine.finish()
    machine.plan((A, 9))
    assert machine.feed(Lose((A,))) == [events.Lost(partitions=(A,), ranges={A: span(5, 9)})]


def test_loss_of_an_idle_partition_repeats_nothing() -> None:
    assert active().feed(Lose((A,))) == [events.Lost(partitions=(A,), ranges={})]


def test_loss_of_what_is_not_owned_is_silent() -> None:
    assert active().feed(Lose((B,))) == []


def test_lost_partition_is_never_committed_later() -> None:
    machine = in_flight()
    machine.feed(Lose((A,)))
    machine.finish()
    assert machine.state.committing is None


def test_finished_batch_of_a_lost_partition_raises_the_own_processed_offset() -> None:
    machine = in_flight()
    machine.feed(Lose((A,)))
    machine.finish()
    assert machine.state.processed[A].offset == 5


# ------------------------------------------------------------------------------ lost and assigned again


def test_partition_that_comes_back_waits_for_its_old_batch() -> None:
    machine = in_flight()
    machine.feed(Lose((A,)))
    assert machine.feed(Assign((A,))) == [events.Assigned(partitions=(A,))]
    assert FetchPartitionInfo({A: OwnershipEpoch(2)}) in machine.finish()


def test_partition_that_comes_back_waits_for_its_old_commit() -> None:
    """The commit may still arrive.  Info that is older than the commit would let the partition start below it."""
    machine = in_flight()
    machine.finish()
    machine.feed(Lose((A,)))
    assert machine.feed(Assign((A,))) == [events.Assigned(partitions=(A,))]
    assert FetchPartitionInfo({A: OwnershipEpoch(2)}) in machine.feed(CommitAnswered("no answer"))


def test_partition_that_comes_back_starts_behind_its_old_batch() -> None:
    machine = in_flight()
    machine.feed(Lose((A,)), Assign((A,)))
    machine.finish()
    machine.answer(A, 0)
    assert machine.plannable() == {A: (2, 5)}


def test_partition_that_comes_back_further_on_starts_there() -> None:
    machine = in_flight()
    machine.feed(Lose((A,)), Assign((A,)))
    machine.finish()
    machine.answer(A, 20)
    assert machine.plannable() == {A: (2, 20)}


def test_old_batch_does_not_keep_other_new_partitions_waiting() -> None:
    machine = in_flight()
    machine.feed(Lose((A,)))
    assert machine.feed(Assign((A, B))) == [
        events.Assigned(partitions=(A, B)),
        FetchPartitionInfo({B: OwnershipEpoch(2)}),
    ]


def test_partition_that_comes_back_and_is_revoked_does_not_wait_for_its_old_batch() -> None:
    machine = in_flight()
    machine.feed(Lose((A,)), Assign((A,)))
    assert machine.feed(Revoke((A,))) == [events.Released(partitions=(A,))]


# ------------------------------------------------------------------------------ another log


def forgiving(machine: Machine) -> Machine:
    """Set ``failOnDataLoss=false`` for ``machine``, and return it."""
    machine.state = replace(machine.state, policy=replace(machine.state.policy, fail_on_data_loss=False))
    return machine


CHANGES = pytest.mark.parametrize("change", LogChange, ids=lambda change: change.value)
SITUATIONS: dict[str, Callable[[], Machine]] = {
    "resolving": resolving,
    "starting": starting,
    "active": active,
    "in flight": in_flight,
    "draining": draining,
}


@CHANGES
@pytest.mark.parametrize("situation", SITUATIONS)
def test_a_log_that_has_changed_is_told_as_such_and_never_as_lost(situation: str, change: LogChange) -> None:
    """The group has not revoked the partition, and no other member will repeat the records."""
    machine = forgiving(SITUATIONS[situation]())
    machine.said.clear()
    machine.feed(LogChangeFound((A,), change))
    [told] = [said for said in machine.said if isinstance(said, events.Event)]
    assert isinstance(told, events.LogChanged)
    assert (told.partitions, told.change) == ((A,), change.value)


@CHANGES
def test_where_a_changed_log_starts_is_asked_under_a_new_epoch(change: LogChange) -> None:
    machine = forgiving(active(A, B))
    assert machine.feed(LogChangeFound((A,), change)) == [
        events.LogChanged(partitions=(A,), change=change.value, ranges={}),
        FetchPartitionInfo({A: OwnershipEpoch(2)}),
    ]
    assert machine.phase(A) is Phase.RESOLVING
    assert machine.plannable() == {B: (1, 0)}


@pytest.mark.parametrize("change", [LogChange.RECREATED, LogChange.TRUNCATED], ids=lambda change: change.value)
def test_whether_a_changed_log_ends_the_query_is_decided_when_its_start_is(change: LogChange) -> None:
    machine = active()
    assert not any(isinstance(said, Fail) for said in machine.feed(LogChangeFound((A,), change)))
    [fail] = machine.told(A, info(None, log=NEW_LOG))
    assert isinstance(fail, Fail)
    assert isinstance(fail.error, DataLossError)


def test_a_deleted_topic_ends_the_query_and_is_named() -> None:
    machine = active(A, B)
    before = machine.state
    [fail] = machine.feed(LogChangeFound((A, B), LogChange.DELETED))
    assert isinstance(fail, Fail)
    assert isinstance(fail.error, DataLossError)
    assert str(fail.error).startswith("Topic deleted: t. ")
    assert machine.state == before


def test_a_deleted_topic_does_not_end_a_query_that_is_ending() -> None:
    """Regression: the query retried a commit with the deleted topic and all others until its time to stop was over."""
    machine = fed(active(A, B), End(Ending.FINISH))
    said = machine.feed(LogChangeFound((A, B), LogChange.DELETED))
    assert not any(isinstance(output, Fail) for output in said)
    assert machine.state.deleted == {A, B}


def test_a_deleted_topic_that_may_be_lost_keeps_nobody_waiting() -> None:
    machine = forgiving(active())
    machine.feed(LogChangeFound((A,), LogChange.DELETED))
    assert machine.state.deleted == {A}
    assert not machine.state.unsettled


@pytest.mark.parametrize("change", [LogChange.RECREATED, LogChange.TRUNCATED], ids=lambda change: change.value)
def test_a_log_that_was_not_deleted_is_waited_for(change: LogChange) -> None:
    machine = forgiving(active())
    machine.feed(LogChangeFound((A,), change))
    assert machine.state.deleted == frozenset()
    assert machine.state.unsettled


def test_a_deleted_topic_that_is_there_again_is_not_deleted_any_more() -> None:
    machine = forgiving(active())
    machine.feed(LogChangeFound((A,), LogChange.DELETED))
    machine.told(A, info(None, log=NEW_LOG))
    assert machine.state.deleted == frozenset()


def test_a_deleted_topic_is_told_once() -> None:
    """The requests thread, the log watch and a refused commit may each find the same deleted topic."""
    machine = forgiving(active())
    assert machine.feed(LogChangeFound((A,), LogChange.DELETED))
    machine.feed(Lose((A,)))
    assert machine.feed(LogChangeFound((A,), LogChange.DELETED)) == []


def test_what_was_in_flight_or_not_committed_of_a_changed_log_is_told() -> None:
    machine = in_flight(A, B)
    machine.finish()
    machine.plan((A, 8))
    [told, *_] = machine.feed(LogChangeFound((A, B), LogChange.RECREATED))
    assert told == events.LogChanged(partitions=(A, B), change="created again", ranges={A: span(0, 8), B: span(0, 5)})


def test_partition_that_drains_leaves_with_its_log() -> None:
    """A draining partition waits for the commit of an offset, but the log of that offset no longer exists."""
    machine = draining(A, B)
    machine.feed(LogChangeFound((A,), LogChange.RECREATED))
    assert set(machine.state.owned) == {B}


def test_batch_that_reads_a_changed_log_is_not_committed_for_the_new_one() -> None:
    machine = in_flight()
    machine.feed(LogChangeFound((A,), LogChange.RECREATED))
    machine.finish()
    assert machine.state.committing is None
    assert not machine.state.uncommitted


def test_where_a_changed_log_starts_is_asked_when_its_old_batch_is_finished() -> None:
    machine = in_flight()
    machine.said.clear()
    machine.feed(LogChangeFound((A,), LogChange.RECREATED))
    assert not any(isinstance(said, FetchPartitionInfo) for said in machine.said)
    assert FetchPartitionInfo({A: OwnershipEpoch(2)}) in machine.finish()


def test_where_a_changed_log_starts_is_asked_when_its_old_commit_is_answered() -> None:
    machine = in_flight()
    machine.finish()
    machine.said.clear()
    machine.feed(LogChangeFound((A,), LogChange.RECREATED))
    assert not any(isinstance(said, FetchPartitionInfo) for said in machine.said)
    assert FetchPartitionInfo({A: OwnershipEpoch(2)}) in machine.feed(CommitAnswered(None))


def test_answer_to_a_commit_of_the_old_log_does_not_processed_offset_the_new_one() -> None:
    machine = forgiving(in_flight())
    machine.finish()
    machine.feed(LogChangeFound((A,), LogChange.RECREATED), CommitAnswered(None))
    machine.told(A, info(None, log=NEW_LOG))
    machine.feed(CommitAnswered(None))
    assert machine.plannable() == {A: (2, 0)}
    assert (machine.state.processed[A].offset, machine.state.processed[A].topic_id) == (0, NEW_LOG)


@CHANGES
def test_changed_log_of_what_is_not_owned_is_silent(change: LogChange) -> None:
    machine = active()
    before = machine.state
    assert machine.feed(LogChangeFound((B,), change)) == []
    assert machine.state == before


def test_topic_that_was_deleted_before_the_group_gave_it_to_anybody_is_told_or_ends_the_query() -> None:
    """Regression: a run with availableNow waited 330 s for the topic, and its error blamed another member."""
    deleted = LogChangeFound((B,), LogChange.DELETED, awaited=True)
    [fail] = active().feed(deleted)
    assert isinstance(fail, Fail)
    assert isinstance(fail.error, DataLossError)
    machine = lenient(finished=4)
    assert machine.feed(deleted) == [events.LogChanged(partitions=(B,), change="deleted", ranges={})]
    assert machine.state.deleted == {B}


def test_log_that_changes_twice_has_another_epoch_each_time() -> None:
    machine = fed(active(), LogChangeFound((A,), LogChange.RECREATED), LogChangeFound((A,), LogChange.TRUNCATED))
    assert machine.epoch(A) == 3


# ------------------------------------------------------------------------------ end and leave


def test_commit_of_a_finished_batch_completes_while_the_query_ends() -> None:
    machine = in_flight()
    machine.finish()
    machine.feed(End(Ending.STOP))
    assert machine.state.uncommitted
    machine.feed(CommitAnswered(None))
    assert not machine.state.uncommitted


def test_member_that_leaves_with_nothing_open_releases_everything() -> None:
    machine = active(A, B)
    assert machine.feed(End(Ending.STOP), Leave()) == [events.Released(partitions=(A, B))]
    assert machine.state.owned == {}


def test_member_that_leaves_in_the_middle_of_a_batch_tells_what_may_be_repeated() -> None:
    machine = active(A, B, C)
    machine.plan((A, 5), (B, 5))
    machine.feed(Revoke((A,)))
    assert machine.feed(End(Ending.STOP), Leave()) == [
        events.Expired(ranges={A: span(0, 5), B: span(0, 5)}),
        events.Released(partitions=(C,)),
    ]
    assert machine.state.owned == {}


def test_member_without_partitions_leaves_silently() -> None:
    assert Machine().feed(End(Ending.STOP), Leave()) == []


def test_member_that_was_thrown_out_has_lost_everything_and_releases_nothing() -> None:
    machine = active(A, B)
    machine.plan((A, 5))
    assert machine.feed(Leave(evicted=True)) == [events.Lost(partitions=(A, B), ranges={A: span(0, 5)})]
    assert machine.state.owned == {}


def test_member_that_was_thrown_out_without_partitions_leaves_silently() -> None:
    machine = Machine(State(policy=active().state.policy))
    assert machine.feed(Leave(evicted=True)) == []
    assert machine.state.clean


def test_nothing_is_committed_once_the_membership_is_left() -> None:
    machine = in_flight()
    machine.feed(Leave())
    machine.finish()
    assert machine.state.committing is None
