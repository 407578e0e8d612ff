"""Wrong versions of the code under test, each without one rule.  They show that the judge notices the missing rule.

A mutant replaces a text in the source of one function.  The text must occur exactly once.  So a mutant cannot become a
no-op unnoticed when the code changes.
"""

from __future__ import annotations

import inspect
import sys
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any, NamedTuple

from pyspark_kafka_group.coordinator import assignment_stability
from pyspark_kafka_group.coordinator.handover import batches, ownership, replay, starting, state, step
from pyspark_kafka_group.offsets import checkpoint_age, commit_metadata, skip_markers, start_position
from pyspark_kafka_group.query import planning
from tests.simulation import query


class Mutant(NamedTuple):
    """Replaces ``old`` by ``new`` in ``function`` of ``module``.  A method has a name like ``State.may_plan``.

    The search for a schedule that tells it begins with ``seed``: most schedules tell only a few mutants.
    """

    name: str
    module: ModuleType
    function: str
    old: str
    new: str
    seed: int = 0


MUTANTS = [
    Mutant(
        "what was planned under an earlier assignment counts for this one",
        batches,
        "finish",
        "p is not None and p.epoch == epoch",
        "p is not None",
    ),
    Mutant("released while in flight", state, "busy", "state.batch is not None and", "False and"),
    Mutant("released before it is committed", state, "busy", "p.uncommitted or", "False or"),
    Mutant(
        "own processed offset forgotten",
        start_position,
        "_wanted",
        "wanted = max(processed.offset,",
        "wanted = committed if committed is not None else max(processed.offset,",
    ),
    Mutant(
        "planned before its start is committed",
        state,
        "Partition.plannable",
        "self.phase is _ACTIVE",
        "self.phase in (Phase.ACTIVE, Phase.STARTING)",
    ),
    Mutant(
        "planned while draining",
        state,
        "Partition.plannable",
        "self.phase is _ACTIVE",
        "self.phase in (Phase.ACTIVE, Phase.DRAINING)",
    ),
    Mutant(
        "a commit without an answer is forgotten",
        batches,
        "answer_commit",
        "doubted_after(state, commit) if given.unclear else state.doubted",
        "state.doubted",
    ),
    Mutant("does not wait for its old batch", state, "blocked", "if batch is not None and", "if False and"),
    Mutant("partition info of an earlier assignment count", starting, "receive_info", "p.epoch != epoch", "False"),
    Mutant(
        "committed when planned",
        batches,
        "plan",
        "p.planned(r.until, leader_epoch)",
        "p.planned(r.until, leader_epoch).done(r.until)",
    ),
    Mutant("committed after the drain deadline", ownership, "expire", "moved(state, late, Cause.EXPIRED)", "state"),
    Mutant("kept when lost", ownership, "lose", "moved(state, mine, Cause.LOST)", "state"),
    Mutant("expired ranges not declared", ownership, "expire", "Expired(ranges=ranges)", "Expired(ranges={})"),
    Mutant("lost ranges not declared", ownership, "lose", "ranges=ranges)", "ranges={})"),
    Mutant("in-flight ranges not declared", state, "uncommitted_ranges", "end = state.batch", "_ = state.batch"),
    Mutant(
        "finished batch does not raise the processed offsets", batches, "finish", "        processed=processed,\n", ""
    ),
    Mutant(
        "processed offsets of other partitions left out",
        batches,
        "plan",
        "in state.processed.items():",
        "in {tp: m for tp, m in state.processed.items() if tp in running}.items():",
    ),
    Mutant(
        "stale plan accepted",
        batches,
        "plan",
        "p.epoch == epoch and p.plannable and p.position == r.start < r.until",
        "p.plannable and r.start < r.until",
    ),
    Mutant(
        "a topic that was deleted before the group gave it to anybody is forgotten",
        ownership,
        "change_logs",
        "if given.awaited or tp in state.owned or tp in state.processed)",
        "if tp in state.owned)",
    ),
    Mutant(
        "a partition that nobody knows begins where a new group would, although the group has lost its offsets",
        starting,
        "receive_info",
        "read_before=tp.topic in read_before,",
        "",
    ),
    Mutant(
        "another partition of a topic that was created again begins where a new group would",
        start_position,
        "_wanted",
        "if created_again or _begins_anew(info, query) or",
        "if",
    ),
    Mutant(
        "partition info that is older than the start of another partition decide",
        starting,
        "receive_info",
        "begins_anew=tp.topic in begun_anew,",
        "",
    ),
    Mutant("processed offsets of topics that are gone stay", starting, "forget", "tp.topic not in gone", "True"),
    Mutant("failed commit taken for done", batches, "answer_commit", "if given.problem is not None:", "if False:"),
    Mutant(
        "failed commit not retried",
        batches,
        "answer_commit",
        "[events.CommitFailed(problem=given.problem), ScheduleRetry()]",
        "[]",
    ),
    Mutant("two commits at a time", step, "_follow_up", "state.committing is None and", ""),
    Mutant("plans ahead of the commit", state, "State.may_plan", "self.behind_since is None or", "True or"),
    Mutant(
        "plans on when a commit has failed",
        state,
        "State.may_plan",
        "self.behind_since is None or self.behind_since >= self.finished_batches",
        "self.committing is None or self.committing.after_batch == self.finished_batches",
    ),
    Mutant(
        "undecided start kept as finished",
        starting,
        "receive_info",
        "if changed[tp].phase is Phase.ACTIVE:",
        "if True:",
    ),
    Mutant(
        "replay does not advance the position",
        replay,
        "_read_again",
        "p if p.position >= until else p.planned(until, entry.leader_epoch)",
        "p",
    ),
    Mutant("replay reads what another member owns", replay, "replay", "elif tp in given.elsewhere:", "elif False:"),
    Mutant(
        "replay does not wait for the group",
        replay,
        "replay",
        "        else:\n            return state, []",
        "        else:\n            skipped.add(tp)",
    ),
    Mutant("skip is not durable", replay, "replay", "if state.markers.get(tp) != wanted[tp]}", "if False}"),
    Mutant(
        "skip of the batch before is forgotten",
        skip_markers,
        "with_skips",
        "*((SkipMarker.of(finished, tp),) if is_marked(markers, finished, tp) else ()),",
        "",
    ),
    Mutant("skipped range counts as finished", batches, "finish", "tp not in batch.skipped", "True"),
    Mutant("marker ignored at the start", starting, "restore", "if is_marked(given.markers, start, tp)}", "if False}"),
    Mutant("marker ignored in a replay", replay, "replay", "if is_marked(decided, end, tp):", "if False:"),
    Mutant(
        "replay is not trimmed",
        replay,
        "_not_taken",
        "if taken is None or taken.start >= r.until:",
        "if True:",
    ),
    Mutant(
        "own commit trims the replay",
        start_position,
        "_taken_over",
        "return OffsetRange(min(mine, until), until), until, note.former",
        "return OffsetRange(min(mine, until), committed), until, note.former",
        seed=437,
    ),
    Mutant(
        "what this query committed before others is taken for theirs",
        commit_metadata,
        "CommitNote.formerly_committed_by",
        "names = (query_id[:_NAME], ANYBODY)",
        "names = (ANYBODY,)",
    ),
    Mutant(
        "only the last of the former owners is known",
        commit_metadata,
        "CommitNote.handed_on",
        "[Former(f.query, min(f.until, committed)) for f in self.former]",
        "[Former(ANYBODY, committed)]",
    ),
    Mutant(
        "own commit that others went on from is left to them", replay, "replay", "tp in given.own_commits:", "False:"
    ),
    Mutant("offset after a rewind is not new", batches, "plan", "state.rewinds,", "0,"),
    Mutant("empty batch after a restart is not new", batches, "plan", "not running and end == state.start", "False"),
    Mutant("skip is no rewind", replay, "replay", "end.rewinds + went_back", "end.rewinds"),
    Mutant("rewound partition is replayed as logged", replay, "replay", "p.position < r.start", "False"),
    Mutant(
        "added partition starts like the others",
        start_position,
        "_first_position",
        "info.topic_started and",
        "False and",
    ),
    Mutant(
        "first partitions taken for added ones",
        start_position,
        "_first_position",
        "tp.partition >= initial",
        "True",
    ),
    Mutant(
        "commit of another log counts",
        start_position,
        "_has_stale_commit",
        "_is_of_another_log(info, info.committed_topic_id, info.committed_leader_epoch)",
        "False",
    ),
    Mutant(
        "processed offset of another log counts",
        start_position,
        "_of_this_log",
        "_is_of_another_log(info, processed.topic_id, processed.leader_epoch)",
        "False",
    ),
    Mutant(
        "new log is not noticed while it is read",
        planning,
        "recreated_topics",
        "if differ(position.topic_id, topic_ids.get(tp.topic))",
        "if False",
    ),
    Mutant(
        "truncation of what is finished goes unnoticed",
        start_position,
        "_not_truncated",
        "if processed.offset > end:",
        "if False:",
    ),
    Mutant(
        "truncation of what is committed goes unnoticed",
        start_position,
        "_not_truncated",
        "if committed > end:",
        "if False:",
    ),
    Mutant(
        "log that has grown again is not compared",
        planning,
        "below",
        "if end < plannable[tp].offset",
        "if False",
        seed=2384,
    ),
    Mutant(
        "log end that no leader has confirmed is believed",
        planning,
        "suspects",
        "if end is not None and end > offset:",
        "if False:",
        seed=527,
    ),
    Mutant(
        "leader epochs that have gone back are not noticed",
        start_position,
        "_is_ahead",
        "return leader_epoch > info.leader_epoch",
        "return False",
    ),
    Mutant(
        "restored log is begun anew by each member",
        start_position,
        "_of_this_log",
        "stale_commit = _has_stale_commit(info)",
        "stale_commit = _has_stale_commit(info) or is_behind(info, processed)",
    ),
    Mutant("batch that was truncated is replayed", replay, "replay", "tp in state.truncated or", ""),
    Mutant(
        "nobody's commit is taken for ours",
        start_position,
        "_went_back",
        "decided = note is None or",
        "decided = note is not None and",
    ),
    Mutant(
        "reset that another query has taken up is ignored",
        start_position,
        "_went_back",
        "processed.lineage != note.lineage",
        "False",
    ),
    Mutant(
        "intended reset counts for the first query only",
        start_position,
        "_is_intended",
        "note.intended and processed is not None",
        "False and processed is not None",
        seed=7,
    ),
    Mutant(
        "restored checkpoint goes unnoticed",
        checkpoint_age,
        "check_age",
        "own is None",
        "True",
    ),
    Mutant(
        "restored checkpoint goes unnoticed once others have committed",
        commit_metadata,
        "CommitNote.committed_by",
        "if own else None",
        "if False else None",
    ),
    Mutant("old checkpoint is refused too late", starting, "check_checkpoint", "state.unfinished is None", "True"),
    Mutant(
        "a range that another member owns is read if its topic is not subscribed",
        replay,
        "replay",
        "elif tp in given.own_commits:",
        "elif tp in given.own_commits or tp in given.orphaned:",
    ),
    Mutant(
        "empty assignment is taken for nothing to read",
        assignment_stability,
        "is_stable",
        "given >= set(partitions)",
        "True",
    ),
    Mutant("unfinished is not cleared when finished", batches, "finish", "        unfinished=None,\n", ""),
    Mutant(
        "a missing range is no rewind",
        replay,
        "replay",
        "_processed_beside(state, end, skipped | gone)",
        "_processed_beside(state, end, skipped)",
    ),
    Mutant(
        "what others took over after us is not our own commit",
        replay,
        "is_own_commit",
        " or note.formerly_committed_by(end.query_id) >= entry.range.until",
        "",
    ),
    Mutant(
        "a static member gives up while the place of its dead process is not free",
        query,
        "Query._join_again",
        "self.world.group.join(self.client)",
        "pass",
        seed=566,
    ),
    Mutant(
        "a run that is fenced by another one takes its commit for done",
        query,
        "Query._be_fenced",
        'self._answer_commit("fenced")',
        "self._answer_commit(None)",
    ),
    Mutant(
        "commits of another run of the same query go unnoticed once the query reads",
        start_position,
        "decide_start",
        "check_age(tp, committed, query, group_id=policy.group_id)",
        "pass",
    ),
    Mutant(
        "skip markers that cannot be read are taken for none",
        query,
        "Query._read_markers",
        "return None if",
        "return {} if",
    ),
    Mutant(
        "skip markers that are lost are taken for all",
        query,
        "Query.lose_markers",
        "stored[tp].offset >= marker.range.until",
        "True",
    ),
]


