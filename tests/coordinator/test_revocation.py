"""What the state machine does when partitions leave, and when they come back.

What holds over long sequences of inputs is shown in ``tests/simulation``.
"""

from __future__ import annotations

from pyspark_kafka_group.coordinator import events
from pyspark_kafka_group.coordinator.assignment import (
    Assign,
    CommitDone,
    Exit,
    Expire,
    FetchFacts,
    Leave,
    Lose,
    Phase,
    Retry,
    Revoke,
)
from pyspark_kafka_group.offsets.types import Offset, OwnershipEpoch
from tests.coordinator.machine import (
    A,
    B,
    C,
    Machine,
    active,
    draining,
    in_flight,
    resolving,
    span,
    starting,
)

# ------------------------------------------------------------------------------ revoke


def test_idle_partition_is_released_at_once() -> None:
    machine = active(A, B)
    assert machine.feed(Revoke((A,))) == [events.Released(partitions=(A,))]
    assert set(machine.state.owned) == {B}


def test_partition_in_flight_drains_until_its_batch_is_committed() -> None:
    machine = draining()
    machine.finish()
    assert machine.phase(A) is Phase.DRAINING
    outputs = machine.feed(CommitDone(None))
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
    machine.feed(CommitDone(None))
    assert machine.state.owned == {}


def test_draining_partition_stays_through_a_failed_commit() -> None:
    machine = draining()
    machine.finish()
    machine.feed(CommitDone("refused"))
    assert machine.phase(A) is Phase.DRAINING
    machine.feed(Retry(), CommitDone(None))
    assert machine.state.owned == {}


def test_partition_that_is_revoked_before_its_start_is_known_is_released_at_once() -> None:
    assert resolving().feed(Revoke((A,))) == [events.Released(partitions=(A,))]


def test_partition_that_is_revoked_while_its_start_is_committed_waits_for_that() -> None:
    """Otherwise the next owner may resolve `latest` anew."""
    machine = starting()
    assert machine.feed(Revoke((A,))) == [events.Draining(partitions=(A,))]
    assert machine.feed(CommitDone(None)) == [
        events.Committed(offsets={A: Offset(0)}),
        events.Released(partitions=(A,)),
    ]


def test_two_revocations_in_one_batch_drain_side_by_side() -> None:
    machine = in_flight(A, B, C)
    machine.feed(Revoke((A,)))
    machine.feed(Revoke((B,)))
    machine.finish()
    machine.feed(CommitDone(None))
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
    machine.feed(CommitDone(None))
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


def test_finished_batch_of_a_lost_partition_raises_the_own_mark() -> None:
    machine = in_flight()
    machine.feed(Lose((A,)))
    machine.finish()
    assert machine.state.progress[A].finished == 5


# ------------------------------------------------------------------------------ away and back


def test_partition_that_comes_back_waits_for_its_old_batch() -> None:
    machine = in_flight()
    machine.feed(Lose((A,)))
    assert machine.feed(Assign((A,))) == [events.Assigned(partitions=(A,))]
    assert FetchFacts({A: OwnershipEpoch(2)}) in machine.finish()


def test_partition_that_comes_back_starts_behind_its_old_batch() -> None:
    machine = in_flight()
    machine.feed(Lose((A,)), Assign((A,)))
    machine.finish()
    machine.answer(A, 0)
    assert machine.state.plannable() == {A: (2, 5)}


def test_partition_that_comes_back_further_on_starts_there() -> None:
    machine = in_flight()
    machine.feed(Lose((A,)), Assign((A,)))
    machine.finish()
    machine.answer(A, 20)
    assert machine.state.plannable() == {A: (2, 20)}


def test_old_batch_does_not_keep_other_new_partitions_waiting() -> None:
    machine = in_flight()
    machine.feed(Lose((A,)))
    assert machine.feed(Assign((A, B))) == [
        events.Assigned(partitions=(A, B)),
        FetchFacts({B: OwnershipEpoch(2)}),
    ]


def test_partition_that_comes_back_and_is_revoked_does_not_wait_for_its_old_batch() -> None:
    machine = in_flight()
    machine.feed(Lose((A,)), Assign((A,)))
    assert machine.feed(Revoke((A,))) == [events.Released(partitions=(A,))]


# ------------------------------------------------------------------------------ exit and leave


def test_commit_of_a_finished_batch_completes_while_the_query_ends() -> None:
    machine = in_flight()
    machine.finish()
    machine.feed(Exit())
    assert machine.state.uncommitted
    machine.feed(CommitDone(None))
    assert not machine.state.uncommitted


def test_member_that_leaves_with_nothing_open_releases_everything() -> None:
    machine = active(A, B)
    assert machine.feed(Exit(), Leave()) == [events.Released(partitions=(A, B))]
    assert machine.state.owned == {}


def test_member_that_leaves_in_the_middle_of_a_batch_tells_what_may_be_repeated() -> None:
    machine = active(A, B, C)
    machine.plan((A, 5), (B, 5))
    machine.feed(Revoke((A,)))
    assert machine.feed(Exit(), Leave()) == [
        events.Expired(ranges={A: span(0, 5), B: span(0, 5)}),
        events.Released(partitions=(C,)),
    ]
    assert machine.state.owned == {}


def test_member_without_partitions_leaves_silently() -> None:
    assert Machine().feed(Exit(), Leave()) == []
