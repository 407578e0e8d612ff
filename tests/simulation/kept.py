"""Kept schedules: some once broke the state machine, others show situations that random schedules rarely reach."""

from __future__ import annotations

from typing import NamedTuple

from tests.simulation.world import Config


class Kept(NamedTuple):
    """A named run.  Its story must contain ``part``, which shows that the run still reaches its situation."""

    name: str
    config: Config
    actions: str
    part: str


PAIR = Config(queries=("a", "a"), known=True)
JOINED = "start 0 0, start 1 0, tick_all 0 0, tick_all 0 0, "
MOVE = "reshuffle 0 0, tick_all 0 0, tick_all 0 0, tick_all 0 0, "

KEPT = [
    Kept(
        "start_that_was_never_committed_is_decided_anew",
        Config(queries=("a",)),
        "start 0 0, poll_all 0 0, info 0 0, evict 0 0",
        "lost ['a-0'] {}",
    ),
    Kept(
        "undecided_start_does_not_reach_the_checkpoint",
        Config(queries=("a",)),
        "start 0 0, poll_all 0 0, info 0 0, engine 0 0, engine 0 0, restart 0 0",
        "Replay(end=BatchOffset(query_id='q0.1', entries={}, rewinds=0",
    ),
    Kept(
        "plan_from_a_position_before_the_partition_went_away_and_came_back_is_dropped",
        PAIR._replace(slow=("plan", "")),
        JOINED + "engine 0 0, " + MOVE + "batch 1 0, engine 1 0, tick_all 0 0, " + MOVE + "engine 0 0",
        "PlanBatch(ranges={('a', 0): PlannedRange(epoch=1, range=(0, 2), leader_epoch=0)}, always=True)\n",
    ),
    Kept(
        "marks_of_a_replayed_batch_stay_when_their_partitions_went_elsewhere",
        PAIR._replace(topics=(2,), records=0),
        "start 0 0, tick_all 0 0, engine 0 0, engine 0 0, restart 0 0, start 1 0, produce 0 0",
        "planned {'a-0': [0, 1]}",
    ),
    Kept(
        "info_that_were_asked_for_under_an_earlier_assignment_do_not_count",
        PAIR._replace(slow=("info", "")),
        "start 0 0, start 1 0, poll_all 0 0, info 0 4, "
        + MOVE
        + "batch 1 0, engine 1 0, tick_all 0 0, "
        + MOVE
        + "info 0 0",
        "q0 PartitionInfoReceived(info={('a', 0): (1, PartitionInfo(committed=0,",
    ),
    Kept(
        "range_that_was_left_to_a_new_owner_comes_back_unread",
        Config(queries=("a", "a"), protocol="classic", records=1, slow=("plan", "")),
        "start 0 0, hand_over 1 0, reshuffle 0 0, start 1 0, reshuffle 0 0, succeed 1 8, produce 0 0, tick 0 0, "
        "hand_over 1 3",
        "replayed {} [] {'a-0': [0, 1]}",
    ),
    Kept(
        "query_dies_after_a_skip_and_starts_behind_it",
        Config(queries=("ab", "a"), topics=(1, 1), static=True, slow=("engine", "")),
        "start 0 0, succeed 0 12, reshuffle 0 0, start 1 0, hand_over 1 0, produce 0 0, exit 1 0, succeed 0 15",
        "replayed {'b-0': [0, 2]} [] {'a-0': [0, 2]}",
    ),
    Kept(
        "batch_that_was_replayed_without_a_range_is_replayed_without_it_again",
        Config(queries=("ab", "a"), topics=(1, 1), protocol="classic", static=True, slow=("engine", "")),
        "start 0 0, succeed 0 12, reshuffle 0 0, restart 0 0, start 1 0, tick_all 0 0, hand_over 1 0, poll_all 0 0, "
        "produce 0 0, exit 1 0, succeed 0 15",
        "markers={('a', 0): (SkipMarker(range=(0, 2), rewinds=0),)}, unfinished=",
    ),
    Kept(
        "group_is_rewound_below_a_batch_that_is_replayed",
        Config(queries=("ab",), topics=(1, 1), latest=True, on_rewind="group", slow=("engine",)),
        "start 0 0, tick_all 0 0, tick_all 0 0, produce 5 0, restart 0 4, reset 5 0",
        "replayed {} [] {'b-0': [2, 3]}",
    ),
    Kept(
        "batch_ends_when_its_partition_went_away_after_the_deadline_and_came_back",
        Config(queries=("ab", "ab"), topics=(1, 1), records=1, transactions=False, known=True, slow=("poll", "poll")),
        "start 0 0, start 1 0, hand_over 3 0, tick_all 0 0, engine 0 0, engine 0 0, hand_over 1 0, expire 0 0, "
        "hand_over 0 6, engine 0 0, hand_over 3 0",
        "expired {'b-0': [0, 1]}",
    ),
    Kept(
        "truncated_partition_waits_for_the_commit_that_is_under_way",
        Config(queries=("a",), records=0, known=True, log_changes=True),
        "start 0 0, tick_all 0 0, produce 2 5, hand_over 0 15, truncate 2 0, batch 0 0, engine 0 0, info 0 7",
        "q0 LogChangeFound(partitions=(('a', 0),), change=<LogChange.TRUNCATED: 'truncated'>",
    ),
    Kept(
        "skips_of_two_batches_in_a_row_are_both_remembered",
        Config(
            queries=("a", "a"), protocol="classic", records=0, known=True, on_rewind="checkpoint", slow=("", "plan")
        ),
        "start 0 0, start 1 0, succeed 0 8, produce 0 0, batch 0 0, tick_all 0 0, relapse 0 0, relapse 0 0",
        "StoreSkips(markers={('a', 0): (SkipMarker(",
    ),
    Kept(
        "batch_that_would_read_other_records_is_not_run_again",
        Config(queries=("ab",), topics=(1, 1), records=1, known=True, log_changes=True, slow=("",)),
        "start 0 0, lapse 0 1, produce 1 0, truncate 0 14, produce 1 13, lapse 0 3",
        "recordsLost",
    ),
    Kept(
        "reset_that_another_query_has_taken_up_is_followed",
        Config(queries=("a", "a"), transactions=False, known=True, on_rewind="group", slow=("", "plan")),
        "start 0 0, start 1 0, hand_over 1 0, succeed 0 12, hand_over 1 0, reset 0 0",
        "rewound",
    ),
    Kept(
        "checkpoint_that_was_restored_from_a_copy_is_named",
        Config(queries=("a",), records=0, transactions=False, known=True, replaces=True),
        "start 0 0, batch 0 0, produce 0 0, tick 0 0, batch 0 0, engine 0 0, tick_all 0 0, restore 0 0, produce 0 0",
        "Fail(error=OutdatedCheckpointError(",
    ),
    Kept(
        "old_copy_of_a_checkpoint_is_named_after_others_have_committed",
        Config(queries=("a", "a", "a"), protocol="classic", records=1, slow=("", "info", "")),
        "start 0 0, start 2 0, restore 2 12, start 2 0, produce 0 0, restore 0 15",
        "this query has committed 1 to the group 'g', but its checkpoint does not contain the partition",
    ),
    Kept(
        "range_of_a_topic_that_is_not_subscribed_any_more_is_left_to_its_owner",
        Config(queries=("ab", "ab"), topics=(1, 1), records=2, replaces=True, slow=("poll", "engine")),
        "start 1 0, tick 1 0, tick_all 0 0, hand_over 1 7, subscribe 1 9",
        "replayed {} [] {'a-0': [0, 2], 'b-0': [0, 2]}",
    ),
    Kept(
        "run_does_not_take_an_empty_assignment_for_nothing_to_read",
        Config(queries=("a", "a"), records=1, static=True, available_now=True, replaces=True, slow=("", "commit")),
        "start 0 0, start 1 0, engine 1 0, hand_over 1 0, engine 0 0",
        "q1 PlanBatch(ranges={('a', 0)",
    ),
    Kept(
        "batch_that_this_query_has_committed_is_replayed_although_others_went_on",
        Config(queries=("a", "a", "a"), protocol="classic", records=2, replaces=True, slow=("", "", "plan")),
        "start 0 0, restart 0 5, hand_over 2 0, evict 0 0, batch 0 0, produce 0 0, tick 0 0, batch 0 0, commit 0 0, "
        "reshuffle 0 0, poll 0 0, poll 0 0, batch 0 6, engine 0 0, commit 0 0, uncommit 0 0, start 1 0",
        "replayed {'a-0': [0, 2]} ['a-0'] {}",
    ),
    Kept(
        "topic_that_is_gone_when_its_batch_runs_again_is_a_rewind",
        Config(queries=("ab",), topics=(1, 1), protocol="classic", records=1, known=True, log_changes=True),
        "start 0 0, tick_all 0 0, engine 0 0, recreate 1 9, add 0 0, restart 0 2, tick_all 0 0, engine 0 0",
        "missing=frozenset({('b', 0)})",
    ),
    Kept(
        "mark_of_a_truncated_log_does_not_come_back_with_a_batch_that_did_not_read_it",
        Config(queries=("ab",), topics=(1, 1), records=2, log_changes=True, replaces=True, slow=("engine", "info")),
        "start 0 0, lapse 0 0, lapse 0 11, truncate 1 7, lapse 0 11, lapse 0 0",
        "recordsLost b-0 [0, 2]",
    ),
    Kept(
        "batch_of_which_a_reset_has_lost_who_committed_it_is_read_again",
        Config(
            queries=("ab", "ab"),
            topics=(1, 1),
            protocol="classic",
            records=2,
            known=True,
            on_rewind="checkpoint",
            slow=("", "engine"),
        ),
        "start 0 0, start 1 0, relapse 1 0, hand_over 0 0, relapse 0 0, reset 0 0, hand_over 1 0, start 1 0",
        "replayed {'a-0': [1, 2]} ['a-0'] {}",
    ),
    Kept(
        "topic_of_a_pattern_that_was_deleted_while_no_process_ran_is_told",
        Config(queries=("a",), records=1, known=True, log_changes=True, forgets=True),
        "start 0 0, lapse 0 2, engine 0 0, crash 0 0, recreate 0 5, start 0 0",
        "logChanged ['a-0'] deleted",
    ),
    Kept(
        "group_that_has_lost_its_offsets_gets_a_partition_that_nobody_knows",
        Config(queries=("a",), records=0, latest=True, static=True, on_rewind="checkpoint"),
        "start 0 0, tick 0 0, tick 0 0, batch 0 0, reset 0 14, add 0 0",
        "rewound a-1 None 0",
    ),
    Kept(
        "topic_created_again_with_more_partitions_is_read_from_its_beginning",
        Config(queries=("ab",), topics=(1, 1), latest=True, known=True, static=True, log_changes=True, slow=("plan",)),
        "start 0 0, engine 0 0, tick_all 0 0, engine 0 0, engine 0 0, engine 0 0, engine 0 0, recreate 1 10, batch 0 0",
        "topic_started=True, initial_partition_count=0, note=None",
    ),
    Kept(
        "static_member_whose_process_crashed_waits_until_its_session_has_ended",
        Config(queries=("a", "a"), known=True, static=True),
        JOINED + "batch 0 0, crash 0 0, start 0 0, tick 0 0, tick 0 0, evict 0 0, tick 0 0, tick 0 0",
        "q0 is refused",
    ),
    Kept(
        "second_run_with_a_copy_of_the_checkpoint_ends_when_a_partition_moves_to_it",
        Config(queries=("a",), protocol="classic", records=0, transactions=False, known=True),
        "start 0 0, engine 0 0, hand_over 0 1, twin 0 0, produce 0 0",
        "ends: OutdatedCheckpointError",
    ),
    Kept(
        "two_runs_that_commit_in_transactions_fence_each_other_until_one_ends",
        Config(queries=("a",), records=1, known=True, replaces=True, slow=("poll", "poll")),
        "start 0 0, batch 0 0, twin 0 0, add 0 0",
        "ends: MemberFencedError",
    ),
    Kept(
        "query_whose_skip_markers_cannot_be_read_does_not_start",
        Config(queries=("a", "a"), topics=(2,), replaces=True, slow=("plan", "plan")),
        "start 0 0, start 1 0, relapse 1 0, hide 1 0, succeed 1 10",
        "q1 cannot read its skip markers",
    ),
    Kept(
        "skip_markers_are_needed_until_others_have_committed_what_was_skipped",
        Config(queries=("a", "a"), known=True, static=True, replaces=True, slow=("engine", "")),
        "start 0 0, start 1 0, tick 0 0, relapse 0 0, unmark 0 0, unmark 1 0, produce 0 0",
        "StoreSkips(markers=",
    ),
    Kept(
        "query_has_lost_skip_markers_of_what_others_have_committed",
        PAIR._replace(records=1, slow=("", "plan")),
        "start 1 0, start 2 0, tick_all 0 0, relapse 1 0, unmark 1 0",
        "q1 has lost its skip markers",
    ),
    Kept(
        "info_that_are_older_than_the_start_of_another_partition_do_not_begin_at_the_end",
        Config(queries=("a",), records=1, latest=True, known=True, log_changes=True, slow=("commit",)),
        "start 0 0, tick 0 0, batch 0 0, recreate 0 10, engine 0 0, commit 0 0, poll 0 0, info 0 4",
        "topic_started=False, initial_partition_count=1, note=None",
    ),
    Kept(
        "late_commit_of_records_that_were_truncated_does_not_make_the_checkpoint_old",
        Config(
            topics=(1,),
            queries=("a",),
            records=0,
            transactions=False,
            known=True,
            log_changes=True,
            forgets=True,
            replaces=True,
        ),
        "start 0 0, recreate 1 12, lapse 0 10, produce 1 0, truncate 0 0, batch 0 0, engine 0 0, produce 1 0, "
        "overtake 0 0, batch 0 0, restart 0 0",
        "recordsLost a-0 [1, 2]",
    ),
    Kept(
        "skip_marker_without_an_answer_holds_although_the_partition_has_come_back",
        Config(queries=("a", "a"), records=1, known=True, on_rewind="group", replaces=True, slow=("plan", "")),
        "start 0 0, start 1 13, relapse 0 14, engine 0 7, succeed 1 4, exit 0 0",
        "StoreSkips(markers=",
    ),
    Kept(
        "info_that_are_older_than_the_start_in_a_topic_created_again_are_no_loss_of_offsets",
        Config(topics=(1,), queries=("a",), records=0, transactions=False, known=True, static=True, log_changes=True),
        "start 0 0, tick 0 0, lead 0 0, batch 0 0, lapse 0 0, recreate 0 14, poll 0 0, info 0 14",
        "recreated a-0 0",
    ),
    Kept(
        "range_of_a_topic_that_is_not_subscribed_any_more_is_left_to_the_group_if_another_query_has_read_of_it",
        Config(topics=(1, 1), queries=("ab", "a"), records=1, transactions=False, known=True, replaces=True),
        "start 0 0, tick_all 0 0, engine 0 0, engine 0 0, engine 0 0, start 1 0, subscribe 0 18, tick 1 0, batch 1 0, "
        "batch 1 0, commit 1 0, exit 1 0",
        "orphaned=frozenset({('a', 0)})",
    ),
    Kept(
        "restored_log_is_read_from_its_beginning",
        Config(queries=("a",), records=0, log_changes=True, slow=("plan",)),
        "start 0 0, go_back 0 11, lapse 0 0, go_back 0 4, produce 0 0, produce 0 0",
        "recreated a-0 0",
    ),
    Kept(
        "restored_log_that_another_query_has_begun_is_not_begun_anew",
        Config(
            protocol="classic",
            topics=(1, 1),
            queries=("ab", "ab"),
            known=True,
            log_changes=True,
            fails=True,
            slow=("commit", "poll"),
        ),
        "start 0 0, engine 0 0, truncate 0 0, lapse 0 0, hand_over 1 0, engine 0 0, go_back 0 0, exit 0 0",
        "started {'a-0': ",
    ),
    Kept(
        "what_a_batch_says_of_its_partitions_stays_when_they_start_anew_while_it_runs",
        Config(
            protocol="assign",
            queries=("a",),
            transactions=False,
            known=True,
            on_rewind="group",
            replaces=True,
            slow=("plan",),
        ),
        "start 0 0, tick_all 0 0, batch 0 0, restart 0 0, produce 2 1, retention 2 5, tick 0 0, tick 0 0, engine 0 0, "
        "engine 0 0, reset 2 0",
        "recordsLost a-0 [2, 3]",
    ),
    Kept(
        "offset_that_a_late_commit_of_another_log_has_overwritten_is_restored_with_its_lineage",
        Config(topics=(1, 1), queries=("a", "b"), records=0, known=True, static=True, log_changes=True, fails=True),
        "start 1 0, produce 1 0, tick_all 0 0, produce 1 1, produce 1 11, engine 1 2, lapse 1 2, go_back 1 13, "
        "engine 1 0, lapse 1 1",
        "committed_leader_epoch=1, topic_id='b1', leader_epoch=0",
    ),
    Kept(
        "run_that_gets_other_partitions_while_its_last_batch_is_committed_reads_them",
        Config(topics=(2,), queries=("a", "a"), records=1, available_now=True, slow=("commit", "plan")),
        "start 0 0, start 1 0, tick 1 0, tick 1 0, engine 1 0, engine 1 0, engine 1 0, engine 1 0, poll_all 0 0, "
        "engine 1 0, hand_over 0 0, tick 1 0, poll_all 0 0",
        "assigned ['a-0']; FetchPartitionInfo(epochs={('a', 0): 2})",  # the real shell also swaps partitions here
    ),
    Kept(
        "query_that_ends_does_not_wait_for_the_commit_of_a_topic_that_is_gone",
        Config(
            protocol="classic",
            queries=("a", "a"),
            records=1,
            transactions=False,
            static=True,
            log_changes=True,
            forgets=True,
            fails=True,
        ),
        "start 0 0, start 1 0, lapse 0 0, recreate 0 3, exit 1 0",
        "> recreate 0 3",
    ),
    Kept(
        "restored_partition_does_not_change_where_others_of_its_topic_begin",
        Config(topics=(2,), queries=("a",), latest=True, log_changes=True, slow=("plan",)),
        "start 0 0, go_back 1 0, lead 0 0, tick 0 0, tick_all 0 0, go_back 1 0, lapse 0 0",
        "recreated a-1 0",
    ),
    Kept(
        "restore_that_only_the_offset_of_the_group_shows_begins_the_log_anew",
        Config(
            topics=(2, 1),
            queries=("ab", "ab", "a", "b"),
            records=1,
            latest=True,
            log_changes=True,
            forgets=True,
            slow=("info", "", "engine", ""),
        ),
        "start 0 0, start 3 0, lapse 0 3, truncate 2 0, engine 3 0, start 2 0, lapse 2 0, go_back 2 13, hand_over 2 0, "
        "recreate 0 9, restart 0 9, start 1 0, engine 3 0, restart 3 0",
        "recreated b-0 0",
    ),
    Kept(
        "doubt_ends_only_with_a_read_back_after_the_last_commit",
        Config(
            protocol="assign", topics=(1,), queries=("a",), records=0, transactions=False, known=True, replaces=True
        ),
        "start 0 0, tick_all 0 0, produce 1 0, batch 0 0, produce 1 0, engine 0 0, engine 0 0, engine 0 0, engine 0 0, "
        "break 0 0, engine 0 0, exit 0 0, commit 0 0, tick_all 0 0",
        "commitFailed in doubt",
    ),
    Kept(
        "late_commit_of_an_older_start_is_no_reset",
        Config(
            protocol="assign", topics=(1,), queries=("a",), records=1, transactions=False, known=True, on_rewind="group"
        ),
        "start 0 0, add 0 0, restart 0 5, tick 0 0, engine 0 0, break 0 0, engine 0 0, hand_over 0 1, restart 0 0, "
        "poll 0 0, info 0 0, tick_all 0 0, batch 0 0, restart 0 0",
        "commitFailed in doubt",
    ),
    Kept(
        "world_is_not_at_rest_while_an_offset_is_read_back",
        Config(protocol="classic", topics=(1, 1), queries=("ab", "ab"), records=0, transactions=False),
        "start 0 0, start 1 0, tick_all 0 0, produce 0 0, overtake 0 0, tick_all 0 0, produce 1 0, batch 0 0, "
        "reshuffle 0 0, tick 1 0, expire 0 0, batch 0 0",
        "-> FetchOffsets(partitions=(('a', 0),))",
    ),
    # Regression: the real query returned the ranges of a batch that it had given up as it left.
    Kept(
        "replay_is_decided_as_the_query_leaves",
        Config(
            protocol="classic", topics=(1, 1), queries=("ab",), records=1, known=True, on_rewind="group", asks=True
        )._replace(transactions=False, slow=("info", "poll", "plan")),
        "start 0 0, tick_all 0 0, batch 0 0, restart 0 12, tick_all 0 0, exit 0 9, batch 0 0",
        "Restored(start=BatchOffset(query_id='q0.1'",
    ),
    # Regression: after a second restart, the query read again what another program had committed.
    Kept(
        "another_program_has_processed_the_logged_batch_and_the_query_restarts_twice",
        Config(topics=(1,), queries=("a",), records=1, known=True, on_rewind="group", transactions=False),
        "start 0 0, tick 0 0, foreign 0 0, restart 0 12, foreign 0 11, tick_all 0 0, tick 0 0, restart 0 0",
        "note=CommitNote(query_id='q0.1', topic_id='a1', initial_partition_count=1, since=1",
    ),
    # Regression of the world: it waited for ever for a query that is stopped, and that only its deadline ends.
    Kept(
        "query_is_stopped_with_partitions_of_a_topic_that_was_created_again",
        Config(
            topics=(3, 1), queries=("ab",), records=0, known=True, static=True, log_changes=True, forgets=True
        )._replace(protocol="consumer", slow=("commit", "plan")),
        "start 0 0, produce 2 7, lapse 0 2, truncate 2 0, lapse 0 12, exit 0 0, recreate 2 13",
        "logChanged ['a-0', 'a-1', 'a-2'] deleted",
    ),
    # Regression: the real run ended, although the group had taken its partition for another one during its last commit.
    Kept(
        "run_whose_partition_is_taken_while_it_commits_its_last_batch",
        Config(topics=(1, 1), queries=("ab", "ab"), known=True, protocol="consumer", own=("dynamic", "run", "run", "")),
        "start 0 0, start 1 0, hand_over 0 0, tick_all 0 0, batch 1 0, batch 1 0, hand_over 1 0, subscribe 0 5",
        "q1 Revoke(partitions=(('a', 0),)) -> draining ['a-0']",
    ),
    # Regression: the offset of a log that is no longer there came back into the checkpoint with the replay.
    Kept(
        "older_log_is_restored_before_a_replay_that_does_not_read_it",
        Config(topics=(3,), queries=("a",), known=True, protocol="classic", log_changes=True, forgets=True),
        "start 0 0, truncate 1 9, lapse 0 2, truncate 2 13, batch 0 0, reshuffle 0 0, engine 0 12, tick_all 0 0, "
        "go_back 1 0, engine 0 15, info 0 12, tick_all 0 0, restart 0 5",
        "recreated a-1 0",
    ),
    # Regression: the group kept an offset above the end of the log, because the commit landed after the truncation.
    Kept(
        "late_commit_of_records_that_were_cut_is_committed_over",
        Config(protocol="consumer", topics=(1,), queries=("a",), records=1, log_changes=True, replaces=True)._replace(
            own=("plain", "dynamic", "", "")
        ),
        "start 0 0, engine 0 0, lapse 0 0, truncate 2 0, engine 0 0, engine 0 0, engine 0 0, engine 0 0, overtake 0 0",
        "recordsLost a-0 [0, 1]",
    ),
    # Regression: the query read the range while its owner was finishing it, and no member seemed to have it.
    Kept(
        "range_of_a_topic_that_another_query_subscribes_to_is_waited_for",
        Config(topics=(3, 1), queries=("ab", "ab"), records=0, transactions=False, known=True, slow=("", "")),
        "start 0 0, start 1 0, produce 2 0, restart 1 1, hand_over 1 0, engine 1 0, engine 1 0, tick_all 0 0, "
        "hand_over 0 3, engine 1 0, subscribe 0 13, poll 1 0, engine 1 0, tick_all 0 0, batch 1 0, subscribe 0 10, "
        "engine 1 0, commit 1 0",
        "StoreSkips(markers={('a', 2): ",
    ),
    # The evicted member takes the commit of the new owner for a reset.  Regression: no event named its batch.
    *(
        Kept(
            f"{name}_batch_of_an_evicted_member_is_named_although_the_new_owner_has_committed",
            Config(queries=("a",), on_rewind="group", transactions=False, slow=("poll",)),
            "start 0 0, poll_all 0 0, tick_all 0 0, tick_all 0 0, evict 0 0, foreign 0 0, batch 0 0, "
            f"foreign 0 10, break 0 0, commit 0 0{finish}",
            "lost ['a-0'] {'a-0': [0, 2]}",
        )
        for name, finish in (("running", ""), ("finished", ", engine 0 0"))
    ),
]
