"""Run a benchmark with ``python -m benchmarks NAME``, store its figures as JSON and print them as tables."""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from types import ModuleType
from typing import TextIO

from benchmarks import (
    batch,
    bounds,
    busy_start,
    commit,
    connections,
    database,
    decoding,
    fair,
    formats,
    group_size,
    hand_over,
    idle,
    kafka_to_kafka,
    lake,
    landing,
    latency,
    levers,
    members,
    memory,
    pages,
    planning,
    plots,
    profiles,
    scaling,
    sink,
    start,
    throughput,
    tls,
    where,
)
from benchmarks.machine import describe
from benchmarks.results import Result
from benchmarks.views import report

BENCHMARKS: dict[str, ModuleType] = {
    "throughput": throughput,
    "fair": fair,
    "levers": levers,
    "latency": latency,
    "kafka_to_kafka": kafka_to_kafka,
    "idle": idle,
    "planning": planning,
    "commit": commit,
    "start": start,
    "busy_start": busy_start,
    "scaling": scaling,
    "hand_over": hand_over,
    "members": members,
    "group_size": group_size,
    "connections": connections,
    "memory": memory,
    "decoding": decoding,
    "sink": sink,
    "batch": batch,
    "database": database,
    "lake": lake,
    "formats": formats,
    "tls": tls,
    "landing": landing,
    "where": where,
}
"""The benchmarks by their name on the command line.  Each has ``add_arguments``, ``QUICK`` and ``measure``."""

OUTPUT = Path("artifacts/benchmarks")

_INCOMPLETE = "incomplete: the run was ended early"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command of the command line and return the exit code."""
    args = _parser().parse_args(arguments)
    if args.command == "render":
        pages.publish(args.results)
        return 0
    if args.command == "bounds":
        bounds.store([Result.load(file) for file in args.files])
        return 0
    if args.command == "check":
        return check(args.names, args.output)
    if args.command == "profile":
        if unknown := set(args.names) - profiles.PROFILES.keys():
            raise SystemExit(f"there is no profile {', '.join(sorted(unknown))}, only {', '.join(profiles.PROFILES)}")
        for name in args.names or profiles.PROFILES:
            print(f"flame graph: {profiles.record(name, args.output, print)}")
        return 0
    if args.command == "show":
        for file in args.files:
            print(report(Result.load(file)), end="\n\n")
        return 0
    if args.quick:
        vars(args).update(BENCHMARKS[args.command].QUICK)
    run(args.command, args)
    return 0


def check(names: Sequence[str], output: Path) -> int:
    """Run benchmarks in a short form, and return 1 if a ratio misses its bound."""
    stored, missed = bounds.load(), []
    if unknown := set(names) - stored.keys():
        raise SystemExit(f"{bounds.FILE} has no bounds of {', '.join(sorted(unknown))}, only of {', '.join(stored)}")
    for name in names or stored:
        args = _parser().parse_args([name, "--output", str(output)])
        vars(args).update(bounds.SHORT[name])
        verdicts = bounds.judge(run(name, args), stored[name])
        missed += [f"{name}: {verdict}" for verdict in verdicts if not verdict.good]
        print(bounds.table(name, verdicts).text(), end="\n\n")
    print("\n".join(missed) if missed else "All ratios are within their bounds.")
    return 1 if missed else 0


def run(name: str, args: argparse.Namespace) -> Result:
    """Run one benchmark, and store and print its results, even if the run ends early."""
    begin = time.monotonic()
    args.output.mkdir(parents=True, exist_ok=True)
    log = args.output / f"{name}.log"
    known = {"command", "output", "quick"}
    result = Result(
        benchmark=name,
        quick=args.quick,
        taken=datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        machine=describe(),
        settings={key: value for key, value in vars(args).items() if key not in known},
    )
    result.notes.append(_INCOMPLETE)
    try:
        with _stderr_into(log) as terminal:

            def say(line: str) -> None:
                print(f"{time.monotonic() - begin:6.1f} s  {line}", file=terminal, flush=True)
                if result.cells:
                    result.save(args.output)  # a run takes minutes, and a user may kill it

            say(f"what Spark and its processes say goes to {log}")
            BENCHMARKS[name].measure(args, result, say)
        result.notes.remove(_INCOMPLETE)
    finally:
        result.settings["took_s"] = round(time.monotonic() - begin)
        if result.cells:
            file = result.save(args.output)
            print(report(result), end="\n\n")
            print(f"figures: {file}")
            print(f"plot: {plots.draw(result, args.output)}")
    return result


@contextmanager
def _stderr_into(log: Path) -> Iterator[TextIO]:
    """Redirect standard error of this process and its children to a file, and yield the former standard error."""
    sys.stderr.flush()
    before = os.dup(2)
    with log.open("wb") as file, open(os.dup(2), "w", encoding="utf-8") as terminal:
        os.dup2(file.fileno(), 2)
        try:
            yield terminal
        finally:
            sys.stderr.flush()
            os.dup2(before, 2)
            os.close(before)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    for name, module in BENCHMARKS.items():
        text = (module.__doc__ or "").partition("\n")[0]
        command = commands.add_parser(name, help=text, description=module.__doc__)
        command.add_argument("--quick", action="store_true", help="only try the harness: its figures mean nothing")
        command.add_argument("--output", type=Path, default=OUTPUT, help="folder for the results (%(default)s)")
        module.add_arguments(command)
    show = commands.add_parser("show", help="print stored results as tables")
    show.add_argument("files", type=Path, nargs="+")
    profile = commands.add_parser("profile", help="draw flame graphs of this project's processes with py-spy")
    profile.add_argument("names", nargs="*", metavar="NAME", help="(default: all)")
    profile.add_argument("--output", type=Path, default=OUTPUT, help="folder for the flame graphs (%(default)s)")
    short = commands.add_parser("check", help="run short forms, and fail if a ratio misses its bound in bounds.json")
    short.add_argument("names", nargs="*", metavar="NAME", help="(default: all)")
    short.add_argument("--output", type=Path, default=OUTPUT / "check", help="folder for the results (%(default)s)")
    new = commands.add_parser("bounds", help="set the bounds in bounds.json by stored results")
    new.add_argument("files", type=Path, nargs="+")
    render = commands.add_parser("render", help="write the tables of stored results into benchmarks/README.md")
    render.add_argument("results", type=Path, nargs="*", help="JSON files to keep first; none: those kept already")
    return parser


if __name__ == "__main__":
    sys.exit(main())
