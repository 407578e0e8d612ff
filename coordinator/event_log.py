"""The sinks of events: the log, the file of ``eventLog``, and the sums of the progress report."""

from __future__ import annotations

import json
import logging
import time
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from pyspark_kafka_group.cluster.daemon_executor import ClosedError, DaemonExecutor
from pyspark_kafka_group.coordinator.activity import Activity
from pyspark_kafka_group.coordinator.handover import events
from pyspark_kafka_group.offsets.notes import ResetNote
from pyspark_kafka_group.offsets.types import OffsetRange, TopicPartition

_log = logging.getLogger(__name__)

# Once per batch or more: useful only in the search for a problem.
_QUIET = (events.Planned, events.Finished, events.Committed, events.Lag)
_WARNINGS = (
    events.CommitFailed,
    events.Expired,
    events.Lost,
    events.RecordsLost,
    events.OffsetReset,
    events.Rewound,
    events.Replayed,
    events.LogChanged,
    events.Recreated,
    events.HeldBack,
)

LINE_FIELDS: Mapping[str, tuple[str, str]] = {
    "time": ("number", "When the line was written, in seconds since 1970."),
    "member": ("text", "The client id of the member, as Kafka's tools show it."),
    "event": ("text", "The name of the event; it decides which fields follow."),
}
"""Type and meaning of the fields with which each line of the event log begins."""

# How many lines may wait for a file system that hangs, and how long the end of the query waits for it.
_MOST_WAITING = 10_000
_CLOSE_S = 2.0

# A line of the log names at most this many partitions, and counts the others.
_NAMED = 8


class EventLog:
    """Takes the events of one member.  Never raises.

    The group thread calls it.  The main thread calls it before the group thread starts, and for :class:`Lag`.

    Parameters
    ----------
    client_id : str
        The prefix of each log line, and the field ``member`` of each line of the file.
    path : str or None
        The option ``eventLog``: a file that gets one JSON object for each event, on a line.  Lines are appended
        whole, so several members can share a file.

    Attributes
    ----------
    activity : Activity
        Counts and times.
    """

    def __init__(self, client_id: str, path: str | None) -> None:
        self._client_id = client_id
        self._path = None if path is None else Path(path)
        # Deliberate: a thread of its own.  A file system that hangs would stop the group thread, and the group would
        # throw this member out.
        self._writer = None if path is None else DaemonExecutor("kafka-group-event-log")
        self._waiting = 0  # number of lines to write, for a limit; may be wrong by a few
        self.activity = Activity()

    @property
    def counts(self) -> Counter[str]:
        """How often each event has happened."""
        return self.activity.counts

    def __call__(self, event: events.Event) -> None:
        """Count, log and store one event."""
        self.activity.note(event)
        if isinstance(event, events.CommitFailed):
            # A broken coordinator fails every attempt.  One warning for ten failures is enough.
            level = logging.WARNING if self.counts[event.name] % 10 == 1 else logging.DEBUG
        elif isinstance(event, events.OffsetReset) and event.previous is None:
            level = logging.INFO  # a first start, as after import-checkpoint
        else:
            level = log_level(type(event))
        if _log.isEnabledFor(level):
            _log.log(level, "%s: %s", self._client_id, describe(event))
        if self._writer is None or self._path is None:
            return
        line = json.dumps({"time": time.time(), "member": self._client_id, **event.to_json()})
        self._waiting += 1
        if self._waiting <= _MOST_WAITING:
            self._writer.post(self._append, line)
        elif self._waiting == _MOST_WAITING + 1:
            _log.warning("eventLog: %s takes no lines. The file gets no further events.", self._path)

    def close(self) -> None:
        """Wait a moment until all lines are in the file.  May be called more than once."""
        if self._writer is not None:
            written = self._writer.submit(lambda: None)
            self._writer.close()
            with suppress(TimeoutError, ClosedError):
                written.result(_CLOSE_S)

    def _append(self, line: str) -> None:
        if self._waiting <= _MOST_WAITING:
            self._waiting -= 1
        if self._path is None:
            return
        try:
            with self._path.open("a", encoding="utf-8") as file:
                file.write(line + "\n")
        except OSError as problem:
            _log.warning(
                "eventLog: cannot write to %s (%s). The file gets no further events. Make it writable, and start the "
                "query again.",
                self._path,
                problem,
            )
            self._path = None


