"""A progress of Spark 4.3 with two kafka-group sources, a secondary source, and a source of another kind."""

from __future__ import annotations

import copy
import json
from typing import Any

REPORT: dict[str, Any] = {
    "group": "etl",
    "clientId": "spark-1a2b3c4d",
    "memberId": "m-1",
    "assigned": {"orders": {"2": 7, "10": 50}, "other": {"0": None}},
    "draining": {"orders": {"3": 20}},
    "logEnd": {"orders": {"2": 9, "3": 30, "10": 100}},
    "lag": {"orders": {"2": 2, "3": 15, "10": 60}},
    "expired": {"orders": {"3": 5}},
    "ahead": {},
    "heldBack": {"orders": {"10": "it has no leader"}},
    "totalLag": 77,
    "logEndAt": 990.0,
    "generation": 4,
    "ownershipEpoch": 2,
    "events": {"planned": 6, "committed": 5, "commitFailed": 1, "assigned": 2, "finished": 5, "draining": 1},
    "moved": {"assigned": 5, "released": 1},
    "assignedAt": 950.0,
    "committedAt": 980.5,
    "commitAgeMs": 19500,
    "timeMs": {"waiting": 3000, "idle": 0, "planning": 250, "running": 60000, "committing": 1500},
    "recordsConsumed": 500,
    "control": None,
}

OTHER = {**REPORT, "group": "audit", "clientId": "spark-99999999", "draining": {}, "assigned": {"audit": {"0": 1}}}
OTHER |= {"logEnd": {"audit": {"0": 1}}, "lag": {"audit": {"0": 0}}}


def source(report: Any, *, as_text: bool = True) -> dict[str, Any]:
    return {
        "description": "a source",
        "startOffset": "{}",
        "endOffset": "{}",
        "latestOffset": json.dumps(report) if as_text and report is not None else report,
        "numInputRows": 100,
        "inputRowsPerSecond": 10.0,
        "processedRowsPerSecond": 25.5,
        "metrics": {},
    }


def progress(*sources: dict[str, Any], name: str | None = "orders-etl", run: str = "run-1") -> dict[str, Any]:
    found = {"id": "id-1", "runId": run, "name": name, "batchId": 5, "sources": list(sources)}
    return copy.deepcopy(found)


KAFKA = source({"orders": {"0": 5}})
RATE = source(7)
SECONDARY = source(None)
