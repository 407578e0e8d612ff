"""The tables of each benchmark.  Pure functions make them from a result."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping
from dataclasses import dataclass

from benchmarks.results import Cell, Result
from benchmarks.samples import paired_ratios, spread
from benchmarks.tables import MISSING, WIDTH, Table, figure_with_spread

BUILTIN, OURS, CEILING = "kafka", "kafka-group", "ceiling"
"""The names of the sources in the tables."""

TUNED = "kafka, tuned"
"""Spark's own source with the fetch settings of someone who knows it: `queries.TUNING`.  Its sink: `sink.TUNING`."""

EXACTLY_ONCE = f"{OURS}, exactly once"
OURS_TUNED, EXACTLY_ONCE_TUNED = f"{OURS}, tuned", f"{EXACTLY_ONCE}, tuned"
"""Other arms of the sink."""

DEFAULTS, FAIR_TUNED, FAIR, FAIR_ONCE = "Spark", "tuned", "ours", "exactly once"
"""Spark's own source or sink, the same tuned, and this one: short names, so that the ratios fit a terminal."""

APPEND_TUNED, APPEND = f"{TUNED}, append", f"{OURS}, append"
LAKE_TABLE, LANDING = "LakeTable", "landing"
"""The ways from a topic into a table."""


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """One table: a metric of all cells, by source.

    Attributes
    ----------
    metric : str
        The metric.
    title : str
        Its name and unit.
    ratios : tuple of (str, str)
        Pairs of sources.  A further table shows the first divided by the second.
    less_is_better : bool
        Whether a smaller ratio is better.
    only_ratios : bool
        Whether there is no table of the metric itself.
    """

    metric: str
    title: str
    ratios: tuple[tuple[str, str], ...] = ()
    less_is_better: bool = False
    only_ratios: bool = False


_TUNED_SETTINGS = ("max.poll.records", "max.partition.fetch.bytes", "receive.buffer.bytes", "fetch.min.bytes")

_VERSUS = ((OURS, BUILTIN),)
_VERSUS_TUNED = ((OURS, BUILTIN), (OURS, TUNED), (TUNED, BUILTIN))
_VERSUS_ALL = (*_VERSUS_TUNED, (OURS, CEILING))
_SINKS = (
    (OURS, BUILTIN),
    (EXACTLY_ONCE, BUILTIN),
    (OURS_TUNED, TUNED),
    (EXACTLY_ONCE_TUNED, TUNED),
)

