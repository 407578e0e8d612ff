"""What people are shown of a group, its history and its rewinds."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Sequence

from pyspark_kafka_group.offsets.cluster.group_inspection import Coordinator
from pyspark_kafka_group.tools.analysis.documents import moment
from pyspark_kafka_group.tools.analysis.group_partition import OFFSETS_TOPIC
from pyspark_kafka_group.tools.analysis.group_samples import Sample
from pyspark_kafka_group.tools.analysis.group_view import CoordinatorView, GroupView
from pyspark_kafka_group.tools.analysis.history import Entry
from pyspark_kafka_group.tools.analysis.lag_status import Status
from pyspark_kafka_group.tools.analysis.reset_plan import Change
from pyspark_kafka_group.tools.analysis.rewinds import Ended, Finding, Gap, Rewind
from pyspark_kafka_group.tools.doctor.facts import Facts
from pyspark_kafka_group.tools.doctor.finding import Finding as Diagnosis
from pyspark_kafka_group.tools.doctor.finding import Severity
from pyspark_kafka_group.tools.tables import WIDTH, Column, brief, clean, cut, duration, table

_NARROW = (
    Column("TOPIC", shrinks=True),
    Column("PARTITION", number=True),
    Column("CURRENT-OFFSET", number=True),
    Column("LAG", number=True),
    Column("BEHIND", number=True),
    Column("DRAINED", number=True),
    Column("STATUS"),
    Column("CLIENT-ID", shrinks=True),
)
_WIDE = (
    Column("GROUP"),
    Column("TOPIC"),
    Column("PARTITION", number=True),
    Column("CURRENT-OFFSET", number=True),
    Column("LOG-END-OFFSET", number=True),
    Column("LAG", number=True),
    Column("CONSUMER-ID"),
    Column("HOST"),
    Column("CLIENT-ID"),
    Column("LEADER-EPOCH", number=True),
    Column("BEHIND", number=True),
    Column("DRAINED", number=True),
    Column("STATUS"),
)

_HISTORY = (
    Column("TIME (UTC)"),
    Column("TOPIC-PARTITION", shrinks=True),
    Column("FROM", number=True),
    Column("TO", number=True),
    Column("MOVE"),
    Column("BY", shrinks=True),
)
_FINDINGS = (
    Column("TIME (UTC)"),
    Column("TOPIC-PARTITION", shrinks=True),
    Column("WHAT"),
    Column("FROM", number=True),
    Column("TO", number=True),
    Column("BY", shrinks=True),
    Column("RECOVERED"),
)

_RESET = (
    Column("TOPIC", shrinks=True),
    Column("PARTITION", number=True),
    Column("CURRENT-OFFSET", number=True),
    Column("NEW-OFFSET", number=True),
    Column("MOVED", number=True),
    Column("NEW-LAG", number=True),
)

_LIVE = (
    Column("TOPIC", shrinks=True),
    Column("PART", number=True),
    Column("OFFSET", number=True),
    Column("LAG", number=True),
    Column("BEHIND", number=True),
    Column("IN/S", number=True),
    Column("OUT/S", number=True),
    Column("CLIENT-ID", shrinks=True),
)


def group_report(view: GroupView, *, wide: bool = False) -> list[str]:
    """Return the lines of ``describe``."""
    description = view.description
    count = len(description.members)
    first = f"{clean(view.group)}: {description.state}, {description.protocol.value} protocol, "
    first += f"{count} member{'' if count == 1 else 's'}, lag {view.lag}"
    if view.status is not None:
        first += f", {view.status.name}"
    lines = [first, *_in_time(view), *_held_back(view), f"coordinator: {_broker(view.coordinator)}", ""]
    if not view.partitions:
        return [*lines, "It has committed nothing, and nobody has a partition."]
    rows: list[Sequence[object]] = []
    for part in view.partitions:
        at = [part.tp.topic, part.tp.partition, part.committed_offset]
        times = [brief(part.lag_seconds), brief(part.drain_seconds)]
        owner = part.owner
        status = part.status.name if part.status not in (None, Status.NOTFOUND) else None
        client = owner.client_id if owner else None
        if wide:
            member, host = (owner.member_id, owner.host) if owner else (None, None)
            shared = [view.group, *at, part.log_end_offset, part.lag]
            rows.append([*shared, member, host, client, part.leader_epoch, *times, status])
        else:
            rows.append([*at, part.lag, *times, status, client])
    return [*lines, *table(_WIDE if wide else _NARROW, rows, width=None if wide else WIDTH)]


def _in_time(view: GroupView) -> list[str]:
    """Return a line that says how far the group is behind in time; none if it is not, or that is not known."""
    if not view.lag_seconds:
        return []
    drained = f", drained in {duration(round(view.drain_seconds * 1000))}" if view.drain_seconds else ""
    return [f"{duration(round(view.lag_seconds * 1000))} behind{drained}"]


def _held_back(view: GroupView) -> list[str]:
    """Return a line for each problem that keeps partitions from being read."""
    by_problem: dict[str, list[str]] = {}
    for part in view.partitions:
        if part.problem is not None:
            by_problem.setdefault(part.problem, []).append(str(part.tp))
    return [
        f"held back, and not part of the lag: {clean(', '.join(names))} ({clean(problem)})"
        for problem, names in by_problem.items()
    ]


def coordinator_report(view: CoordinatorView) -> list[str]:
    """Return the lines of ``coordinator``."""
    lines = [f"{clean(view.group)} is coordinated by {_broker(view.coordinator)}."]
    if view.partition is None or view.partition_count is None:
        return [*lines, f"Why, cannot be told: {OFFSETS_TOPIC} does not exist, or is hidden from this user."]
    lines += [
        f"Its name has the hash {view.java_hash} (Java's hashCode), and {OFFSETS_TOPIC} has {view.partition_count}",
        f"partitions: {abs(view.java_hash)} % {view.partition_count} = {view.partition}. "
        + ("Nobody leads that partition." if view.leader is None else f"Broker {view.leader} leads that partition."),
    ]
    if view.leader is not None and view.leader != view.coordinator.node_id:
        lines.append("The two are not the same: leadership moves just now. Ask again.")
    return lines


def history_report(entries: Iterable[Entry], *, wide: bool = False) -> list[str]:
    """Return the lines of ``history``."""
    rows = [
        [moment(entry.time_ms, short=True), entry.tp, entry.previous, entry.offset, entry.move.value, committer(entry)]
        for entry in entries
    ]
    return table(_HISTORY, rows, width=None if wide else WIDTH)


POLLED_HEAD = f"{'TIME (UTC)':<19}  {'TOPIC-PARTITION':<24}  {'FROM':>10}  {'TO':>10}  {'MOVE':<7}  BY"
"""Stands above the lines of `polled_line`, which come one by one, so that nobody knows how wide they become."""


def polled_line(entry: Entry) -> str:
    """Return the line of one step that was seen just now."""
    when, where = moment(entry.time_ms, short=True), clean(entry.tp)
    start, end = clean(entry.previous), clean(entry.offset)
    return f"{when}  {where:<24}  {start:>10}  {end:>10}  {entry.move.value:<7}  {clean(committer(entry))}"


def findings_report(findings: Sequence[Finding], *, wide: bool = False) -> list[str]:
    """Return the lines of ``rewinds``."""
    rows: list[Sequence[object]] = []
    for finding in findings:
        entry, what, start, end, recovered = finding.entry, "ended", finding.entry.previous, None, None
        match finding:
            case Rewind():
                what, start, end = "rewind", finding.high, finding.lowest
                recovered = "not yet"
                if finding.recovered_ms is not None:
                    recovered = f"after {duration(finding.recovered_ms - entry.time_ms)}"
            case Gap():
                what, end = "gap", entry.offset
            case Ended():
                what = entry.move.value
        rows.append([moment(entry.time_ms, short=True), entry.tp, what, start, end, committer(entry), recovered])
    return table(_FINDINGS, rows, width=None if wide else WIDTH)


def reset_report(group: str, changes: Sequence[Change], *, executed: bool) -> list[str]:
    """Return the lines of ``reset``."""
    rows: list[Sequence[object]] = []
    for change in changes:
        moved = None if change.previous is None else f"{change.offset - change.previous:+}"
        lag = change.log_end - change.offset
        rows.append([change.tp.topic, change.tp.partition, change.previous, change.offset, moved, lag])
    count = f"{len(changes)} offset{'' if len(changes) == 1 else 's'}"
    said = (
        f"{count} of {clean(group)} set."
        if executed
        else f"Nothing was changed. --execute sets {count} of {clean(group)}."
    )
    return [*table(_RESET, rows), "", said]


def diagnosis_report(facts: Facts, findings: Sequence[Diagnosis]) -> list[str]:
    """Return the lines of ``doctor``."""
    bad = sum(finding.severity is not Severity.NOTE for finding in findings)
    notes = len(findings) - bad
    said = f"{bad} finding{'' if bad == 1 else 's'}" if bad else "nothing is wrong"
    if notes:
        said += f", {notes} note{'' if notes == 1 else 's'}"
    members = f"{len(facts.members)} member{'' if len(facts.members) == 1 else 's'}"
    lines = [f"{clean(facts.group)}: {said} ({facts.state}, {members}, {len(facts.partitions)} partitions)"]
    for finding in findings:
        lines += ["", *_wrapped(f"{finding.severity.name} {finding.code}: {clean(finding.thing)}", "")]
        for text in (finding.evidence, finding.remedy):
            lines += _wrapped(f"{clean(text[:1].upper() + text[1:])}.", "  ")
    return lines


def _wrapped(text: str, indent: str) -> list[str]:
    return textwrap.wrap(text, WIDTH, initial_indent=indent, subsequent_indent="  ", break_on_hyphens=False)


def sample_report(sample: Sample, problem: str | None, *, interval: float) -> list[str]:
    """Return the lines of ``watch``: those that are furthest behind first."""
    view, total = sample.view, sample.total
    head = f"{clean(view.group)}: {view.description.state}, {view.description.protocol.value} protocol"
    count = len(view.description.members)
    lag = ", ".join([f"lag {view.lag}", *_in_time(view)])
    lines = [
        cut(f"{head}, {count} member{'' if count == 1 else 's'}", WIDTH),
        lag,
        f"in {clean(rate(total.produced))}/s, out {clean(rate(total.consumed))}/s, rebalances: {sample.rebalances}",
        f"{moment(sample.time_ms, short=True)} UTC, every {interval:g} s",
    ]
    if problem is not None:
        lines.append(cut(f"no answer now: {clean(problem)}", WIDTH))
    rows: list[Sequence[object]] = []
    for part in sorted(view.partitions, key=lambda part: -1 if part.lag is None else part.lag, reverse=True):
        rates = sample.rates.get(part.tp)
        speeds = [rate(rates.produced), rate(rates.consumed)] if rates else [None, None]
        owner = part.owner.client_id if part.owner else None
        times = [brief(part.lag_seconds), *speeds]
        rows.append([part.tp.topic, part.tp.partition, part.committed_offset, part.lag, *times, owner])
    return [*lines, "", *table(_LIVE, rows)]


def rate(per_second: float | None) -> str | None:
    """Return offsets per second, for a column; None stays None."""
    if per_second is None:
        return None
    return f"{per_second:.1f}" if 0 < per_second < 9.95 else f"{per_second:.0f}"


def committer(entry: Entry) -> str | None:
    """Return who has committed, as far as the log tells."""
    if entry.move.ends:
        return None
    if entry.reset is not None:
        return f"reset by {entry.reset.by}"
    if entry.owner is not None:
        return entry.owner.client_id
    if entry.query_id is not None:
        return f"query {entry.query_id}"
    return "no member" if entry.by_nobody else "unknown"


def _broker(coordinator: Coordinator) -> str:
    node = "a broker" if coordinator.node_id is None else f"broker {coordinator.node_id}"
    return f"{node}, {coordinator.address}"
