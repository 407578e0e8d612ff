"""Wrong versions of the code under test, each with one rule taken out, to show that the judge sees it.

A mutant is a text replaced in the source of one function; the text must occur exactly once, so a mutant cannot
become a no-op unnoticed when the code changes.
"""

from __future__ import annotations

import inspect
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any, NamedTuple

from pyspark_kafka_group.coordinator import assignment
from pyspark_kafka_group.offsets import start


class Mutant(NamedTuple):
    """``old`` becomes ``new`` in ``function`` of ``module``; ``State.plannable`` names a method."""

    name: str
    function: str
    old: str
    new: str
    module: ModuleType = assignment


MUTANTS = [
    Mutant(
        "what was planned under an earlier assignment counts for this one",
        "_finish",
        "p is not None and p.epoch == batch.epochs.get(tp)",
        "p is not None",
    ),
    Mutant("released while in flight", "_busy", "state.batch is not None and", "False and"),
    Mutant("released before it is committed", "_busy", "p.uncommitted or", "False or"),
    Mutant("own mark forgotten", "decide_start", "max(committed, mark)", "committed", start),
    Mutant(
        "planned before its start is committed",
        "State.plannable",
        "p.phase is Phase.ACTIVE",
        "p.phase in (Phase.ACTIVE, Phase.STARTING)",
    ),
    Mutant(
        "planned while draining",
        "State.plannable",
        "p.phase is Phase.ACTIVE",
        "p.phase in (Phase.ACTIVE, Phase.DRAINING)",
    ),
    Mutant("does not wait for its old batch", "_blocked", "return batch is not None", "return False"),
    Mutant("facts of an earlier assignment count", "_answer", "p.epoch != epoch", "False"),
    Mutant("committed when planned", "_plan", ".planned(r.until)", ".planned(r.until).done(r.until)"),
    Mutant("committed after the drain deadline", "_expire", "_move(state, late, Cause.EXPIRED)", "state"),
    Mutant("kept when lost", "_lose", "_move(state, mine, Cause.LOST)", "state"),
    Mutant("expired ranges not declared", "_expire", "Expired(ranges=ranges)", "Expired(ranges={})"),
    Mutant("lost ranges not declared", "_lose", "ranges=ranges)", "ranges={})"),
    Mutant("in-flight ranges not declared", "_twice", "end = state.batch", "_ = state.batch"),
    Mutant("finished batch does not raise the marks", "_finish", "progress=progress, batch=None", "batch=None"),
    Mutant(
        "marks of other partitions left out",
        "_plan",
        "in state.progress.items()",
        "in state.progress.items() if tp in running",
    ),
    Mutant("stale plan accepted", "_plan", "plannable.get(tp) == (epoch, r.start)", "tp in plannable"),
    Mutant("failed commit taken for done", "_commit_done", "if given.problem is not None:", "if False:"),
    Mutant(
        "failed commit not retried",
        "_commit_done",
        "[events.CommitFailed(problem=given.problem), ScheduleRetry()]",
        "[]",
    ),
    Mutant("two commits at a time", "_follow_up", "state.committing is None and", ""),
    Mutant("plans ahead of the commit", "State.may_plan", "self.committing is None or", "True or"),
    Mutant(
        "undecided start kept as finished",
        "_answer",
        "if phase is Phase.ACTIVE:\n            went_back",
        "if True:\n            went_back",
    ),
    Mutant("replay does not advance the position", "_replay", "max(p.position, r.until)", "p.position"),
    Mutant("replayed marks forgotten", "_replay", "progress=progress,\n", "\n"),
    Mutant("replay reads what another member owns", "_replay", "elif tp in given.elsewhere:", "elif False:"),
    Mutant(
        "replay does not wait for the group",
        "_replay",
        "        else:\n            return state, []",
        "        else:\n            skipped.add(tp)",
    ),
    Mutant("skip is not durable", "_replay", "if state.markers.get(tp) != marker}", "if False}"),
    Mutant("skipped range counts as finished", "_finish", "tp not in batch.skipped", "True"),
    Mutant("marker ignored at the start", "_adopt", "if marker.names(start, tp)", "if False"),
    Mutant("marker ignored in a replay", "_replay", "if marker is not None and marker.names(end, tp):", "if False:"),
    Mutant("replay is not trimmed", "_replay", "OffsetRange(min(p.position, r.until), r.until)", "r"),
    Mutant("offset after a rewind is not new", "_plan", "state.rewinds,", "0,"),
    Mutant("skip is no rewind", "_replay", "end.rewinds + bool(skipped)", "end.rewinds"),
    Mutant("rewound partition is replayed as logged", "_replay", "if p.position < r.start:", "if False:"),
    Mutant("added partition starts like the others", "_first_position", "facts.topic_started and", "False and", start),
    Mutant(
        "first partitions taken for added ones",
        "_first_position",
        "tp.partition >= facts.first_partitions",
        "True",
        start,
    ),
]


@contextmanager
def planted(mutant: Mutant) -> Iterator[None]:
    """Put ``mutant`` in place of the function it was made from."""
    owner_name, _, name = mutant.function.rpartition(".")
    owner = getattr(mutant.module, owner_name) if owner_name else mutant.module
    original = inspect.getattr_static(owner, name)
    function: Any = original.fget if isinstance(original, property) else original
    source = textwrap.dedent(inspect.getsource(function))
    if source.count(mutant.old) != 1:
        raise AssertionError(f"{mutant.name}: {mutant.old!r} is {source.count(mutant.old)} times in {mutant.function}")
    code = "from __future__ import annotations\n" + source.replace(mutant.old, mutant.new)
    # Globals are the module's own, locals take the new function, so nothing else of the module changes.
    made: dict[str, Any] = {}
    exec(compile(code, f"<{mutant.name}>", "exec"), vars(mutant.module), made)
    users = [owner, assignment] if owner is start and hasattr(assignment, name) else [owner]
    try:
        for user in users:
            setattr(user, name, made[name])
        yield
    finally:
        for user in users:
            setattr(user, name, original)
