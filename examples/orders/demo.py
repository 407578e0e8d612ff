"""Show the main job: Spark applications that share one Kafka consumer group, joining and leaving while data flows.

    python examples/orders/demo.py --help

With `--cluster` they run on a standalone Spark cluster, one machine of which dies.
This file has the timeline.  The job of the applications is in `pipeline.py`.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import textwrap
from contextlib import ExitStack
from pathlib import Path

from apps import interrupt_on_signals, signals_held
from audit import Audit, audit
from rich.console import Console
from sink import rows_of
from stage import DemoError, Stage
from view import LiveScreen, PlainScreen, report

from cluster import Cluster, ClusterError
from pyspark_kafka_group.testing import ExistingKafka, Kafka, KafkaTestingError, LocalKafka, MockKafka

MOCK_LIMITS = (
    "MockKafka is no real broker. It cannot show Kafka's own view of the members (ownership comes from the event logs "
    "of the applications instead), nor the transactional commit (commitMode=plain instead), and it keeps only the "
    "newest 5 MB of each partition. For the real thing: --broker local."
)


def run(stage: Stage, steady_s: float) -> Audit:
    """Play the timeline and audit the sink."""
    stage.start_application("etl-1")
    stage.start_application("etl-2")
    stage.wait("two applications start", lambda: stage.all_own("etl-1", "etl-2"))
    stage.start_producer()
    stage.stay("two applications share the group", steady_s)
    stage.start_application("etl-3")
    stage.wait("a third one joins", lambda: stage.all_own("etl-1", "etl-2", "etl-3"))
    stage.stay("three applications", steady_s)
    stage.stop_application("etl-1")
    stage.wait("the first one leaves", lambda: stage.gone("etl-1") and stage.all_own("etl-2", "etl-3"))
    stage.stay("two applications go on", steady_s)
    stage.stop_producer()
    stage.wait("the producer has stopped, the rest drains", lambda: stage.watch.latest.total_lag == 0)
    for name in ("etl-2", "etl-3"):
        stage.stop_application(name)
    stage.wait("all stop", lambda: stage.gone("etl-2") and stage.gone("etl-3"))
    return audited(stage)


def run_on_cluster(stage: Stage, steady_s: float, cluster: Cluster) -> Audit:
    """Play the timeline of `--cluster`: one of two machines dies while three applications share the group."""
    names = ("etl-1", "etl-2", "etl-3")
    for name in names:
        stage.start_application(name)
    stage.wait("three applications start", lambda: stage.all_own(*names))
    stage.start_producer()
    stage.wait("the first orders arrive", stage.all_commit())
    stage.stay("three applications on two workers", steady_s)
    lost, kept = cluster.workers
    running = cluster.executors(lost)
    cluster.kill(lost)
    stage.note(f"kill -9: {lost} and its executors ({running})")
    committed = stage.all_commit()
    stage.wait("one worker takes over", lambda: cluster.executors(kept) == len(names))
    stage.note(f"{kept} has an executor for each application")
    stage.wait("one worker goes on", committed)
    stage.stay("three applications on one worker", steady_s)
    stage.stop_producer()
    stage.wait("the producer has stopped, the rest drains", lambda: stage.watch.latest.total_lag == 0)
    for name in names:
        stage.stop_application(name)
    stage.wait("all stop", lambda: all(map(stage.gone, names)))
    return audited(stage)


def audited(stage: Stage) -> Audit:
    """Compare the produced records with the rows in the sinks."""
    stage.phase = "audit"
    stage.tick()
    rows = (row for name in stage.applications for row in rows_of(stage.sink(name), name))
    return audit(stage.produced(), rows)


def parse(argv: list[str] | None = None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        description="Spark applications that share one Kafka consumer group: start, join, leave, audit."
    )
    parser.add_argument(
        "--broker",
        choices=["local", "mock"],
        default="local",
        help="local: a real Kafka on this machine (default); mock: librdkafka's imitation, works offline",
    )
    parser.add_argument("--bootstrap-servers", help="use this Kafka cluster instead; a topic and a group are made")
    parser.add_argument("--cluster", action="store_true", help="a standalone Spark cluster, one worker of which dies")
    parser.add_argument("--protocol", choices=["consumer", "classic"], default="consumer", help="group protocol")
    parser.add_argument("--seconds", type=float, default=45, help="steady running, without starts and stops (45)")
    parser.add_argument("--rate", type=int, default=2_000, help="order events per second (2000)")
    parser.add_argument("--partitions", type=int, default=12, help="partitions of the topic (12)")
    parser.add_argument("--keep", action="store_true", help="keep the Parquet files, checkpoints and logs")
    parser.add_argument("--plain", action="store_true", help="plain lines, also on a terminal")
    args = parser.parse_args(argv)
    if args.partitions < 3:
        parser.error("--partitions: three applications need at least 3")
    if args.rate < 1 or args.seconds <= 0:
        parser.error("--rate and --seconds must be positive")
    return args


def start_broker(args: argparse.Namespace, cleanup: ExitStack) -> Kafka:
    """Start the chosen broker, or connect to the user's cluster."""
    if args.bootstrap_servers:
        return ExistingKafka(args.bootstrap_servers).start()
    if args.broker == "mock":
        print(textwrap.fill(MOCK_LIMITS, shutil.get_terminal_size().columns))
    broker: Kafka = MockKafka() if args.broker == "mock" else LocalKafka()
    cleanup.callback(broker.stop)  # before the start, because an interrupted start also needs it
    print("Starting Kafka ...", flush=True)
    return broker.start()