def log_level(kind: type[events.Event]) -> int:
    """Return the level at which events of a kind are logged."""
    if issubclass(kind, _WARNINGS):
        return logging.WARNING
    return logging.DEBUG if issubclass(kind, _QUIET) else logging.INFO


def describe(event: events.Event) -> str:
    """Return one line about ``event`` for people."""
    match event:
        case events.Warming(others=others):
            return f"runs an empty batch before it joins the group, which has {others} other members for its topics"
        case events.Joined(member_id=member_id):
            return f"joined the group as {member_id}"
        case events.Assigned(partitions=partitions):
            return f"assigned {_names(partitions)}"
        case events.Started(positions=positions):
            return "starting at " + _list([f"{tp}: {offset}" for tp, offset in positions.items()])
        case events.LogChanged(partitions=partitions, change=change, ranges=ranges):
            twice = f"; in flight or not committed: {_ranges(ranges)}" if ranges else ""
            return f"{change}: {_names(partitions)}; the query decides again where they start{twice}"
        case events.Recreated(partition=tp, position=position):
            how = "the topic was deleted and created again, or the cluster restored from an older copy"
            return f"{tp}: {how}; starting at {position} (failOnDataLoss=false)"
        case events.RecordsLost(partition=tp, gone=gone):
            return f"{tp}: offsets [{gone[0]}, {gone[1]}) are gone and were skipped (failOnDataLoss=false)"
        case events.HeldBack(partitions=partitions, reason=reason):
            return f"held back, cannot read {_names(partitions) if partitions else 'any partition'}: {reason}"
        case events.HeldBackEnded(partitions=partitions, seconds=seconds):
            return (
                f"no longer held back, after {seconds:g} s: {_names(partitions) if partitions else 'the group answers'}"
            )
        case events.Planned(ranges=ranges):
            return f"planned {_ranges(ranges)}"
        case events.OffsetReset(partition=tp, committed=committed, position=position):
            note = ResetNote(event.by, int(event.reset_at * 1000), event.previous)
            return f"{tp}: the committed offset of the group is {committed}: {note}; resuming at {position}"
        case events.Rewound(partition=tp, committed=committed, position=position):
            now = "is gone" if committed is None else f"went back to {committed}"
            return f"{tp}: the committed offset of the group {now}; resuming at {position} (onOffsetRewind)"
        case events.Replayed(ranges=ranges, not_owned=not_owned, skipped=skipped):
            again = f"Spark runs its last batch again: {_ranges(ranges)}"
            if skipped:
                again += f"; left to its new owners: {_ranges(skipped)}"
            return f"{again}; not owned, so not committed: {_names(not_owned)}" if not_owned else again
        case events.Finished(ranges=ranges):
            return f"finished {_ranges(ranges)}"
        case events.Committed(offsets=offsets):
            return "committed " + _list([f"{tp}: {offset}" for tp, offset in offsets.items()])
        case events.Lag(topics=topics):
            return "lag " + _list([f"{topic}: {lag}" for topic, lag in topics.items()])
        case events.CommitFailed(problem=problem):
            return f"commit failed, retrying: {problem}"
        case events.Draining(partitions=partitions):
            return f"revoked, leaving after the running batch: {_names(partitions)}"
        case events.Released(partitions=partitions):
            return f"released {_names(partitions)}"
        case events.Expired(ranges=ranges):
            return f"left before the batch was committed; may be processed twice: {_ranges(ranges)}"
        case events.Lost(partitions=partitions, ranges=ranges):
            twice = f"; may be processed twice: {_ranges(ranges)}" if ranges else ""
            return f"lost {_names(partitions)}{twice}"
        case events.Left(clean=clean):
            return "left the group" if clean else "left the group in the middle of a batch"
        case _:
            return event.name


def _names(partitions: tuple[TopicPartition, ...]) -> str:
    return _list([str(tp) for tp in partitions])


def _ranges(ranges: Mapping[TopicPartition, OffsetRange]) -> str:
    return _list([f"{tp} {r}" for tp, r in ranges.items()])


def _list(items: list[str]) -> str:
    shown = ", ".join(items[:_NAMED])
    return f"{shown} and {len(items) - _NAMED} more" if len(items) > _NAMED else shown or "nothing"
