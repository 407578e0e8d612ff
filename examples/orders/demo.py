"""Show the main job: Spark applications that share one Kafka consumer group, joining and leaving while data flows.

    python examples/orders/demo.py --help

The timeline lives here; what the applications do is in `pipeline.py`.
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

from pyspark_kafka_group.testing import BrokerError, ExistingKafka, Kafka, LocalKafka, MockKafka

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
    """Bring up the broker that was asked for, or reach the cluster of the user's."""
    if args.bootstrap_servers:
        return ExistingKafka(args.bootstrap_servers).start()
    if args.broker == "mock":
        print(textwrap.fill(MOCK_LIMITS, shutil.get_terminal_size().columns))
    broker: Kafka = MockKafka() if args.broker == "mock" else LocalKafka()
    cleanup.callback(broker.stop)  # first: a start that is interrupted leaves something to stop, too
    print("Starting Kafka ...", flush=True)
    return broker.start()


def play(args: argparse.Namespace, cleanup: ExitStack) -> tuple[Audit, str]:
    """Set up, run, audit; `cleanup` gets whatever has to be undone. Return the verdict and its text."""
    with signals_held():
        directory = Path(tempfile.mkdtemp(prefix="orders-demo-"))
        if args.keep:
            cleanup.callback(print, f"Kept: {directory}")
        else:
            cleanup.callback(shutil.rmtree, directory, ignore_errors=True)
    broker = start_broker(args, cleanup)
    plain = args.plain or not sys.stdout.isatty()
    screen = PlainScreen() if plain else LiveScreen(Console())
    stage = Stage(args, broker, directory, screen)
    cleanup.callback(stage.close)
    stage.create_topic()
    cleanup.callback(screen.close)
    screen.start()
    result = run(stage, args.seconds / 3)
    return result, report(result, stage.started, shutil.get_terminal_size((120, 24)).columns)


def main() -> int:
    """Run the demo; 0 only if the audit found nothing lost, doubled or out of order."""
    args = parse()
    interrupt_on_signals()
    cleanup = ExitStack()
    try:
        result, text = play(args, cleanup)
    except KeyboardInterrupt:
        text, code = "Interrupted; stopping everything ...", 130
    except (DemoError, BrokerError) as error:
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
