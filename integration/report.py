"""Make the report of a run from its recording: figures and violations, as JSON and as a table for people."""

from __future__ import annotations

import bisect
import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from integration.burrow import Ends, evaluate_history, judge_burrow
from integration.hand_overs import STAGES, HandOver, hand_overs, outside, pauses, percentile
from integration.oracles import (
    SHOWN,
    Committed,
    Member,
    Produced,
    Reset,
    Window,
    judge_commits_follow_sinks,
    judge_deliveries,
    judge_members,
    judge_progress,
    judge_rising,
    judge_stalls,
)
from integration.poll_oracles import Offsets, Transactions, defects_of_kafka, judge_polls, judge_transactions
from integration.sink import Delivery

WIDTH = 80

Report = dict[str, Any]


@dataclass
class Recording:
    """The recording of a run.

    Attributes
    ----------
    ends_of_logs : mapping
        The log ends according to Kafka, after the producer had stopped.
    samples : list of Committed
        The committed offsets that tools get.
    commits : list of Committed
        Every commit, from Kafka's own log of commits.
    disturbed : list of Window
        The times in which pauses have a cause other than a rebalance.
    away : list of Window
        The times in which no query could continue, for example without any broker or any application.
    late : list of Window
        The times in which a delayed plain commit may arrive.
    resets : list of Reset
        The resets of the group's offsets.
    transactions : Transactions
        The records of transactions, according to their producer.
    visible : mapping
        The offsets that a plain consumer gets of topics with transactions.  Other topics are absent, because each of
        their records is visible.
    longest_standstill_s : float
        How long a partition with a lag may stand still.
    ready : float
        The time from which this limit applies.  Spark's first batches take long on a busy machine.
    planned_only : bool
        Whether the run has no faults.  Without faults, no record may be processed twice, and Burrow may raise no alarm.
    lake : list of Delivery or None
        The records of the lake table that all members fill; None without one.  The table must have each record once.
    problems : list of str
        The violations found during the run.
    """

    produced: Produced
    ends_of_logs: Produced
    members: Sequence[Member]
    samples: Sequence[Committed]
    ends: Sequence[Ends]
    commits: Sequence[Committed]
    disturbed: Sequence[Window] = ()
    away: Sequence[Window] = ()
    late: Sequence[Window] = ()
    resets: Sequence[Reset] = ()
    longest_standstill_s: float = 120.0
    ready: float = 0.0
    planned_only: bool = False
    lake: Sequence[Delivery] | None = None
    problems: list[str] = field(default_factory=list)
    transactions: Transactions = field(default_factory=Transactions)
    visible: Offsets = field(default_factory=dict)

    @property
    def invisible(self) -> Offsets:
        """The offsets of topics with transactions that no reader gets."""
        ends = {f"{topic}-{number}": end for (topic, number), end in self.produced.items()}
        return {tp: frozenset(range(ends[tp])) - offsets for tp, offsets in self.visible.items()}


