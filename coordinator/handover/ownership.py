"""Partitions come and go: assigned, revoked, lost, given back, or with a changed log."""

from __future__ import annotations

from dataclasses import replace

from pyspark_kafka_group.coordinator.handover import events
from pyspark_kafka_group.coordinator.handover.inputs import Assign, Leave, LogChange, LogChangeFound, Lose, Revoke
from pyspark_kafka_group.coordinator.handover.lifecycle import Ending, Lifecycle, lifecycle_after
from pyspark_kafka_group.coordinator.handover.outputs import Fail, Output
from pyspark_kafka_group.coordinator.handover.state import Partition, State, busy, moved, uncommitted_ranges
from pyspark_kafka_group.coordinator.handover.transitions import Cause, Phase, phase_after
from pyspark_kafka_group.offsets.errors import DataLossError
from pyspark_kafka_group.offsets.types import OwnershipEpoch, TopicPartition


def assign(state: State, given: Assign) -> tuple[State, list[Output]]:
    """Take partitions, and resolve where they start."""
    if not given.partitions:
        return state, []
    epoch = OwnershipEpoch(state.last_epoch + 1)
    owned = dict(state.owned)
    for tp in given.partitions:
        phase = phase_after(owned[tp].phase if tp in owned else None, Cause.ASSIGNED)
        assert phase is not None
        owned[tp] = Partition(phase=phase, epoch=epoch)
    return replace(state, owned=owned, last_epoch=epoch), [events.Assigned(partitions=given.partitions)]


def change_logs(state: State, given: LogChangeFound) -> tuple[State, list[Output]]:
    """Resolve again where partitions start.  Their uncommitted offsets belong to a log that no longer exists."""
    mine = tuple(tp for tp in given.partitions if tp in state.owned)
    deleted: frozenset[TopicPartition] = frozenset()
    if given.change is LogChange.DELETED:
        # Also partitions that the group has already taken back for this reason: the query was reading them.
        mine_once = (tp for tp in given.partitions if given.awaited or tp in state.owned or tp in state.processed)
        deleted = frozenset(mine_once) - state.deleted
    if deleted and state.policy.fail_on_data_loss and not state.ending:
        return state, [Fail(DataLossError.of_deleted(sorted({tp.topic for tp in deleted})))]
    if not mine and not deleted:
        return state, []
    ranges = uncommitted_ranges(state, mine)
    epoch = OwnershipEpoch(state.last_epoch + 1)
    owned = dict(state.owned)
    for tp in mine:
        phase = phase_after(owned[tp].phase, Cause.LOG_CHANGED)
        if phase is None:
            del owned[tp]
        else:
            owned[tp] = Partition(phase=phase, epoch=epoch)
    changed = tuple(tp for tp in given.partitions if tp in state.owned or tp in deleted)
    return (
        replace(state, owned=owned, last_epoch=epoch, deleted=state.deleted | deleted),
        [events.LogChanged(partitions=changed, change=given.change.value, ranges=ranges)],
    )


def revoke(state: State, given: Revoke) -> tuple[State, list[Output]]:
    """Give idle partitions back at once, and let busy ones drain."""
    mine = {tp: busy(state, tp, state.owned[tp]) for tp in given.partitions if tp in state.owned}
    staying = tuple(tp for tp, is_busy in mine.items() if is_busy)
    leaving = tuple(tp for tp, is_busy in mine.items() if not is_busy)
    state = moved(state, staying, Cause.REVOKED_BUSY)
    state = moved(state, leaving, Cause.REVOKED_IDLE)
    out: list[Output] = []
    if leaving:
        out.append(events.Released(partitions=leaving))
    if staying:
        out.append(events.Draining(partitions=staying))
    return state, out


def expire(state: State) -> tuple[State, list[Output]]:
    """Give up partitions that still drain."""
    late = tuple(tp for tp, p in state.owned.items() if p.phase is Phase.DRAINING)
    if not late:
        return state, []
    out: list[Output] = []
    if ranges := uncommitted_ranges(state, late):
        out.append(events.Expired(ranges=ranges))
    # Of these nothing is read again: mostly their start could not be committed, so they have not read anything.
    if others := tuple(tp for tp in late if tp not in ranges):
        out.append(events.Released(partitions=others))
    return moved(state, late, Cause.EXPIRED), out


def lose(state: State, given: Lose) -> tuple[State, list[Output]]:
    """Drop partitions that the group has taken away.  Nothing of them is committed from now on."""
    mine = tuple(tp for tp in given.partitions if tp in state.owned)
    if not mine:
        return state, []
    ranges = uncommitted_ranges(state, mine)
    return moved(state, mine, Cause.LOST), [events.Lost(partitions=mine, ranges=ranges)]


def leave(state: State, given: Leave) -> tuple[State, list[Output]]:
    """Give everything back at once."""
    out: list[Output] = []
    if given.evicted:
        state, out = lose(state, Lose(tuple(state.owned)))
    unfinished = tuple(tp for tp, p in state.owned.items() if busy(state, tp, p))
    clean = state.lifecycle is not Lifecycle.FAILED and not out and not unfinished
    state = moved(state, _not_draining(state, unfinished), Cause.REVOKED_BUSY)
    state, expired = expire(state)
    idle = tuple(state.owned)
    state = moved(state, idle, Cause.REVOKED_IDLE)
    out += expired
    if idle:
        out.append(events.Released(partitions=idle))
    return replace(state, lifecycle=lifecycle_after(state.lifecycle, Ending.LEAVE), clean=clean), out


def _not_draining(state: State, partitions: tuple[TopicPartition, ...]) -> tuple[TopicPartition, ...]:
    return tuple(tp for tp in partitions if state.owned[tp].phase is not Phase.DRAINING)
