"""The life of one owned partition: its phases, and the table that the code runs on."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum

from pyspark_kafka_group.offsets.errors import KafkaGroupError


class Phase(Enum):
    """The phases of an owned partition."""

    RESOLVING = "resolving"  # the start is unknown
    STARTING = "starting"  # the start is decided; batches do not read it before the start is committed
    ACTIVE = "active"  # batches read it from its position on
    DRAINING = "draining"  # revoked, but still busy; no later batch reads it


class Cause(Enum):
    """The causes of a change of phase."""

    ASSIGNED = "assigned"
    START_DURABLE = "start is durable"
    START_DECIDED = "start must be committed first"
    START_COMMITTED = "start was committed"
    LOG_CHANGED = "log changed"
    REVOKED_IDLE = "revoked, nothing to finish"
    REVOKED_BUSY = "revoked, busy"
    SETTLED = "everything is committed"
    EXPIRED = "drain deadline"
    LOST = "lost"


TRANSITIONS: Mapping[tuple[Phase | None, Cause], Phase | None] = {
    (None, Cause.ASSIGNED): Phase.RESOLVING,
    (Phase.RESOLVING, Cause.START_DURABLE): Phase.ACTIVE,
    (Phase.RESOLVING, Cause.START_DECIDED): Phase.STARTING,
    (Phase.RESOLVING, Cause.LOG_CHANGED): Phase.RESOLVING,
    (Phase.RESOLVING, Cause.REVOKED_IDLE): None,
    (Phase.RESOLVING, Cause.LOST): None,
    (Phase.STARTING, Cause.START_COMMITTED): Phase.ACTIVE,
    (Phase.STARTING, Cause.LOG_CHANGED): Phase.RESOLVING,
    (Phase.STARTING, Cause.REVOKED_BUSY): Phase.DRAINING,
    (Phase.STARTING, Cause.LOST): None,
    (Phase.ACTIVE, Cause.LOG_CHANGED): Phase.RESOLVING,
    (Phase.ACTIVE, Cause.REVOKED_IDLE): None,
    (Phase.ACTIVE, Cause.REVOKED_BUSY): Phase.DRAINING,
    (Phase.ACTIVE, Cause.LOST): None,
    (Phase.DRAINING, Cause.LOG_CHANGED): None,
    (Phase.DRAINING, Cause.SETTLED): None,
    (Phase.DRAINING, Cause.EXPIRED): None,
    (Phase.DRAINING, Cause.LOST): None,
}
"""``None`` is "not owned".  A pair that is not in the table cannot happen, and raises."""


class IllegalTransitionError(KafkaGroupError):
    """The shell has fed the state machine an impossible input.  A bug of this project."""


def phase_after(phase: Phase | None, cause: Cause) -> Phase | None:
    """Return the next phase; None if the partition is no longer owned.

    Raises
    ------
    IllegalTransitionError
        If the pair is not in the table.
    """
    try:
        return TRANSITIONS[phase, cause]
    except KeyError:
        where = "not owned" if phase is None else phase.value
        raise IllegalTransitionError(f"a partition that is {where} cannot be: {cause.value}") from None
