"""The life of a query's membership: one state, instead of a flag for each way to end."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum

from pyspark_kafka_group.coordinator.handover.transitions import IllegalTransitionError


class Lifecycle(Enum):
    """The states of a membership."""

    RUNNING = "running"  # batches are planned
    FINISHING = "finishing"  # plans no batch; the running one must be finished and committed
    LEAVING = "leaving"  # the query is stopped; the member waits only for the outstanding commit
    FAILED = "failed"  # an error ends the query; the member waits for nothing
    LEFT = "left"  # everything was given back


class Ending(Enum):
    """The reasons for which a membership ends."""

    FINISH = "asked to finish"
    STOP = "stopped"
    FAIL = "failed"
    LEAVE = "leaves the group"


LIFECYCLE: Mapping[tuple[Lifecycle, Ending], Lifecycle] = {
    (Lifecycle.RUNNING, Ending.FINISH): Lifecycle.FINISHING,
    (Lifecycle.RUNNING, Ending.STOP): Lifecycle.LEAVING,
    (Lifecycle.RUNNING, Ending.FAIL): Lifecycle.FAILED,
    (Lifecycle.RUNNING, Ending.LEAVE): Lifecycle.LEFT,
    (Lifecycle.FINISHING, Ending.FINISH): Lifecycle.FINISHING,
    (Lifecycle.FINISHING, Ending.STOP): Lifecycle.LEAVING,
    (Lifecycle.FINISHING, Ending.FAIL): Lifecycle.FAILED,
    (Lifecycle.FINISHING, Ending.LEAVE): Lifecycle.LEFT,
    (Lifecycle.LEAVING, Ending.FINISH): Lifecycle.LEAVING,
    (Lifecycle.LEAVING, Ending.STOP): Lifecycle.LEAVING,
    (Lifecycle.LEAVING, Ending.FAIL): Lifecycle.FAILED,
    (Lifecycle.LEAVING, Ending.LEAVE): Lifecycle.LEFT,
    (Lifecycle.FAILED, Ending.FINISH): Lifecycle.FAILED,
    (Lifecycle.FAILED, Ending.STOP): Lifecycle.FAILED,
    (Lifecycle.FAILED, Ending.FAIL): Lifecycle.FAILED,
    (Lifecycle.FAILED, Ending.LEAVE): Lifecycle.LEFT,
    (Lifecycle.LEFT, Ending.FINISH): Lifecycle.LEFT,
    (Lifecycle.LEFT, Ending.STOP): Lifecycle.LEFT,
    (Lifecycle.LEFT, Ending.FAIL): Lifecycle.LEFT,
}
"""A pair that is not in the table cannot happen, and raises.  Signals and errors may come even after the end."""


def lifecycle_after(now: Lifecycle, ending: Ending) -> Lifecycle:
    """Return the next state of the membership.

    Raises
    ------
    IllegalTransitionError
        If the pair is not in the table.
    """
    try:
        return LIFECYCLE[now, ending]
    except KeyError:
        raise IllegalTransitionError(f"a membership that is {now.value} cannot be: {ending.value}") from None
