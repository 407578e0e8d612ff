"""The display: a live panel on a terminal, or plain lines in a log. Both come from the same `Frame`."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from audit import Audit
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.rule import Rule
from rich.table import Table
from rich.text import Text

# Below this width, a table has too little space for the partitions. Then each application gets two lines instead.
NARROW = 64
PLAIN_INTERVAL_S = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One application. `partitions` maps the partitions that it owns to their lag, or to None if the lag is unknown."""

    name: str
    state: str
    rows_per_s: float
    partitions: Mapping[int, int | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Frame:
    """Everything that one screen shows."""

    seconds: float
    phase: str
    applications: Sequence[Line]
    unowned: Sequence[int]
    produced: int
    produced_per_s: float
    committed: int
    committed_per_s: float
    lag: int
    problem: str | None


class Screen(Protocol):
    """A display on which the demo shows its state."""

    def start(self) -> None:
        """Start the display."""

    def show(self, frame: Frame) -> None:
        """Show the newest state."""

    def note(self, seconds: float, text: str) -> None:
        """Show a note that stays on the screen."""

    def close(self) -> None:
        """Restore the terminal."""


class LiveScreen:
    """A panel that is redrawn in place. Notes scroll above it."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._live = Live(console=console, auto_refresh=False, transient=True)

    def start(self) -> None:
        """Take the lower part of the terminal."""
        self._live.start()

    def show(self, frame: Frame) -> None:
        """Redraw the panel."""
        self._live.update(render(frame, self._console.width), refresh=True)

    def note(self, seconds: float, text: str) -> None:
        """Print above the panel."""
        self._console.print(Text.assemble((clock(seconds), "dim"), "  ", text))

    def close(self) -> None:
        """Remove the panel. The notes stay."""
        self._live.stop()


class PlainScreen:
    """Lines for a log or a pipe: each note, and the state every few seconds."""

    def __init__(self) -> None:
        self._shown_at = float("-inf")
        self._phase = ""

    def start(self) -> None:
        """Do nothing: lines need no preparation."""

    def show(self, frame: Frame) -> None:
        """Print a line if the interval is over, or if the demo has begun a new phase."""
        if frame.phase == self._phase and frame.seconds - self._shown_at < PLAIN_INTERVAL_S:
            return
        self._shown_at, self._phase = frame.seconds, frame.phase
        print(plain(frame), flush=True)

    def note(self, seconds: float, text: str) -> None:
        """Print the note at once."""
        print(f"{clock(seconds)}  * {text}", flush=True)

    def close(self) -> None:
        """Do nothing: lines need no cleanup."""


def render(frame: Frame, width: int) -> RenderableType:
    """Draw the panel for a terminal of `width` columns."""
    parts: list[RenderableType] = [
        Rule(Text(f" {clock(frame.seconds)}  {frame.phase} ", style="bold"), align="left"),
        narrow_table(frame) if width < NARROW else wide_table(frame),
        totals(frame),
    ]
    if frame.unowned:
        parts.append(Text(f"without an owner: {' '.join(map(str, frame.unowned))}", style="yellow"))
    if frame.problem:
        parts.append(Text(frame.problem, style="red"))
    return Group(*parts)


def wide_table(frame: Frame) -> RenderableType:
    """Return a table with one row for each application."""
    table = Table(box=None, expand=True, pad_edge=False, header_style="dim")
    table.add_column("application", no_wrap=True, width=11)
    table.add_column("state", no_wrap=True, width=8)
    table.add_column("rows/s", justify="right", no_wrap=True, width=6)
    table.add_column("owns partition:lag", ratio=1)
    for line in frame.applications:
        table.add_row(line.name, state(line), f"{line.rows_per_s:,.0f}", cells(line, frame))
    return table


def narrow_table(frame: Frame) -> RenderableType:
    """Return a text with two lines for each application."""
    texts = []
    for line in frame.applications:
        texts.append(Text.assemble(line.name, "  ", state(line), f"  {line.rows_per_s:,.0f} rows/s"))
        texts.append(Text.assemble("  ", cells(line, frame)))
    return Group(*texts)


def state(line: Line) -> Text:
    """Return an application's state in its colour."""
    colours = {"running": "green", "starting": "yellow", "leaving": "yellow", "gone": "dim"}
    return Text(line.state, style=colours.get(line.state, ""))


def cells(line: Line, frame: Frame) -> Text:
    """Return the partitions of one application with their lags. A lag is red if it is far above the usual one."""
    usual = frame.produced_per_s * 5 / max(1, sum(len(a.partitions) for a in frame.applications))
    text = Text()
    for partition, lag in sorted(line.partitions.items()):
        if text:
            text.append("  ")
        text.append(f"{partition}")
        if lag is not None:
            text.append(f":{lag:,}", style="red" if lag > max(usual, 1_000) else "cyan")
    return text or Text("-", style="dim")


def totals(frame: Frame) -> Text:
    """Return the line below the applications."""
    return Text.assemble(
        ("produced ", "dim"),
        f"{frame.produced:,} ({frame.produced_per_s:,.0f}/s)",
        ("  committed ", "dim"),
        f"{frame.committed:,} ({frame.committed_per_s:,.0f}/s)",
        ("  lag ", "dim"),
        (f"{frame.lag:,}", "bold"),
    )


def plain(frame: Frame) -> str:
    """Return the state as one line."""
    applications = "  ".join(
        f"{line.name} {line.state} [{' '.join(map(str, sorted(line.partitions)))}]" for line in frame.applications
    )
    text = (
        f"{clock(frame.seconds)}  {frame.phase}: {applications}  in {frame.produced_per_s:,.0f}/s  "
        f"out {frame.committed_per_s:,.0f}/s  lag {frame.lag:,}"
    )
    return f"{text}  ({frame.problem})" if frame.problem else text


def report(result: Audit, started: float, width: int) -> str:
    """Return the audit as text, wrapped at `width` columns. Times are seconds since `started`."""
    lines = [
        "Audit of the Parquet files",
        f"  produced    {result.produced:>9,}   acknowledged by Kafka, {result.keys:,} customers",
        f"  delivered   {result.delivered:>9,}",
        f"  lost        {result.lost:>9,}{_where(result.lost_ranges)}",
        f"  duplicated  {result.duplicated:>9,}{_where(result.duplicated_ranges)}",
        f"  disorder    {result.out_of_order:>9,}   events visible before an earlier one of their customer",
    ]
    if result.unknown:
        lines.append(f"  unknown     {result.unknown:>9,}   rows that were never produced")
    lines.append(
        f"  delay       {result.delay_median_s:>8.1f}s   median from Kafka to Parquet; 99 %: {result.delay_p99_s:.1f}s"
    )
    if pause := result.longest_pause:
        lines.append(
            f"  pause       {pause.seconds:>8.1f}s   longest of an unmoved partition ({pause.partition} of "
            f"{pause.application} at {clock(pause.at - started)}); usual: {result.usual_pause_s:.1f}s"
        )
    latencies = [h.latency_s for h in result.hand_overs]
    if latencies:
        lines.append(
            f"  hand-overs  {len(latencies):>9,}   last row of the old owner to first row of the new one: "
            f"{min(latencies):.1f} to {max(latencies):.1f}s"
        )
    else:
        lines.append("  hand-overs          0")
    for old, new in dict.fromkeys((h.old, h.new) for h in result.hand_overs):
        moved = [h for h in result.hand_overs if (h.old, h.new) == (old, new)]
        names = " ".join(str(h.partition) for h in sorted(moved))
        lines.append(
            f"    {clock(moved[0].at - started)}  {old} -> {new}: partitions {names} "
            f"({max(h.latency_s for h in moved):.1f}s at most)"
        )
    return "\n".join(textwrap.fill(line, width, subsequent_indent=" " * 6) for line in lines)


def clock(seconds: float) -> str:
    """Return a time like 01:23."""
    return f"{int(seconds) // 60:02d}:{int(seconds) % 60:02d}"


def _where(ranges: Mapping[int, list[range]]) -> str:
    """Return the names of the first offset ranges."""
    named = [f"{p}[{r.start}, {r.stop})" for p, rs in sorted(ranges.items()) for r in rs]
    if not named:
        return ""
    more = f" and {len(named) - 4} more ranges" if len(named) > 4 else ""
    return f"   {' '.join(named[:4])}{more}"