VIEWS: Mapping[str, tuple[View, ...]] = {
    "throughput": (
        View(metric="records_per_s", title="Records/s, whole batches", ratios=_VERSUS_ALL),
        View(metric="mb_per_s", title="MB/s of values, whole batches"),
        View(metric="records_per_s_read", title="Records/s, reading and sink only (addBatch)", ratios=_VERSUS_ALL),
        View(metric="jvm_cpu_s", title="CPU seconds of Spark's JVM per million records"),
        View(metric="python_cpu_s", title="CPU seconds of Python workers per million records"),
        View(metric="source_cpu_s", title="CPU seconds of the source process per million records"),
        View(metric="broker_cpu_s", title="CPU seconds of the broker per million records"),
        View(metric="worker_rss_mb", title="Largest Python worker, MB (peak of resident memory)"),
    ),
    "fair": (
        View(
            metric="records_per_s",
            title="Records/s over Spark's own source and sink",
            ratios=((FAIR, DEFAULTS), (FAIR, FAIR_TUNED), (FAIR_ONCE, FAIR_TUNED)),
            only_ratios=True,
        ),
    ),
    "levers": (
        View(
            metric="records_per_s",
            title="Records/s, whole batches, with settings of Spark",
            ratios=(
                ("Unix sockets", "defaults"),
                ("1 MB buffers", "defaults"),
                ("ceiling, Unix sockets", "ceiling"),
                ("defaults", "ceiling"),
                ("Unix sockets", "ceiling, Unix sockets"),
                *((f"{BUILTIN}, {name}", BUILTIN) for name in _TUNED_SETTINGS),
                (TUNED, BUILTIN),
            ),
        ),
        View(metric="jvm_cpu_s", title="CPU seconds of Spark's JVM per million records"),
        View(metric="python_cpu_s", title="CPU seconds of Python workers per million records"),
    ),
    "sink": (
        View(metric="records_per_s", title="Records/s written", ratios=_SINKS),
        View(metric="cold_records_per_s", title="Records/s written, the first write of a JVM", ratios=_SINKS),
        View(metric="seconds", title="Seconds of a run"),
        View(
            metric="cpu_us",
            title="CPU microseconds per record, JVM, Python workers and broker",
            ratios=_SINKS,
            less_is_better=True,
        ),
        View(metric="jvm_cpu_us", title="  of Spark's JVM"),
        View(metric="worker_cpu_us", title="  of Python workers"),
        View(metric="broker_cpu_us", title="  of the broker"),
    ),
    "latency": (
        View(metric="p50_ms", title="Latency p50, ms", ratios=_VERSUS, less_is_better=True),
        View(metric="p99_ms", title="Latency p99, ms", ratios=_VERSUS, less_is_better=True),
        View(metric="batch_ms", title="Median duration of a batch, ms"),
        View(metric="add_batch_ms", title="  of this reading and sink (addBatch), ms"),
        View(metric="batch_rows", title="Median records of a batch"),
        View(metric="records", title="Records measured"),
    ),
    "kafka_to_kafka": (
        View(metric="p50_ms", title="From topic to topic p50, ms", ratios=_VERSUS, less_is_better=True),
        View(metric="p90_ms", title="From topic to topic p90, ms"),
        View(metric="p95_ms", title="From topic to topic p95, ms"),
        View(metric="p99_ms", title="From topic to topic p99, ms", ratios=_VERSUS, less_is_better=True),
        View(metric="batch_ms", title="Median duration of a batch, ms"),
        View(metric="records", title="Records measured"),
    ),
    "formats": (
        View(
            metric="records_per_s",
            title="Records/s, values with types",
            ratios=(
                ("kafka-group, valueFormat", "kafka, from_json"),
                ("kafka-group, valueFormat", "kafka-group, from_json"),
                ("kafka-group, valueFormat", "kafka, from_avro"),
                ("kafka-group, valueFormat", "kafka-group, from_avro"),
                ("kafka-group, valueFormat", "kafka-group, bytes"),
            ),
        ),
    ),
    "idle": (
        View(metric="source_cpu_percent", title="Source process, % of a core"),
        View(metric="jvm_cpu_percent", title="Spark's JVM, % of a core"),
        View(
            metric="total_cpu_percent", title="JVM and source process, % of a core", ratios=_VERSUS, less_is_better=True
        ),
        View(metric="jvm_share_percent", title="JVM and source process, less a session without query, % of a core"),
        View(metric="broker_cpu_percent", title="Broker, % of a core"),
    ),
    "planning": (
        View(metric="plan_ms", title="latestOffset + partitions, JSON included, ms: one new record per partition"),
        View(metric="latest_offset_ms", title="  of this latestOffset, ms"),
        View(metric="partitions_ms", title="  of this partitions, ms"),
        View(metric="nothing_new_ms", title="CPU time of one latestOffset with nothing new, ms"),
        View(metric="memory_mb", title="Memory of the reader, MB"),
        View(metric="offset_bytes", title="Offset JSON, bytes"),
        View(metric="spark_latest_offset_ms", title="In Spark: latestOffset of a batch with one new record, ms"),
        View(metric="spark_batch_ms", title="In Spark: whole such batch, ms"),
    ),
    "commit": (
        View(
            metric="batch_ms",
            title="Median duration of a batch, ms",
            ratios=(("transaction", "no commit"), ("plain", "no commit")),
            less_is_better=True,
        ),
        View(
            metric="cycle_ms",
            title="Mean time from batch to batch, ms",
            ratios=(("transaction", "no commit"),),
            less_is_better=True,
        ),
        View(metric="batches", title="Batches measured"),
    ),
    "start": (
        View(metric="first_row_s", title="start() to the first row in the sink, s"),
        View(metric="over_builtin_s", title="The same, over the built-in source, s"),
    ),
    "busy_start": (
        View(metric="start_ms", title="From assigned to started, ms"),
        View(
            metric="all_stable_ms",
            title="Asking for the whole topic until nothing is refused, ms (10,000: given up)",
        ),
        View(metric="refused_own_percent", title="Asks for what the member was assigned that were refused, %"),
        View(metric="refused_all_percent", title="Asks for the whole topic that were refused, %"),
        View(metric="commits_per_s", title="Commits of all producers, per second"),
    ),
    "scaling": (
        View(metric="records_per_s", title="Records/s of all applications", ratios=_VERSUS),
        View(
            metric="cpu_s",
            title="CPU seconds of all applications per million records",
            ratios=_VERSUS,
            less_is_better=True,
        ),
        View(metric="least_share", title="Records of the application with fewest, 1: an equal share"),
        View(metric="moved", title="Partitions that moved while applications came and went"),
        View(metric="hand_over_p50_s", title="Hand-over net of the new owner's running batch, p50, s"),
        View(metric="hand_over_max_s", title="  the longest, s"),
        View(metric="stayed_p50_s", title="Between two writes of a partition that stayed, p50, s"),
        View(metric="stayed_p99_s", title="  p99, s"),
    ),
    "hand_over": (
        View(metric="p50_s", title="A moving partition stands still, p50, s"),
        View(metric="p90_s", title="  p90, s"),
        View(metric="p99_s", title="  p99, s"),
        View(metric="max_s", title="  the longest, s"),
        View(metric="moved", title="Partitions that moved"),
    ),
    "members": (
        View(metric="lag_p50", title="Lag of a healthy partition beside a slow one, median, records"),
        View(metric="lag_max", title="The same, the largest, records"),
    ),
    "group_size": (
        View(metric="settle_s", title="Until all members of a new group have their shares, s"),
        View(metric="again_s", title="The same when all start again, with committed offsets, s"),
        View(metric="fell_back", title="Partitions that did not begin at their committed offset then"),
        View(metric="leave_s", title="From the stop of one member until the others have its partitions, s"),
        View(metric="idle_broker_percent", title="Broker while nothing comes, % of a core"),
        View(metric="busy_broker_percent", title="Broker while each member commits once a second, % of a core"),
        View(metric="commits_per_s", title="Commits of all members, per second"),
        View(metric="commit_ms", title="Mean time of a commit, ms"),
        View(metric="idle_member_percent", title="A member while nothing comes, % of a core"),
        View(metric="busy_member_percent", title="A member that commits once a second, % of a core"),
    ),
    "connections": (
        View(metric="most", title="Connections of an executor with 8 workers, at most"),
        View(metric="mean", title="The same, mean over time"),
        View(metric="opened_per_s", title="Connections opened a second"),
        View(metric="brokers_of_a_task", title="Brokers that a task reads from, mean"),
        View(metric="batch_ms", title="Reading of a batch, median, ms"),
    ),
    "batch": (
        View(metric="read_s", title="A whole batch read, s"),
        View(metric="records_per_s", title="Records/s of a batch read", ratios=_VERSUS_TUNED),
    ),
    "landing": (
        View(
            metric="records_per_s",
            title="Records/s from a topic into a table, whole batches with their commits",
            ratios=((LANDING, APPEND), (LANDING, APPEND_TUNED), (LANDING, LAKE_TABLE)),
        ),
        View(metric="jvm_cpu_s", title="CPU seconds of Spark's JVM per million records"),
        View(metric="python_cpu_s", title="CPU seconds of Python workers per million records"),
        View(metric="worker_rss_mb", title="Largest Python worker, MB"),
        View(metric="workers_mb", title="Python workers of all applications, MB"),
        View(metric="jvm_rss_mb", title="Largest JVM, MB"),
        View(metric="jvms_mb", title="JVMs of all applications, MB"),
        View(metric="driver_rss_mb", title="Largest Python driver, MB"),
        View(metric="source_rss_mb", title="Largest source process, MB"),
        View(metric="commit_p50_s", title="From the last data file of a batch until the table has it, p50, s"),
        View(metric="commit_p99_s", title="  p99, s"),
        View(metric="commit_s", title="A commit, with the look at the table, mean, s"),
        View(metric="landed_p50_s", title="  p50, s"),
        View(metric="landed_p99_s", title="  p99, s"),
        View(metric="conflicts", title="Commits of landing that another commit made void"),
    ),
    "where": (
        View(
            metric="records_per_s",
            title="Records/s read, of which Spark gets a part",
            ratios=(("where", "df.where"), ("read_arrow", "df.where")),
        ),
    ),
    "tls": (
        View(metric="records_per_s", title="Records/s of a batch read", ratios=_VERSUS),
        View(metric="mb_per_s", title="MB/s of values of a batch read"),
    ),
    "database": (
        View(
            metric="rows_per_s",
            title="Rows/s into PostgreSQL, planning included",
            ratios=(("with the offset table", "without it"),),
        ),
    ),
    "lake": (
        View(
            metric="write_s",
            title="A write of one batch, s",
            ratios=(("LakeTable", "plain append"),),
            less_is_better=True,
        ),
        View(metric="rows_per_s", title="Rows/s of all writers", ratios=(("LakeTable", "plain append"),)),
        View(metric="p50_s", title="A write beside the others, p50, s"),
        View(metric="p99_s", title="  p99, s"),
        View(metric="retries", title="Attempts of a write that another commit made void"),
    ),
    "memory": (
        View(metric="baseline_mb", title="Python worker that reads from no Kafka, peak MB"),
        View(metric="peak_mb", title="Reading worker, peak MB"),
        View(metric="extra_mb", title="Extra memory of a reading worker, MB"),
        View(metric="after_mb", title="Reading worker after the batch, MB"),
    ),
    "decoding": (
        View(metric="records_per_s", title="Records of __consumer_offsets a second, on one core"),
        View(metric="extra_mb", title="Extra memory while they are read, MB"),
    ),
}
"""The tables of each benchmark, by its name."""


