"""Whether processes survive broker restarts: ``python -m integration.restarts``, see ``docs/testing.md``.

With ``--queries`` these are Spark applications whose queries share a group; otherwise processes that describe a group
and read its offsets many times a second.
"""

from __future__ import annotations

import argparse
import random
import signal
import sys

from integration.arguments import new_folder
from integration.restarts import describing, queries


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m integration.restarts", description=__doc__)
    parser.add_argument("--restarts", type=int, default=10, help="how many (%(default)d)")
    parser.add_argument("--brokers", type=int, choices=(1, 3), default=1, help="restarted in turn (%(default)d)")
    some = parser.add_argument_group("without --queries")
    some.add_argument("--ask", choices=sorted(describing.WAYS), default="own", help="how to ask (%(default)s)")
    some.add_argument("--processes", type=int, default=5, help="how many ask (%(default)d)")
    some.add_argument("--per-second", type=float, default=20.0, help="how often each (%(default)g)")
    whole = parser.add_argument_group("whole queries")
    whole.add_argument("--queries", type=int, default=0, help="how many Spark applications, each with one query")
    whole.add_argument("--protocol", choices=("classic", "consumer"), default="classic", help="of the group")
    whole.add_argument("--seed", type=int, help="decides what is done to queries; random unless given")
    whole.add_argument("--folder", type=new_folder, help="a new folder that keeps event logs, logs and sinks")
    text = "send SIGABRT to one source process and tell nobody: the run must fail"
    whole.add_argument("--abort-one", action="store_true", help=text)
    given = parser.parse_args()
    # Whoever ends the run ends its applications, too: an exception passes through all that cleans up.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("terminated"))
    return _queries(given) if given.queries else _describing(given)


def _say(line: str) -> None:
    print(line, flush=True)


def _describing(given: argparse.Namespace) -> int:
    outcome = describing.run(
        way=given.ask,
        processes=given.processes,
        restarts=given.restarts,
        per_second=given.per_second,
        brokers=given.brokers,
        say=_say,
    )
    print(f"{outcome.answers} answers, {outcome.failures} calls to be tried again")
    print(f"answered again by all after the last restart: {'yes' if outcome.answered_after_restarts else 'NO'}")
    print(f"processes that died of a signal: {len(outcome.signals)} {' '.join(outcome.signals)}")
    return 1 if any(outcome.exits) or not outcome.answered_after_restarts else 0


def _queries(given: argparse.Namespace) -> int:
    seed = given.seed if given.seed is not None else random.randrange(10**6)
    _say(f"seed {seed}")
    outcome = queries.run(
        queries.Run(
            seed=seed,
            queries=given.queries,
            restarts=given.restarts,
            brokers=given.brokers,
            protocol=given.protocol,
            abort_one=given.abort_one,
            folder=given.folder,
        ),
        _say,
    )
    print(f"applications were started {outcome.starts} times; done to them: {_counted(outcome.actions)}")
    print(f"source processes ended: {_counted(outcome.source_ends)}")
    found = outcome.deliveries
    print(f"{found.produced} records, {found.delivered} delivered, {found.duplicated} of them twice and declared")
    print(f"violations: {len(outcome.violations)}")
    for line in outcome.violations:
        print(f"  {line}")
    return 1 if outcome.violations else 0


def _counted(counts: dict[str, int]) -> str:
    return ", ".join(f"{count} {kind}" for kind, count in sorted(counts.items())) or "nothing"


if __name__ == "__main__":
    sys.exit(main())
