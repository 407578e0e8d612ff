"""How a member leaves: it first waits for the end of a rebalance, but not for ever."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from concurrent.futures import Future

from pyspark_kafka_group.cluster.error_remedies import TryAgainError
from pyspark_kafka_group.wire.deadline import Deadline

_log = logging.getLogger(__name__)

# How long to wait for a rebalance.  Most rebalances wait for another member's running batch.
_PATIENCE_S = 15.0

_ASKING_TURN_S, _TURN_S = 0.01, 0.05


def await_rebalance(ask: Callable[[], Future[bool]], turn: Callable[[float], None]) -> None:
    """Wait until the group has ended its rebalance, for a limited time.

    Under the classic protocol, the request to leave uses the connection on which the broker still owes the answer to
    JoinGroup.  The broker reads the request only after it has sent that answer.  A member that closes the connection
    earlier stays in the group as a ghost, which gets partitions until its session times out.

    Parameters
    ----------
    ask : callable
        Begins to ask whether the group rebalances.
    turn : callable
        Serves the member for about the given number of seconds.
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
    """Take each step of leaving, even if another one fails: the group must always learn that the member leaves."""
    for step in steps:
        try:
            step()
        except Exception:
            _log.exception("%s: could not leave the group cleanly", client_id)
