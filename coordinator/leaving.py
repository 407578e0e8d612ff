"""How a member leaves: not while the group rebalances, as long as one may hope for its end; and then in any case."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from concurrent.futures import Future

from pyspark_kafka_group.cluster.error_remedies import TryAgainError
from pyspark_kafka_group.wire.deadline import Deadline

_log = logging.getLogger(__name__)

# For another member's running batch, most often.
_PATIENCE_S = 15.0

_ASKING_TURN_S, _TURN_S = 0.01, 0.05


def await_rebalance(ask: Callable[[], Future[bool]], turn: Callable[[float], None]) -> None:
    """Stay until the group has ended the rebalance that goes on, or for as long as one may hope.

    Classic protocol: the request to leave goes over the connection on which the broker still owes the answer to our
    JoinGroup, and is not read before that.  Who closes the connection meanwhile stays in the group as a ghost, and is
    given partitions, until its session times out.

    Parameters
    ----------
    ask : callable
        Begins to ask whether the group rebalances.
    turn : callable
        Serves the member, for about so many seconds.
    """
    deadline = Deadline.after(_PATIENCE_S)
    try:
        while not deadline.passed:
            rebalances = ask()
            while not rebalances.done() and not deadline.passed:
                turn(_ASKING_TURN_S)
            if not (rebalances.done() and rebalances.result()):
                return
            turn(_TURN_S)
    except TryAgainError:
        return


def give_back(steps: Iterable[Callable[[], object]], *, client_id: str) -> None:
    """Take each step of leaving by itself: whatever goes wrong with one, the group must be told."""
    for step in steps:
        try:
            step()
        except Exception:
            _log.exception("%s: could not leave the group cleanly", client_id)