@contextmanager
def planted(mutant: Mutant) -> Iterator[None]:
    """Replace the original function by ``mutant``."""
    owner_name, _, name = mutant.function.rpartition(".")
    owner = getattr(mutant.module, owner_name) if owner_name else mutant.module
    original = inspect.getattr_static(owner, name)
    function: Any = original.fget if isinstance(original, property) else original
    source = textwrap.dedent(inspect.getsource(function))
    if source.count(mutant.old) != 1:
        raise AssertionError(f"{mutant.name}: {mutant.old!r} is {source.count(mutant.old)} times in {mutant.function}")
    code = "from __future__ import annotations\n" + source.replace(mutant.old, mutant.new)
    # The new function uses the module's own globals, but goes into `made`.  So nothing else in the module changes.
    made: dict[str, Any] = {}
    exec(compile(code, f"<{mutant.name}>", "exec"), vars(mutant.module), made)
    # Other modules may have imported the function by name.
    users = [owner]
    if not owner_name:
        modules = [module for path, module in sys.modules.items() if path.startswith(("pyspark_kafka_group", "tests"))]
        users += [module for module in modules if module is not owner and vars(module).get(name) is original]
    try:
        for user in users:
            setattr(user, name, made[name])
        yield
    finally:
        for user in users:
            setattr(user, name, original)
