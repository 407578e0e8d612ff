"""Wrong versions of the code under test that a named unit test catches, and two that change nothing.

The simulation misses most of them, because their effect is rare there, or its world lacks it.  A test plants each
mutant and runs the unit test beside it, which must fail.  :mod:`tests.simulation.mutants` contains the mutants that the
simulation catches.
"""

from __future__ import annotations

import importlib
import inspect
import itertools
from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest

from pyspark_kafka_group.coordinator import assignment_stability
from pyspark_kafka_group.coordinator.handover import batches, ownership, replay, starting, state, step
from pyspark_kafka_group.offsets import checkpoint_age, commit_metadata, skip_markers, start_position
from pyspark_kafka_group.query import planning
from tests.simulation.mutants import Mutant


class Pinned(NamedTuple):
    """A mutant, and the unit test that fails under it."""

    mutant: Mutant
    killer: str


class Equivalent(NamedTuple):
    """A mutant that behaves like the real code, and the reason."""

    mutant: Mutant
    reason: str


PINNED = [
    # No schedule catches it: a decision on the old offset heals, because the query's processed offset counts.
    Pinned(
        Mutant(
            "does not wait for its old commit", state, "blocked", "return commit is not None and", "return False and"
        ),
        "tests/coordinator/handover/test_ownership.py::test_where_a_changed_log_starts_is_asked_when_its_old_commit_is_answered",
    ),
    Pinned(
        Mutant(
            "processed offsets of unread partitions lose their leader epoch",
            batches,
            "plan",
            "PartitionEntry(OffsetRange(finished, finished), leader_epoch, topic_id, lineage)",
            "PartitionEntry(OffsetRange(finished, finished), None, topic_id, lineage)",
        ),
        "tests/coordinator/handover/test_batches.py::test_end_of_a_batch_holds_its_ranges_and_the_processed_offsets_of_all_other_partitions",
    ),
    Pinned(
        Mutant(
            "a planned range is logged with the leader epoch of the processed offset",
            batches,
            "plan",
            "PartitionEntry(read, p.leader_epoch, note.topic_id, note.lineage)",
            "PartitionEntry(read, leader_epoch, note.topic_id, note.lineage)",
        ),
        "tests/coordinator/handover/test_batches.py::test_end_of_a_batch_says_under_which_leader_its_ranges_were_found",
    ),
    Pinned(
        Mutant(
            "the first commit raises the processed offset and does not replace it",
            batches,
            "answer_commit",
            "if p is not None and mine and p.committed is None:",
            "if False:",
        ),
        "tests/coordinator/handover/test_starting.py::test_processed_offsets_go_back_with_a_truncated_log_once_its_start_is_committed",
    ),
    Pinned(
        Mutant(
            "a commit raises processed offsets of another log or lineage",
            batches,
            "answer_commit",
            "elif mine or known is None or not unrelated(known, note):",
            "elif True:",
        ),
        "tests/coordinator/handover/test_batches.py::test_answer_to_a_commit_of_an_earlier_lineage_does_not_touch_the_processed_offset",
    ),
    Pinned(
        Mutant(
            "a processed offset that goes back with a commit is no rewind",
            batches,
            "answer_commit",
            "went_back = went_back or (known is not None and goes_back(known, new))",
            "pass",
        ),
        "tests/coordinator/handover/test_starting.py::test_reset_to_what_is_further_on_is_followed_under_a_new_lineage",
    ),
    Pinned(
        Mutant(
            "a commit counts one batch less, so no batch is planned beside it",
            batches,
            "answer_commit",
            "commit.after_batch + 1)",
            "commit.after_batch)",
        ),
        "tests/coordinator/handover/test_batches.py::test_batch_after_next_waits_until_the_last_one_is_committed",
    ),
    Pinned(
        Mutant("a deleted topic is told again and again", ownership, "change_logs", " - state.deleted", ""),
        "tests/coordinator/handover/test_ownership.py::test_a_deleted_topic_is_told_once",
    ),
    Pinned(
        Mutant(
            "ranges of changed logs are not declared",
            ownership,
            "change_logs",
            "ranges = uncommitted_ranges(state, mine)",
            "ranges = {}",
        ),
        "tests/coordinator/handover/test_ownership.py::test_what_was_in_flight_or_not_committed_of_a_changed_log_is_told",
    ),
    Pinned(
        Mutant(
            "a changed log keeps its ownership epoch",
            ownership,
            "change_logs",
            "owned[tp] = Partition(phase=phase, epoch=epoch)",
            "owned[tp] = Partition(phase=phase, epoch=owned[tp].epoch)",
        ),
        "tests/coordinator/handover/test_ownership.py::test_where_a_changed_log_starts_is_asked_under_a_new_epoch",
    ),
    Pinned(
        Mutant(
            "an evicted member leaves without an event for what it has lost",
            ownership,
            "leave",
            "if given.evicted:",
            "if False:",
        ),
        "tests/coordinator/handover/test_lifecycle.py::test_a_membership_that_was_thrown_out_is_not_clean",
    ),
    Pinned(
        Mutant(
            "every leave is clean",
            ownership,
            "leave",
            "clean = state.lifecycle is not Lifecycle.FAILED and not out and not unfinished",
            "clean = True",
        ),
        "tests/coordinator/handover/test_lifecycle.py::test_a_membership_that_is_left_in_the_middle_of_a_batch_was_not_clean",
    ),
    Pinned(
        Mutant(
            "a replay goes on without a missing topic although failOnDataLoss is set",
            replay,
            "replay",
            "if gone and state.policy.fail_on_data_loss:",
            "if False:",
        ),
        "tests/coordinator/handover/test_replay.py::test_replay_of_what_does_not_exist_any_more_ends_the_query",
    ),
    Pinned(
        Mutant(
            "a replay reads a topic that was created again",
            replay,
            "replay",
            " or differ(p.topic_id, end.entries[tp].topic_id)",
            "",
        ),
        "tests/coordinator/handover/test_replay.py::test_range_of_another_log_is_skipped",
    ),
    Pinned(
        Mutant(
            "a replay waits for partitions that are not subscribed any more",
            replay,
            "replay",
            "elif tp in given.orphaned:",
            "elif False:",
        ),
        "tests/coordinator/handover/test_replay.py::test_range_of_a_topic_that_is_not_subscribed_any_more_is_read_and_not_committed",
    ),
    Pinned(
        Mutant(
            "a skipped or missing partition without a processed offset gets none",
            replay,
            "_processed_beside",
            "elif tp in left_out and tp not in processed:",
            "elif False:",
        ),
        "tests/coordinator/handover/test_replay.py::test_skipped_range_does_not_count_as_finished",
    ),
    Pinned(
        Mutant(
            "a replay brings back the processed offset of another start",
            replay,
            "_processed_beside",
            "unrelated(known, logged) or _began_again(",
            "_began_again(",
        ),
        "tests/coordinator/handover/test_replay.py::test_replay_does_not_bring_the_processed_offset_of_an_earlier_lineage_back",
    ),
    Pinned(
        Mutant(
            "a replay reads all of a range that others have committed in part",
            replay,
            "_not_taken",
            "return OffsetRange(Offset(min(max(taken.until, r.start), r.until)), r.until)",
            "return r if taken.until < r.until else OffsetRange(r.until, r.until)",
        ),
        "tests/coordinator/handover/test_replay.py::test_replay_leaves_out_what_somebody_else_has_committed_meanwhile",
    ),
    Pinned(
        Mutant(
            "a skip marker that counts at the start is no rewind",
            starting,
            "restore",
            "rewinds=start.rewinds + bool(skipped)",
            "rewinds=start.rewinds",
        ),
        "tests/coordinator/handover/test_replay.py::test_processed_offset_of_a_skipped_range_is_the_one_before_the_batch_when_the_query_starts_after_it",
    ),
    Pinned(
        Mutant(
            "the unfinished batch of a new log is begun at the old processed offset",
            starting,
            "restore",
            "if tp not in processed or differ(processed[tp].topic_id, entry.topic_id):",
            "if tp not in processed:",
        ),
        "tests/coordinator/handover/test_starting.py::test_an_unfinished_batch_of_a_new_log_tells_where_the_query_started_it",
    ),
    Pinned(
        Mutant(
            "processed offsets of a topic are forgotten while its batch runs",
            starting,
            "forget",
            "gone = given.topics - under_way",
            "gone = given.topics - {tp.topic for tp in state.owned}",
        ),
        "tests/coordinator/handover/test_starting.py::test_processed_offsets_are_not_forgotten_while_their_batch_runs",
    ),
    Pinned(
        Mutant(
            "forgetting a topic is no rewind", starting, "forget", "rewinds=state.rewinds + 1", "rewinds=state.rewinds"
        ),
        "tests/coordinator/handover/test_starting.py::test_processed_offsets_of_topics_that_are_gone_are_forgotten",
    ),
    Pinned(
        Mutant(
            "a processed offset that goes back with the partition info is no rewind",
            starting,
            "receive_info",
            "went_back |= old is not None and goes_back(old, processed[tp])",
            "pass",
        ),
        "tests/coordinator/handover/test_starting.py::test_accepted_rewind_is_told_and_processed_offsets_go_back",
    ),
    Pinned(
        Mutant(
            "a deleted topic that exists again stays deleted",
            starting,
            "receive_info",
            "deleted=_still_deleted(state, {tp.topic for tp in changed}),",
            "deleted=state.deleted,",
        ),
        "tests/coordinator/handover/test_ownership.py::test_a_deleted_topic_that_is_there_again_is_not_deleted_any_more",
    ),
    Pinned(
        Mutant(
            "starts of this run count as read before",
            starting,
            "_topics_read_before",
            "(tp.topic, entry.topic_id) for tp, entry in state.start.entries.items() if tp in state.processed",
            "(tp.topic, one.topic_id) for tp, one in state.processed.items()",
        ),
        "tests/coordinator/handover/test_starting.py::test_info_that_are_older_than_the_start_of_another_partition_are_no_loss_of_offsets",
    ),
    Pinned(
        Mutant(
            "processed offsets of other partitions do not tell that a topic was created again",
            starting,
            "receive_info",
            "recreated=tp.topic in recreated,",
            "",
        ),
        "tests/coordinator/handover/test_starting.py::test_partition_of_a_recreated_topic_that_was_never_read_is_read_from_its_beginning_too",
    ),
    Pinned(
        Mutant(
            "the leader epoch of a processed offset is forgotten",
            state,
            "raised",
            "if new.offset == old.offset and leader_epoch is None:",
            "if False:",
        ),
        "tests/coordinator/handover/test_state.py::test_processed_offsets_rise_within_one_log_and_lineage",
    ),
    Pinned(
        Mutant(
            "processed offsets of two lineages are related",
            state,
            "unrelated",
            "one.lineage != other.lineage or differ(one.topic_id, other.topic_id)",
            "differ(one.topic_id, other.topic_id)",
        ),
        "tests/coordinator/handover/test_state.py::test_an_unknown_topic_id_is_not_unrelated",
    ),
    Pinned(
        Mutant(
            "a commit carries the leader epoch of what is in flight",
            step,
            "_follow_up",
            "if finished != position:",
            "if False:",
        ),
        "tests/coordinator/handover/test_batches.py::test_commit_of_a_batch_does_not_carry_the_leader_epoch_of_the_next_one",
    ),
    Pinned(
        Mutant(
            "an own commit in the new log does not show that the query has begun it",
            start_position,
            "_of_this_log",
            "or (note is not None and note.query_id == query.query_id)",
            "",
        ),
        "tests/offsets/test_start_position.py::test_what_this_query_has_begun_in_the_new_log_counts",
    ),
    Pinned(
        Mutant(
            "the old processed offset of another partition does not tell that a topic was created again",
            start_position,
            "_of_this_log",
            " or (committed is None and query.recreated)",
            "",
        ),
        "tests/coordinator/handover/test_starting.py::test_partition_of_a_recreated_topic_that_was_never_read_is_read_from_its_beginning_too",
    ),
    Pinned(
        Mutant(
            "a commit of the old log alone does not tell that a topic was created again",
            start_position,
            "_of_this_log",
            "stale_processed or stale_commit or",
            "stale_processed or",
        ),
        "tests/offsets/test_start_position.py::test_topic_that_was_created_again_is_an_error_that_says_so",
    ),
    Pinned(
        Mutant(
            "an offset that a late commit has overwritten is taken for a reset",
            start_position,
            "_of_this_log",
            "overwritten=stale_commit",
            "overwritten=False",
        ),
        "tests/offsets/test_start_position.py::test_what_this_query_has_begun_in_the_new_log_counts",
    ),
    Pinned(
        Mutant(
            "processed offsets beyond the end of a nameless log do not tell another log",
            start_position,
            "_outgrown",
            "return nameless and",
            "return False and",
        ),
        "tests/offsets/test_start_position.py::test_without_ids_only_a_log_that_ends_below_the_processed_offset_is_another_one",
    ),
    Pinned(
        Mutant(
            "a truncated committed offset is not committed again",
            start_position,
            "_not_truncated",
            "committed, too_high = end, True",
            "committed, too_high = end, False",
        ),
        "tests/offsets/test_start_position.py::test_a_truncation_that_is_accepted",
    ),
    Pinned(
        Mutant(
            "leader epochs of a topic that was created again count in the new one",
            start_position,
            "_is_ahead",
            "topic_id is None or topic_id != info.topic_id or",
            "",
        ),
        "tests/coordinator/test_start_requests.py::test_leader_epochs_of_a_topic_that_was_created_again_begin_anew",
    ),
    Pinned(
        Mutant(
            "the end of a leader epoch may be beyond the log",
            start_position,
            "_epoch_end",
            "return min(info.high_watermark, info.epoch_ends.get(leader_epoch, info.high_watermark))",
            "return info.epoch_ends.get(leader_epoch, info.high_watermark)",
        ),
        "tests/offsets/test_start_position.py::test_a_truncation_that_is_accepted",
    ),
    Pinned(
        Mutant(
            "a group that is put back gets a new lineage",
            start_position,
            "_wanted",
            "known_lineage, decided_by = processed.lineage, None",
            "pass",
        ),
        "tests/coordinator/handover/test_starting.py::test_group_is_put_back_to_the_checkpoint_beside_the_first_batch",
    ),
    Pinned(
        Mutant(
            "when a group is put back its other partitions begin as in a new group",
            start_position,
            "_wanted",
            " or (put_back and not info.topic_started)",
            "",
        ),
        "tests/coordinator/handover/test_starting.py::test_a_group_that_has_lost_its_offsets_of_a_topic_does_not_begin_other_partitions_as_a_new_one",
    ),
    Pinned(
        Mutant(
            "a query that follows a group without offsets leaves out unread records",
            start_position,
            "_wanted",
            "wanted = min(wanted, processed.offset)",
            "pass",
        ),
        "tests/offsets/test_start_position.py::test_rewind_with_group_to_a_deleted_offset_leaves_out_no_unread_record",
    ),
    Pinned(
        Mutant("former owners stay after a rewind", start_position, "_wanted", "if rewound:", "if False:"),
        "tests/coordinator/handover/test_starting.py::test_group_is_put_back_to_the_checkpoint_beside_the_first_batch",
    ),
    Pinned(
        Mutant(
            "an offset that no query has committed is not committed again",
            start_position,
            "_wanted",
            "or (note is None and wanted == committed)",
            "",
        ),
        "tests/coordinator/handover/test_starting.py::test_offset_that_nobody_of_us_committed_is_committed_once_more_before_it_is_planned",
    ),
    Pinned(
        Mutant("released without a look at what a late commit has done", state, "busy", "in_doubt or", "False or"),
        "tests/coordinator/handover/test_reading_back.py::test_revoked_partition_leaves_when_its_offset_was_read_back",
    ),
    Pinned(
        Mutant(
            "each start of this query is a late one",
            start_position,
            "_is_older_start",
            "note.lineage < processed.lineage",
            "note.lineage != processed.lineage",
        ),
        "tests/offsets/test_start_position.py::test_every_other_start_below_what_was_finished_is_a_rewind",
    ),
    Pinned(
        Mutant("a late commit is a rewind", start_position, "_went_back", "processed.lineage != note.lineage", "True"),
        "tests/coordinator/handover/test_starting.py::test_commit_that_has_arrived_late_is_no_rewind",
    ),
    Pinned(
        Mutant(
            "an offset that no query has committed takes nothing of a replay",
            start_position,
            "_taken_over",
            "return OffsetRange(Offset(0), committed), committed, (Former(OUTSIDE, committed),)",
            "return None, committed, (Former(OUTSIDE, committed),)",
        ),
        "tests/offsets/test_start_position.py::test_what_others_have_processed_is_told_and_ends_where_this_query_takes_over",
    ),
    Pinned(
        Mutant(
            "a note after lost offsets claims everything since 0",
            start_position,
            "_taken_over",
            "return None, wanted, (Former(ANYBODY, wanted),) if wanted else ()",
            "return None, Offset(0), (Former(ANYBODY, wanted),) if wanted else ()",
        ),
        "tests/coordinator/handover/test_starting.py::test_topic_that_was_created_again_is_told_and_read_from_its_beginning",
    ),
    Pinned(
        Mutant(
            "a start outside the log need not be durable",
            start_position,
            "_inside_the_log",
            "durable_first=True",
            "durable_first=start.durable_first",
        ),
        "tests/offsets/test_start_position.py::test_start_outside_the_log_is_an_error_with_the_exact_range_unless_loss_is_accepted",
    ),
    Pinned(
        Mutant(
            "the start of a note is not moved into the log",
            start_position,
            "_inside_the_log",
            "note=start.note._replace(since=nearest),",
            "",
        ),
        "tests/coordinator/handover/test_starting.py::test_accepted_loss_is_told_with_its_range",
    ),
    Pinned(
        Mutant(
            "a start beyond the log goes to the high watermark",
            start_position,
            "_inside_the_log",
            "nearest = (info.high_watermark, wanted), info.log_end",
            "nearest = (info.high_watermark, wanted), info.high_watermark",
        ),
        "tests/offsets/test_start_position.py::test_explicit_offset_beyond_the_log_goes_on_at_its_end_for_readers_if_loss_is_accepted",
    ),
    Pinned(
        Mutant(
            "former owners are not cut with the log",
            commit_metadata,
            "CommitNote.handed_on",
            "min(f.until, committed)",
            "f.until",
        ),
        "tests/offsets/test_commit_metadata.py::test_nobody_has_committed_what_was_truncated_since",
    ),
    Pinned(
        Mutant(
            "the oldest former owners are forgotten",
            commit_metadata,
            "CommitNote.handed_on",
            "former[:nameless] = [Former(ANYBODY, former[nameless - 1].until)]",
            "del former[:nameless]",
        ),
        "tests/offsets/test_commit_metadata.py::test_of_many_owners_only_the_last_have_names",
    ),
    Pinned(
        Mutant("skip markers name the range and not the batch", skip_markers, "SkipMarker.of", "end.rewinds", "0"),
        "tests/offsets/test_skip_markers.py::test_marker_names_the_batch_it_was_made_for",
    ),
    Pinned(
        Mutant(
            "plans do not know their leaders",
            planning,
            "cut_ranges",
            "PlannedRange(epoch, OffsetRange(at, end), leader_epochs.get(tp))",
            "PlannedRange(epoch, OffsetRange(at, end), None)",
        ),
        "tests/connector/query/test_planning.py::test_a_range_carries_the_assignment_and_the_leader_under_which_it_was_looked_at",
    ),
    Pinned(
        Mutant(
            "the target of a member does not matter",
            assignment_stability,
            "is_stable",
            " or (mine.target is not None and set(mine.target) != set(owned))",
            "",
        ),
        "tests/coordinator/test_assignment_stability.py::test_pending_target_is_waited_for",
    ),
    Pinned(
        Mutant(
            "the assignment of a member does not matter",
            assignment_stability,
            "is_stable",
            "set(mine.assignment) != set(owned) or",
            "",
        ),
        "tests/coordinator/test_assignment_stability.py::test_member_that_knows_something_else_than_the_group_has_not_settled",
    ),
    Pinned(
        Mutant(
            "what was lost is waited for",
            step,
            "_follow_up",
            "if not behind and state.behind_since is not None:",
            "if False:",
        ),
        "tests/coordinator/handover/test_batches.py::test_what_was_lost_is_not_waited_for",
    ),
    Pinned(
        Mutant(
            "old processed offsets stay when the new log is begun",
            starting,
            "processed_in_old_logs",
            "return old - busy",
            "return set()",
        ),
        "tests/coordinator/handover/test_starting.py::test_processed_offsets_of_the_old_log_go_once_the_new_one_has_begun",
    ),
    Pinned(
        Mutant(
            "a logged batch of another topic explains a commit",
            checkpoint_age,
            "check_age",
            " and not differ(topic_id, found.topic_id)",
            "",
        ),
        "tests/offsets/test_start_position.py::test_own_commit_above_the_checkpoint_tells_that_it_is_an_old_copy",
    ),
    Pinned(
        Mutant(
            "a query without a group follows rewinds of the group",
            start_position,
            "_wanted",
            "rewound = policy.keeps_offsets and",
            "rewound =",
        ),
        "tests/offsets/test_start_position.py::test_partition_that_nobody_has_begun_is_no_rewind",
    ),
]

