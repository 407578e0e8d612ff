"""One step of the machine: which module handles which input, and what follows from every new state."""

from __future__ import annotations

from dataclasses import replace
from typing import assert_never

from pyspark_kafka_group.coordinator.handover import batches, events, ownership, reading_back, replay, starting
from pyspark_kafka_group.coordinator.handover.inputs import (
    Assign,
    CommitAnswered,
    End,
    Expire,
    Finish,
    Forget,
    Input,
    Leave,
    LogChangeFound,
    Lose,
    OffsetsAtStart,
    OffsetsReadBack,
    PartitionInfoReceived,
    PlanBatch,
    ReadBack,
    Replay,
    Restored,
    Retry,
    Revoke,
    SkipsStored,
)
from pyspark_kafka_group.coordinator.handover.lifecycle import lifecycle_after
from pyspark_kafka_group.coordinator.handover.outputs import Commit, CommitEntry, FetchPartitionInfo, Output
from pyspark_kafka_group.coordinator.handover.state import State, blocked, busy, moved, updated
from pyspark_kafka_group.coordinator.handover.transitions import Cause, Phase
from pyspark_kafka_group.offsets.types import OwnershipEpoch, TopicPartition


def step(state: State, given: Input) -> tuple[State, tuple[Output, ...]]:
    """Return the state after ``given``, and the outputs in their order.

    Raises
    ------
    IllegalTransitionError
        If ``given`` cannot happen in ``state``; the state is unchanged.
    """
    out: list[Output]
    match given:
        case Restored():
            state, out = starting.restore(state, given)
        case OffsetsAtStart():
            state, out = starting.check_checkpoint(state, given)
        case Assign():
            state, out = ownership.assign(state, given)
        case PartitionInfoReceived():
            state, out = starting.receive_info(state, given)
        case LogChangeFound():
            state, out = ownership.change_logs(state, given)
        case Forget():
            state, out = starting.forget(state, given)
        case Revoke():
            state, out = ownership.revoke(state, given)
        case Expire():
            state, out = ownership.expire(state)
        case Lose():
            state, out = ownership.lose(state, given)
        case PlanBatch():
            state, out = batches.plan(state, given)
        case Replay():
            state, out = replay.replay(state, given)
        case SkipsStored():
            unstored = {tp: markers for tp, markers in state.unstored.items() if tp not in given.markers}
            state, out = replace(state, markers={**state.markers, **given.markers}, unstored=unstored), []
        case Finish():
            state, out = batches.finish(state, given)
        case CommitAnswered():
            state, out = batches.answer_commit(state, given)
        case ReadBack():
            state, out = reading_back.begin(state, given)
        case OffsetsReadBack():
            state, out = reading_back.compare(state, given)
        case Retry():
            state, out = replace(state, retry_pending=False), []
        case End():
            state, out = replace(state, lifecycle=lifecycle_after(state.lifecycle, given.ending)), []
        case Leave():
            state, out = ownership.leave(state, given)
        case _:
            assert_never(given)
    return _follow_up(state, out)


def _follow_up(state: State, out: list[Output]) -> tuple[State, tuple[Output, ...]]:
    """Add what follows from the new state, whatever led to it: release, fetch, commit."""
    settled: list[TopicPartition] = []
    asked: dict[TopicPartition, OwnershipEpoch] = {}
    due: dict[TopicPartition, CommitEntry] = {}
    behind = False
    active = Phase.ACTIVE
    may_commit = state.committing is None and not state.retry_pending
    # Deliberate: unpacked, for up to 10,000 partitions after each input.
    for tp, p in state.owned.items():
        phase, epoch, position, leader_epoch, finished, committed, note, fetching = p
        if finished is not None and (committed is None or finished > committed):
            if may_commit:
                assert note is not None
                if finished != position:  # the rest is in flight
                    processed = state.processed.get(tp)
                    leader_epoch = (
                        processed.leader_epoch if processed is not None and processed.offset == finished else None
                    )
                due[tp] = CommitEntry(epoch, finished, leader_epoch, note)
            behind = behind or (phase is not Phase.STARTING and finished != committed)
        if phase is active:
            continue
        if phase is Phase.DRAINING and not busy(state, tp, p):
            settled.append(tp)
        elif phase is Phase.RESOLVING and not fetching and not blocked(state, tp, p):
            asked[tp] = epoch
    if settled:
        state = moved(state, settled, Cause.SETTLED)
        out.append(events.Released(partitions=tuple(settled)))
    if asked:
        state = updated(state, {tp: state.owned[tp]._replace(fetching=True) for tp in asked})
        out.append(FetchPartitionInfo(asked))
    if not behind and state.behind_since is not None:
        state = replace(state, behind_since=None)
    if due:
        commit = Commit(due, state.finished_batches)
        state = replace(state, committing=commit)
        out.append(commit)
    if state.doubted:
        state, reads = reading_back.confirm(state)
        out += reads
    return state, tuple(out)
