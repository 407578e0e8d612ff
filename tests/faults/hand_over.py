"""Faults in where reading starts and ends, and in commits."""

from __future__ import annotations

from tests.faults.fault import Fault

_NOW = "connector/query/available_now.py"
_COMMITTER = "cluster/committer.py"
_START = "offsets/start_position.py"

FAULTS = [
    Fault(
        "a truncation by one record is not noticed",
        "connector/batch/resolving.py",
        "        if top < offset:\n            starts[tp] = _truncated",
        "        if top < offset - 1:\n            starts[tp] = _truncated",
        "tests/connector/batch/test_resolving.py",
    ),
    Fault(
        "a position behind the log end waits for the log",
        _NOW,
        "if max(plannable[tp].offset, end) < target[tp]]",
        "if end < target[tp]]",
        "tests/connector/query/test_available_now.py",
    ),
    Fault(
        "the run ends while starts are unknown",
        _NOW,
        "settled = not (unsure or state.unsettled) and",
        "settled = not unsure and",
        "tests/connector/query/test_available_now.py",
    ),
    Fault(
        "a connection that could not be made counts as a broken one",
        _COMMITTER,
        'or (error.name() == "_TRANSPORT" and _was_up(error.str()))',
        'or error.name() == "_TRANSPORT"',
        "tests/cluster/test_committer.py",
    ),
    Fault(
        "fencings within a week end the query",
        _COMMITTER,
        "len(self._fenced_at) == _MAX_FENCINGS and now - self._fenced_at[0] < _FENCINGS_S:",
        "len(self._fenced_at) == _MAX_FENCINGS:",
        "tests/cluster/test_committer.py",
    ),
    Fault(
        "timeouts at the coordinator count as another run",
        _COMMITTER,
        "if fenced and in_time:",
        "if fenced:",
        "tests/cluster/test_committer.py",
    ),
    Fault(
        "a finished log without ids counts as created again",
        _START,
        "info.committed is None and processed.offset > info.high_watermark",
        "info.committed is None and processed.offset >= info.high_watermark",
        "tests/offsets/test_start_position.py",
    ),
    Fault(
        "the commit stays above the log end",
        _START,
        "committed=start.committed if nearest > wanted else None,",
        "committed=start.committed,",
        "tests/offsets/test_start_position.py",
    ),
    Fault(
        "questions of a member put its heartbeats off for ever",
        "coordinator/member.py",
        'config["retry.backoff.max.ms"] = str(longest_ms)',
        "pass",
        "tests/coordinator/test_heartbeats.py",
    ),
    Fault(
        "a bookmark takes another run's commit of the same end for its own",
        "connector/batch/bookmark.py",
        "not (self._tried and now.get(tp) == r.until)",
        "not (now.get(tp) == r.until)",
        "tests/connector/batch/test_bookmark.py",
    ),
]
