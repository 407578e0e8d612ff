"""When a member may leave: not while the group rebalances, for as long as one may hope for its end."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import Future

from pyspark_kafka_group.offsets.cluster.error_remedies import TryAgainError

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
    deadline = time.monotonic() + _PATIENCE_S
    try:
        while time.monotonic() < deadline:
            rebalances = ask()
            while not rebalances.done() and time.monotonic() < deadline:
                turn(_ASKING_TURN_S)
            if not (rebalances.done() and rebalances.result()):
                return
            turn(_TURN_S)
    except TryAgainError:
        return
