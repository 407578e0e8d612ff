"""Everything that the demo starts, stops and watches. `demo.py` decides the order."""

from __future__ import annotations

import json
import time
import uuid
from argparse import Namespace
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

from apps import Program, python_program, signals_held, spark_application
from view import Frame, Line, Screen
from watch import EventLogs, KafkaWatch, Owners, Snapshot

from pyspark_kafka_group.testing import ExistingKafka, Kafka, MockKafka

TICK_S = 0.25
RATE_WINDOW_S = 4.0
# Two Spark applications start within half a minute on two idle cores. A busy machine needs more.
PATIENCE_S = 240.0
# A clean stop takes a few seconds: it waits for the running batch, hands over and leaves. If the broker also ends, no
# other application takes over, and the user who pressed Ctrl-C need not wait that long.
GRACE_S = 20.0
SHORT_GRACE_S = 4.0


class DemoError(Exception):
    """The demo cannot continue. The text explains why."""


class Stage:
    """One run of the demo, without its timeline."""

    def __init__(
        self, args: Namespace, broker: Kafka, directory: Path, screen: Screen, master: str = "local[1]"
    ) -> None:
        self.args = args
        self.broker = broker
        self.servers = broker.bootstrap_servers
        self.directory = directory
        self.screen = screen
        self.master = master
        self.replayed = 0
        self.topic = f"orders-{uuid.uuid4().hex[:8]}"
        self.group = f"{self.topic}-etl"
        self.receipts = directory / "produced.json"
        self.producer: Program | None = None
        self.applications: dict[str, Program] = {}
        self.leaving: set[str] = set()
        self.event_logs = EventLogs()
        self.owners = Owners()
        self.history: deque[tuple[Snapshot, dict[str, int]]] = deque()
        self.delivered_by: dict[str, int] = {}
        self.started = time.time()
        self.phase = ""
        self.watch = KafkaWatch(
            self.servers,
            self.group,
            self.topic,
            args.partitions,
            describes_groups=not isinstance(broker, MockKafka),
        )

    # Waiting

    def wait(self, phase: str, condition: Callable[[], bool]) -> None:
        """Wait until the condition holds. End the demo with an error if it does not hold in time."""
        self.phase = phase
        deadline = time.monotonic() + PATIENCE_S
        while not condition():
            if time.monotonic() > deadline:
                self.give_up(f"'{phase}' did not come to its end within {PATIENCE_S:.0f} s", *self.applications)
            self.tick()

    def stay(self, phase: str, seconds: float) -> None:
        """Let the demo run for some seconds."""
        self.phase = phase
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            self.tick()

    # Starting and stopping

    def create_topic(self) -> None:
        """Create the topic, under a name that no other program uses."""
        self.broker.create_topic(self.topic, self.args.partitions)
        self.watch.start()

    def start_producer(self) -> None:
        """Start the stream of orders, which flows until `stop_producer`."""
        arguments = [
            f"--bootstrap-servers={self.servers}",
            f"--topic={self.topic}",
            f"--rate={self.args.rate}",
            f"--receipts={self.receipts}",
        ]
        with signals_held():
            self.producer = python_program("producer", "producer.py", arguments, self.directory)
        self.note(f"orders flow, {self.args.rate:,} a second")

    def stop_producer(self) -> None:
        """End the stream, and wait until Kafka has acknowledged all events."""
        producer = self.producer
        assert producer is not None
        producer.ask_to_stop()
        self.producer = None
        deadline = time.monotonic() + PATIENCE_S
        while producer.returncode is None and time.monotonic() < deadline:
            time.sleep(0.05)
        if producer.returncode != 0:
            raise DemoError(f"the producer failed:\n{producer.log_tail()}")
        # A lag of 0 has a meaning only after the watch has seen the last record.
        total = sum(map(len, self.produced().values()))
        self.wait("the producer stops", lambda: sum(self.watch.latest.ends.values()) >= total)

    def start_application(self, name: str) -> None:
        """Start one more copy of the pipeline."""
        home = self.directory / name
        home.mkdir()
        event_log = home / "events.jsonl"
        self.event_logs.add(name, event_log)
        options = {
            "kafka.group.protocol": self.args.protocol,
            "maxOffsetsPerTrigger": str(4 * self.args.rate),
            "eventLog": str(event_log),
        }
        if isinstance(self.broker, MockKafka):
            options["commitMode"] = "plain"  # the mock accepts transactions, but forgets their offsets
        arguments = [
            f"--bootstrap-servers={self.servers}",
            f"--topic={self.topic}",
            f"--group={self.group}",
            f"--output={self.sink(name)}",
            f"--checkpoint={home / 'checkpoint'}",
        ]
        with signals_held():
            self.applications[name] = spark_application(name, arguments, options, home, self.master)
        self.note(f"{name} starts")

    def stop_application(self, name: str) -> None:
        """Ask one application to stop, without waiting for it."""
        self.leaving.add(name)
        self.applications[name].ask_to_stop()
        self.note(f"{name} is asked to stop")

    def close(self) -> None:
        """End all processes in any state of the demo, and delete the topic on a user's cluster."""
        everything = [*self.applications.values(), *([self.producer] if self.producer else [])]
        for program in everything:
            program.ask_to_stop()
        deadline = time.monotonic() + (GRACE_S if isinstance(self.broker, ExistingKafka) else SHORT_GRACE_S)
        for program in everything:
            program.end(max(0.0, deadline - time.monotonic()))
        self.watch.close()
        if isinstance(self.broker, ExistingKafka) and not self.args.keep:
            self.broker.delete_topic(self.topic)  # Kafka then soon deletes the group, which has no other offsets

    # Watching

    def all_own(self, *names: str) -> bool:
        """Whether these applications, and no others, own all partitions, each at least one."""
        owners = self.current_owners()
        return len(owners) == self.args.partitions and set(owners.values()) == set(names)

    def all_commit(self) -> Callable[[], bool]:
        """Return a function that checks whether the group has committed in every partition since this call."""
        before = dict(self.watch.latest.committed)

        def gone_on() -> bool:
            now = self.watch.latest.committed
            return all(now.get(p, 0) > before.get(p, 0) for p in range(self.args.partitions))

        return gone_on

    def gone(self, name: str) -> bool:
        """Whether the application's process has ended."""
        return self.applications[name].returncode is not None

    def sink(self, name: str) -> Path:
        """Return the folder to which an application writes."""
        return self.directory / name / "orders"

    def produced(self) -> dict[int, range]:
        """Return the offsets that Kafka has acknowledged to the producer."""
        if not self.receipts.exists():
            return {}
        content = json.loads(self.receipts.read_text(encoding="utf-8"))
        if content["failed"]:
            raise DemoError(f"Kafka refused events of the producer: {content['failed'][0]}")
        return {int(p): range(seen["start"], seen["stop"]) for p, seen in content["partitions"].items()}

    def current_owners(self) -> dict[int, str]:
        """Return the owner of each partition, as Kafka reports it, or else as the applications report it."""
        by_kafka = self.watch.latest.owners
        if by_kafka is None:
            return dict(self.owners.now)
        names = sorted(self.applications, key=len, reverse=True)
        return {
            partition: next((name for name in names if client.startswith(name)), client)
            for partition, client in by_kafka.items()
        }

    def tick(self) -> None:
        """Poll, show the state, and stop the demo if a process has failed."""
        now = time.time()
        for name, event in self.event_logs.new_events(now):
            self.owners.apply(name, event)
            if event["event"] == "replayed":
                self.replayed += sum(until - start for start, until in event["ranges"].values())
        for moved in self.owners.hand_overs(now):
            numbers = " ".join(map(str, moved.partitions))
            self.note(f"{moved.old} -> {moved.new}: partitions {numbers} in {moved.seconds:.1f} s")
        self.remember(self.watch.latest)
        self.screen.show(self.frame())
        for name, program in self.applications.items():
            if program.returncode is not None and (name not in self.leaving or program.returncode != 0):
                self.give_up(f"{name} ended by itself with exit code {program.returncode}", name)
        if self.producer is not None and self.producer.returncode is not None:
            raise DemoError(f"the producer ended by itself:\n{self.producer.log_tail()}")
        time.sleep(TICK_S)

    def remember(self, snapshot: Snapshot) -> None:
        """Keep a few seconds of history for the rates. Progress counts for the owner at that time."""
        if self.history and self.history[-1][0] is snapshot:
            return
        if self.history:
            before = self.history[-1][0]
            for partition, owner in self.current_owners().items():
                done = snapshot.committed.get(partition, 0) - before.committed.get(partition, 0)
                self.delivered_by[owner] = self.delivered_by.get(owner, 0) + done
        self.history.append((snapshot, dict(self.delivered_by)))
        while self.history[0][0].at < snapshot.at - RATE_WINDOW_S:
            self.history.popleft()

    def frame(self) -> Frame:
        """Return the state to show now."""
        (old, old_by), (new, new_by) = self.history[0], self.history[-1]
        seconds = max(new.at - old.at, 1e-9)
        owners = self.current_owners()
        lines = [
            Line(
                name=name,
                state=self.state(name, owners),
                rows_per_s=(new_by.get(name, 0) - old_by.get(name, 0)) / seconds,
                partitions={p: new.lag(p) for p, owner in owners.items() if owner == name},
            )
            for name in self.applications
        ]
        return Frame(
            seconds=time.time() - self.started,
            phase=self.phase,
            applications=lines,
            unowned=[p for p in range(self.args.partitions) if p not in owners],
            produced=sum(new.ends.values()),
            produced_per_s=(sum(new.ends.values()) - sum(old.ends.values())) / seconds,
            committed=sum(new.committed.values()),
            committed_per_s=(sum(new.committed.values()) - sum(old.committed.values())) / seconds,
            lag=new.total_lag,
            problem=self.watch.problem,
        )

    def state(self, name: str, owners: dict[int, str]) -> str:
        """Return one word for the state of an application."""
        if self.gone(name):
            return "gone"
        if name in self.leaving:
            return "leaving"
        return "running" if name in owners.values() else "starting"

    def note(self, text: str) -> None:
        """Show that something has happened."""
        self.screen.note(time.time() - self.started, text)

    def give_up(self, why: str, *names: str) -> NoReturn:
        """End the demo with the ends of the logs of these applications."""
        tails = [f"--- last lines of {name} ---\n{self.applications[name].log_tail()}" for name in names]
        raise DemoError("\n".join([why, *tails]))
