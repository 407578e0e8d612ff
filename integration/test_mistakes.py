"""What a user sees after a typical mistake: the last line is one sentence with the cause and the remedy."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest
from confluent_kafka import Consumer

from integration.mistakes import BEGIN, END, SPARK_CHECKPOINT
from integration.pipelines import SMALL
from pyspark_kafka_group.testing import Kafka, LocalKafka

_LONGEST_S = 540.0


class Seen(NamedTuple):
    """What one mistake printed, and how it ended."""

    lines: list[str]
    seconds: float
    code: str

    @property
    def last(self) -> str:
        """The last line with text."""
        return next((line for line in reversed(self.lines) if line.strip()), "")


def seen_after(output: str) -> dict[str, Seen]:
    """Return what was printed by the name of the mistake."""
    found: dict[str, Seen] = {}
    for part in output.split(BEGIN)[1:]:
        name, _, rest = part.partition("\n")
        text, _, end = rest.partition(END)
        ended = json.loads(end.splitlines()[0])
        found[name.strip()] = Seen(text.splitlines(), ended["seconds"], ended["code"])
    return found


@contextmanager
def eager_consumer(kafka: Kafka, topic: str) -> Iterator[None]:
    """Keep a consumer with librdkafka's default assignor in the group ``eager``."""
    settings = {"bootstrap.servers": kafka.bootstrap_servers, "group.id": "eager", "client.id": "old-consumer"}
    consumer = Consumer(settings)
    assigned, stop = threading.Event(), threading.Event()
    consumer.subscribe([topic], on_assign=lambda *_: assigned.set())

    def poll() -> None:
        while not stop.is_set():
            consumer.poll(0.1)

    thread = threading.Thread(target=poll)
    thread.start()
    try:
        assert assigned.wait(60)
        yield
    finally:
        stop.set()
        thread.join()
        consumer.close()


EXPECTED = {
    "a typing mistake in an option": r"Did you mean 'startingOffsets'\?",
    "no group": r"the query ended: Option 'kafka\.group\.id': ",
    "a closed port": r"no broker of '127\.0\.0\.1:9' answered within 30 s \(Connection refused\)\. Check ",
    "an unknown host": r"no name server knows a host of 'no-such-host\.invalid:9092'\. Correct the name",
    "no such topic": r"the query ended: .*ordres\. Did you mean 'orders'\?",
    "a wrong format": r"""Spark knows no format 'kafkagroup'\. Write format\("kafka-group"\)\.""",
    "a property of Java's client": r"Option 'kafka\.max\.poll\.records': .*maxOffsetsPerTrigger",
    "no number": r"Option 'maxOffsetsPerTrigger': 'many' is not a positive whole number\. Write ",
    "a wrong password": r"the query ended: .*refuses the credentials.*kafka\.sasl\.",
    "a login where none is": r"the query ended: .*expects no login at this port",
    "a typing mistake in a property": r"Did you mean 'kafka\.session\.timeout\.ms'\?",
    "a group of an eager consumer": r"'eager'.*\(old-consumer at 127\.0\.0\.1, with the assignor 'range'\)",
    SPARK_CHECKPOINT: r"of Spark's own source.*kafka-group import-checkpoint",
    "a value that is no JSON": r"the query ended: .*orders-0.*offset 1",
    "no such target topic": r"the query ended: .*shouted",
}


@pytest.mark.timeout(600)
def test_the_last_line_after_a_mistake_says_what_it_was(tmp_path: Path) -> None:
    """To see only some of them, name them in the variable ``MISTAKES``."""
    with LocalKafka(sasl_users={"etl": "right"}) as kafka:
        kafka.create_topic("orders", 2)
        kafka.produce("orders", ['{"id": 1}', "{not JSON"], partition=0)
        with eager_consumer(kafka, "orders"):
            command = [sys.executable, "-m", "integration.mistakes", kafka.bootstrap_servers]
            ran = subprocess.run(
                [*command, kafka.secured_bootstrap_servers, "orders", str(tmp_path), *_chosen()],
                cwd=Path(__file__).parents[1],
                env={**os.environ, "SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_SUBMIT_ARGS": SMALL},
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                check=False,
                timeout=_LONGEST_S,
            )
    assert ran.returncode == 0, ran.stdout[-6000:]
    found = seen_after(ran.stdout)
    for name, seen in found.items():
        print(f"{name}: {seen.seconds} s, {len(seen.lines)} lines, exit code {seen.code}\n    {seen.last}")
    assert found.keys() == {*(_chosen() or EXPECTED)}
    assert {name for name, seen in found.items() if seen.code != "1"} == set()
    others = {name for name, seen in found.items() if not re.search(f"^kafka-group: .*{EXPECTED[name]}", seen.last)}
    assert others == set()
    assert {name for name, seen in found.items() if seen.seconds > 60} == set()
    waited = found.get("a closed port")
    assert waited is None or "Trying for 30 s" in "\n".join(waited.lines)


def test_a_python_without_the_package_is_named(tmp_path: Path) -> None:
    """Regression: outside of its active environment, a program only got DATA_SOURCE_NOT_FOUND, in 195 lines."""
    (tmp_path / "python3").symlink_to(getattr(sys, "_base_executable", sys.executable))
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYSPARK")}
    ran = subprocess.run(
        [
            sys.executable,
            "-m",
            "integration.mistakes",
            "127.0.0.1:9",
            "127.0.0.1:9",
            "orders",
            str(tmp_path),
            "no number",
        ],
        cwd=Path(__file__).parents[1],
        env={**environment, "SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_SUBMIT_ARGS": SMALL}
        | {"PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        timeout=120,
    )
    (seen,) = seen_after(ran.stdout).values()
    assert "the Python that Spark starts (python3) does not have the package pyspark-kafka-group" in seen.last, (
        ran.stdout
    )
    assert f"PYSPARK_PYTHON={sys.executable}" in seen.last


def _chosen() -> list[str]:
    return [name for name in re.split(", *", os.environ.get("MISTAKES", "")) if name]