def judge(recording: Recording) -> Report:
    """Return the figures and the violations of a run."""
    invisible = recording.invisible
    verdict = judge_deliveries(recording.produced, recording.members, invisible)
    deliveries = [d for member in recording.members for d in member.deliveries]
    moves = hand_overs(recording.members)
    stood = pauses(recording.members)
    calm = outside(stood, recording.disturbed)
    judgements = evaluate_history(recording.commits, recording.ends)
    kinds = {
        "of what happened meanwhile": recording.problems,
        "of delivery": verdict.violations,
        "of the members": judge_members(recording.members),
        "of sampled offsets": judge_rising(recording.samples, recording.resets, recording.late),
        "of progress": judge_progress(
            [sample for sample in recording.samples if sample.time >= recording.ready],
            lambda tp, time: _end_of(recording.ends, tp, time),
            recording.longest_standstill_s,
            recording.away,
        ),
        "of commits": judge_rising(recording.commits, recording.resets, recording.late),
        "of stalls": judge_stalls(
            recording.members,
            lambda tp, time: _end_of(recording.ends, tp, time),
            recording.visible,
        ),
        "of commits before their rows": judge_commits_follow_sinks(recording.commits, deliveries, invisible),
        "of polls": judge_polls(recording.members, invisible),
        "of transactions": judge_transactions(recording.transactions, recording.visible, deliveries),
    }
    if recording.lake is not None:
        of_lake = judge_deliveries(recording.produced, [Member("the table", (), recording.lake)], invisible)
        kinds["of the lake table"] = of_lake.violations
    if recording.produced != recording.ends_of_logs:
        kinds["of the test itself"] = [f"counted {recording.produced}, and Kafka holds {recording.ends_of_logs}"]
    if recording.planned_only:
        kinds["of Burrow's rules"] = judge_burrow(judgements)
        told = [f"{m.name}: {e}" for m in recording.members for e in m.events if e["event"] in ("expired", "lost")]
        kinds["of planned hand-overs"] = told
        if verdict.duplicated:
            kinds["of planned hand-overs"].append(f"{verdict.duplicated} records were delivered twice")
    names = Counter(event["event"] for member in recording.members for event in member.events)
    return {
        "produced": verdict.produced,
        "delivered": verdict.delivered,
        "lost": verdict.lost,
        "foreign": verdict.foreign,
        "in_lake": None if recording.lake is None else sum(d.until - d.start for d in recording.lake),
        "aborted": sum(map(len, recording.transactions.aborted.values())),
        "duplicated": {
            "declared": verdict.duplicated,
            "undeclared": verdict.undeclared,
            "records_in_declared_ranges": verdict.declared_records,
        },
        "hand_overs": {
            "all": len(moves),
            "clean": figures_of([m for m in moves if m.clean]),
            "other": figures_of([m for m in moves if not m.clean]),
        },
        "pauses_of_unmoved_partitions": {
            "p50": percentile([p.seconds for p in calm], 0.5),
            "p99": percentile([p.seconds for p in calm], 0.99),
            "longest": max((p._asdict() for p in calm), key=lambda p: p["seconds"], default=None),
            "longest_also_when_disturbed": max((p.seconds for p in stood), default=None),
        },
        "committed_offsets": {
            "samples": len(recording.samples),
            "commits": len(recording.commits),
            "went_back": len(kinds["of sampled offsets"]) + len(kinds["of commits"]),
        },
        "burrow": dict(Counter(j.status.name for j in judgements)),
        "events": dict(sorted(names.items())),
        "of_kafka": defects_of_kafka(recording.transactions, recording.visible),
        "violations": [
            f"{kind}: {line}" for kind, lines in kinds.items() for line in [*lines[:SHOWN], *_and_more(lines)]
        ],
    }


def _end_of(ends: Sequence[Ends], tp: str, time: float) -> int:
    """Return the log end of a partition in the last sample before ``time``, or 0 before the first sample."""
    at = bisect.bisect_right(ends, time, key=lambda sample: sample.time)
    return ends[at - 1].ends.get(tp, 0) if at else 0


def figures_of(moves: Sequence[HandOver]) -> Report:
    """Return how long hand-overs took, raw and net, and how long each step took."""
    took: dict[str, list[float]] = {}
    for move in moves:
        before = 0.0
        for stage in STAGES:
            if stage in move.reached and stage != "revoked":
                took.setdefault(stage, []).append(move.reached[stage] - before)
                before = move.reached[stage]
    return {
        "count": len(moves),
        "raw_s": _spread([m.raw_s for m in moves]),
        "net_s": _spread([m.net_s for m in moves]),
        "move_s": _spread([m.move_s for m in moves]),
        "median_of_steps_s": {stage: percentile(values, 0.5) for stage, values in took.items()},
        "p99_of_steps_s": {stage: percentile(values, 0.99) for stage, values in took.items()},
    }


