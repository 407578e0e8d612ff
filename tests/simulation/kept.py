"""Schedules that are kept: what once broke the state machine, and situations that random schedules rarely reach."""

from __future__ import annotations

from typing import NamedTuple

from tests.simulation.world import Config


class Kept(NamedTuple):
    """A run by name, and what must happen in it, as a part of its story, so that it cannot lose its point."""

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
        "start 0 0, poll_all 0 0, facts 0 0, evict 0 0",
        "lost ['a-0'] {}",
    ),
    Kept(
        "undecided_start_does_not_reach_the_checkpoint",
        Config(queries=("a",)),
        "start 0 0, poll_all 0 0, facts 0 0, engine 0 0, engine 0 0, restart 0 0",
        "Replay(end=BatchOffset(query_id='q0.1', marks={}))",
    ),
    Kept(
        "facts_that_arrive_during_a_replay_do_not_start_the_partition_below_it",
        Config(queries=("a",), known=True),
        "start 0 0, tick_all 0 0, engine 0 0, engine 0 0, restart 0 0, poll 0 0, facts 0 4, engine 0 0, facts 0 0",
        "replayed {'a-0': [0, 2]} ['a-0']",
    ),
    Kept(
        "plan_from_a_position_before_the_partition_went_away_and_came_back_is_dropped",
        PAIR._replace(slow=("plan", "")),
        JOINED + "engine 0 0, " + MOVE + "batch 1 0, engine 1 0, tick_all 0 0, " + MOVE + "engine 0 0",
        "Plan(ranges={('a', 0): (1, (0, 2))}, always=True)\n",
    ),
    Kept(
        "marks_of_a_replayed_batch_stay_when_their_partitions_went_elsewhere",
        PAIR._replace(topics=(2,), records=0),
        "start 0 0, tick_all 0 0, engine 0 0, engine 0 0, restart 0 0, start 1 0, produce 0 0",
        "planned {'a-0': [0, 1]}",
    ),
    Kept(
        "facts_that_were_asked_for_under_an_earlier_assignment_do_not_count",
        PAIR._replace(slow=("facts", "")),
        "start 0 0, start 1 0, poll_all 0 0, facts 0 4, "
        + MOVE
        + "batch 1 0, engine 1 0, tick_all 0 0, "
        + MOVE
        + "facts 0 0",
        "q0 Answer(facts={('a', 0): (1, Facts(committed=0,",
    ),
]
