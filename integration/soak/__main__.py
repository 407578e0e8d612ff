"""``python -m integration.soak``: see its README."""

from __future__ import annotations

import argparse
import random
import signal
import sys
from pathlib import Path

from integration.arguments import new_folder
from integration.landing_tables import FORMATS
from integration.report import shown
from integration.soak.chaos import DRAWN
from integration.soak.run import Soak, run


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m integration.soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=30.0, help="how long faults are done (%(default)g)")
    parser.add_argument("--applications", type=int, default=4, help="how many Spark applications (%(default)d)")
    parser.add_argument("--brokers", type=int, choices=(1, 3), default=1, help="how many brokers (%(default)d)")
    parser.add_argument("--protocol", choices=("classic", "consumer"), default="classic", help="of the group")
    parser.add_argument("--proxied", action="store_true", help="disturb the network, too")
    parser.add_argument("--spark-cluster", action="store_true", help="run on a standalone Spark cluster, and hurt it")
    parser.add_argument("--lake", action="store_true", help="also fill a Delta or Iceberg table, each record once")
    parser.add_argument("--landing", choices=FORMATS, default="", help="land in such a table, each record once")
    parser.add_argument("--seed", type=int, help="decides the faults; random unless given")
    parser.add_argument("--fault-interval", type=float, default=10.0, help="seconds between faults (%(default)g)")
    parser.add_argument("--only", action="append", choices=DRAWN, default=[], help="a kind of fault; give it again")
    parser.add_argument(
        "--coordinator-away", type=float, default=0.0, metavar="MINUTES", help="keep a coordinator away"
    )
    parser.add_argument("--per-second", type=float, default=300.0, help="records produced (%(default)g)")
    parser.add_argument("--report", type=Path, help="where to write the report as JSON")
    parser.add_argument("--folder", type=new_folder, help="a new folder that keeps event logs, logs and sinks")
    given = parser.parse_args()
    if given.coordinator_away and given.brokers == 1:
        parser.error("--coordinator-away needs --brokers 3: one broker coordinates everything")
    if (given.lake or given.landing) and given.spark_cluster:
        parser.error("--lake and --landing are for applications in local mode: leave --spark-cluster out")
    # SIGTERM must also end the applications.  An exception runs all cleanup code.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("terminated"))
    seed = given.seed if given.seed is not None else random.randrange(10**6)
    print(f"seed {seed}", flush=True)
    report = run(
        Soak(
            seed=seed,
            seconds=60 * given.minutes,
            applications=given.applications,
            brokers=given.brokers,
            protocol=given.protocol,
            proxied=given.proxied,
            spark_cluster=given.spark_cluster,
            lake=given.lake,
            landing=given.landing,
            fault_interval_s=given.fault_interval,
            only=given.only,
            coordinator_away_s=60 * given.coordinator_away,
            per_second=given.per_second,
            folder=given.folder,
        ),
        lambda line: print(line, flush=True),
    )
    return shown(report, given.report)


if __name__ == "__main__":
    sys.exit(main())