EQUIVALENT = [
    Equivalent(
        Mutant(
            "a planned range is logged with the lineage of the processed offset",
            batches,
            "plan",
            "PartitionEntry(read, p.leader_epoch, note.topic_id, note.lineage)",
            "PartitionEntry(read, p.leader_epoch, note.topic_id, lineage)",
        ),
        "A partition can be planned once its start is durable. Its processed offset is set then, from the same note. "
        "Both keep this lineage until the partition leaves or starts again.",
    ),
    Equivalent(
        Mutant(
            "an offset beyond the log stays committed",
            start_position,
            "_inside_the_log",
            "committed=start.committed if nearest > wanted else None",
            "committed=start.committed",
        ),
        "A start beyond the log comes from `startingOffsets` alone, which counts where nothing is committed. A "
        "committed offset beyond the log was lowered before, and counts as not committed since.",
    ),
]


def fails(test_id: str) -> bool:
    """Return whether a unit test fails, with any of its parameters.

    The test runs in this process, because the mutant is planted here.  A process for each test would take minutes.
    """
    path, _, name = test_id.partition("::")
    test = getattr(importlib.import_module(path.removesuffix(".py").replace("/", ".")), name)
    inner = inspect.unwrap(test)
    for arguments in _arguments(test):
        try:
            inner(**arguments)
        except (Exception, pytest.fail.Exception):
            return True
    return False


def _arguments(test: Any) -> Iterator[dict[str, Any]]:
    """Yield the arguments of each call that pytest would make; no arguments, once, for a test without parameters."""
    found = [mark for mark in getattr(test, "pytestmark", ()) if mark.name == "parametrize"]
    choices = []
    for mark in found:
        names = mark.args[0]
        names = [name.strip() for name in names.split(",")] if isinstance(names, str) else names
        values = [getattr(value, "values", None) or (value if len(names) > 1 else (value,)) for value in mark.args[1]]
        choices.append([dict(zip(names, chosen, strict=True)) for chosen in values])
    for combination in itertools.product(*choices):
        yield {name: value for chosen in combination for name, value in chosen.items()}