def shown(report: Report, file: Path | None) -> int:
    """Print a report, write it to a file if there is one, and return the exit status of the program."""
    if file is not None:
        file.write_text(json.dumps(report, indent=1))
    print(table(report))
    return 1 if report["violations"] else 0


def table(report: Report) -> str:
    """Return a report as a table of 80 columns."""
    duplicated, moves = report["duplicated"], report["hand_overs"]
    stood, offsets = report["pauses_of_unmoved_partitions"], report["committed_offsets"]
    longest = stood["longest"] or {"seconds": None, "tp": "", "member": ""}
    lines = [
        "=" * WIDTH,
        *_section("run", [(key, value) for key, value in report["run"].items() if not isinstance(value, list | dict)]),
        *_section(
            "records",
            [
                ("produced", report["produced"]),
                ("delivered", report["delivered"]),
                ("lost", report["lost"]),
                ("rows of the lake table", report["in_lake"]),
                ("aborted, in nobody's sink", report["aborted"]),
                ("twice, declared", duplicated["declared"]),
                ("twice, not declared", duplicated["undeclared"]),
                ("in declared ranges", duplicated["records_in_declared_ranges"]),
            ],
        ),
    ]
    for kind in ("clean", "other"):
        found = moves[kind]
        if found["count"]:
            lines += _section(
                f"hand-overs, {kind}",
                [
                    ("count", found["count"]),
                    ("latency raw", _of_spread(found["raw_s"])),
                    ("latency net", _of_spread(found["net_s"])),
                    ("until planned, net", _of_spread(found["move_s"])),
                    *((f"  to {stage}, p50 / p99", _step(found, stage)) for stage in found["median_of_steps_s"]),
                ],
            )
    lines += _section(
        "partitions that stayed",
        [
            ("pause p50", _seconds(stood["p50"])),
            ("pause p99", _seconds(stood["p99"])),
            ("longest", f"{_seconds(longest['seconds'])} {longest['tp']} {longest['member']}"),
            ("longest, under faults", _seconds(stood["longest_also_when_disturbed"])),
        ],
    )
    lines += _section(
        "committed offsets",
        [("samples", offsets["samples"]), ("commits", offsets["commits"]), ("went back", offsets["went_back"])],
    )
    lines += _section("Burrow's verdicts", sorted(report["burrow"].items()))
    lines += _section("events", sorted(report["events"].items()))
    for title in ("faults", "endings"):
        if counted := report["run"].get(title):
            lines += _section(title, _counted(counted))
    if report["of_kafka"]:
        lines += ["defects of Kafka", *(_cut(f"  {line}") for line in report["of_kafka"])]
    violations = report["violations"]
    lines += [f"violations: {len(violations)}", *(_cut(f"  {line}") for line in violations), "=" * WIDTH]
    return "\n".join(lines)


def _counted(entries: Iterable[Mapping[str, Any]]) -> list[tuple[str, Any]]:
    return sorted(Counter(str(entry["kind"]) for entry in entries).items())


def _section(title: str, rows: Iterable[tuple[str, Any]]) -> list[str]:
    return [title, *(_cut(f"  {name:<28} {value}") for name, value in rows)]


def _cut(line: str) -> str:
    return line if len(line) <= WIDTH else line[: WIDTH - 3] + "..."


def _and_more(lines: Sequence[str]) -> list[str]:
    return [f"and {len(lines) - SHOWN} more"] if len(lines) > SHOWN else []


def _spread(values: Sequence[float]) -> dict[str, float | None]:
    return {
        "p50": percentile(values, 0.5),
        "p90": percentile(values, 0.9),
        "p99": percentile(values, 0.99),
        "max": max(values, default=None),
    }


def _of_spread(spread: Mapping[str, float | None]) -> str:
    return ", ".join(f"{name} {_seconds(value).removesuffix(' s')}" for name, value in spread.items()) + " s"


def _step(found: Report, stage: str) -> str:
    return f"{_seconds(found['median_of_steps_s'][stage])} / {_seconds(found['p99_of_steps_s'][stage])}"


def _seconds(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f} s"