def play(args: argparse.Namespace, cleanup: ExitStack) -> tuple[Audit, str]:
    """Set up, run and audit. `cleanup` collects the steps to undo. Return the verdict and its text."""
    with signals_held():
        directory = Path(tempfile.mkdtemp(prefix="orders-demo-"))
        if args.keep:
            cleanup.callback(print, f"Kept: {directory}")
        else:
            cleanup.callback(shutil.rmtree, directory, ignore_errors=True)
    broker = start_broker(args, cleanup)
    plain = args.plain or not sys.stdout.isatty()
    screen = PlainScreen() if plain else LiveScreen(Console())
    cluster = Cluster(directory)
    if args.cluster:
        cleanup.callback(cluster.close)
        print("Starting a Spark master and two workers ...", flush=True)
        cluster.start(2)
    stage = Stage(args, broker, directory, screen, cluster.url or "local[1]")
    cleanup.callback(stage.close)
    stage.create_topic()
    cleanup.callback(screen.close)
    screen.start()
    result = run_on_cluster(stage, args.seconds / 2, cluster) if args.cluster else run(stage, args.seconds / 3)
    text = report(result, stage.started, shutil.get_terminal_size((120, 24)).columns)
    if args.cluster:
        text += f"\n  replayed    {stage.replayed:>9,}   of batches that Spark ran again as a whole"
    return result, text


def main() -> int:
    """Run the demo. Return 0 only if the audit found nothing lost, doubled or out of order."""
    args = parse()
    interrupt_on_signals()
    cleanup = ExitStack()
    try:
        result, text = play(args, cleanup)
    except KeyboardInterrupt:
        text, code = "Interrupted; stopping everything ...", 130
    except (DemoError, ClusterError, KafkaTestingError) as error:
        text, code = f"The demo failed: {error}", 1
    else:
        verdict = f"lost={result.lost} duplicated={result.duplicated}"
        text, code = f"{text}\n\n{'PASSED' if result.passed else 'FAILED'}: {verdict}", 0 if result.passed else 1
    with signals_held(drop=True):
        print(text, flush=True)
        cleanup.close()
    return code


if __name__ == "__main__":
    sys.exit(main())