def tables(result: Result) -> list[Table]:
    """Return the tables of a result, without tables and rows whose metric it lacks."""
    made: list[Table] = []
    for view in VIEWS[result.benchmark]:
        arms = [arm for arm in _arms(result) if any(_known(cell, arm, view) for cell in result.cells)]
        if not arms:
            continue
        if not view.only_ratios:
            rows = [_row(cell, arms, view) for cell in result.cells]
            made.append(Table(title=view.title, header=["", *arms], rows=_filled(rows)))
        pairs = [(a, b) for a, b in view.ratios if a in arms and b in arms]
        if pairs:
            title = f"Ratios of: {view.title}"
            header = ["", *(f"{a} / {b}" for a, b in pairs)]
            rows = [_ratios(cell, pairs, view) for cell in result.cells]
            made.append(Table(title=title, header=header, rows=_filled(rows)))
    return made


def _filled(rows: list[list[str]]) -> list[list[str]]:
    return [row for row in rows if {*row[1:]} != {MISSING}]


def _arms(result: Result) -> list[str]:
    return list(dict.fromkeys(arm for cell in result.cells for arm in cell.arms))


def _known(cell: Cell, arm: str, view: View) -> bool:
    return any(value is not None for value in cell.samples(arm, view.metric))


def _row(cell: Cell, arms: list[str], view: View) -> list[str]:
    return [cell.name, *(figure_with_spread(spread(cell.samples(arm, view.metric))) for arm in arms)]


def _ratios(cell: Cell, pairs: list[tuple[str, str]], view: View) -> list[str]:
    found = (paired_ratios(cell.samples(a, view.metric), cell.samples(b, view.metric)) for a, b in pairs)
    return [cell.name, *(figure_with_spread(spread(values)) for values in found)]


def report(result: Result) -> str:
    """Return all tables of a result for a terminal, after a description of the machine."""
    machine = ", ".join(f"{value}" if name == "cpu" else f"{name} {value}" for name, value in result.machine.items())
    head = [f"{result.benchmark}, {result.taken}" + (", --quick: THESE FIGURES MEAN NOTHING" if result.quick else "")]
    notes = [line for note in result.notes for line in textwrap.wrap(f"note: {note}", WIDTH)]
    return "\n\n".join(
        ["\n".join([*head, *textwrap.wrap(machine, WIDTH), *notes]), *(table.text() for table in tables(result))]
    )
