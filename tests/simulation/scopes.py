"""The small worlds that the simulation explores exhaustively.

The fast tests stop three steps before the depth of each scope.  ``python -m tests.simulation --deeper 2`` explores two
steps deeper.
"""

from __future__ import annotations

from tests.simulation.explore import Scope
from tests.simulation.world import Config

_PAIR = Config(queries=("a", "a"), records=1, known=True)
_JOINING = "start 0 0, tick_all 0 0, tick_all 0 0, start 1 0"
_ONE_STEP = "engine 0 0, engine 1 0, tick 0 0, tick 1 0"

SCOPES = [
    scope
    for protocol in ("consumer", "classic")
    for scope in (
        Scope(
            f"hand-over, {protocol}",
            _PAIR._replace(protocol=protocol, calm=True),
            _JOINING,
            f"{_ONE_STEP}, reshuffle 0 0, produce 0 0",
            8,
        ),
        Scope(
            f"commits that go wrong, {protocol}",
            _PAIR._replace(protocol=protocol, calm=True),
            f"{_JOINING}, batch 0 0, engine 0 0",
            "engine 0 0, poll 0 0, commit 0 1, break 0 0, break 0 1, retry 0 0, decide 0 0, tick 1 0, reshuffle 0 0",
            6,
        ),
        Scope(
            f"crashes and deadlines, {protocol}",
            _PAIR._replace(protocol=protocol),
            _JOINING,
            f"{_ONE_STEP}, crash 0 0, start 0 0, evict 0 0, expire 0 0, reshuffle 0 0",
            6,
        ),
        Scope(
            f"static members, {protocol}",
            _PAIR._replace(protocol=protocol, static=True),
            _JOINING,
            f"{_ONE_STEP}, crash 0 0, start 0 0, evict 0 0, reshuffle 0 0",
            6,
        ),
    )
]
