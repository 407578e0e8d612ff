"""A client of Spark Connect reads, sees progress, and stops cleanly, without access to the driver's machine."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from integration.cluster import committed, lag, members, produce
from integration.pipelines import wait_for
from integration.spark_cluster import SPARK_HOME, connect_server, spark_environment
from integration.spark_fixtures import either_protocol
from pyspark_kafka_group.testing import Kafka
from tests.docs.blocks import run_by

# An idle query reports its progress every 10 s (spark.sql.streaming.noDataProgressEventInterval).  A stop must not wait
# for this report.
SOON_S = 8.0


@pytest.fixture(scope="module")
def warehouse(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("warehouse")


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory, warehouse: Path) -> Iterator[str]:
    """Yield the address of a Spark Connect server in a separate process."""
    with closing(connect_server(tmp_path_factory.mktemp("server"), f"spark.sql.warehouse.dir={warehouse}")) as server:
        yield "sc://" + server.wait_for_line(r"Spark Connect server started at: (\S+:\d+)")


class Client:
    """Runs the client step by step."""

    def __init__(self, address: str, config: Path) -> None:
        self._log = config.with_suffix(".log")
        with self._log.open("w") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "integration.connect_client", address, str(config)],
                cwd=Path(__file__).parents[1],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )

    def step(self, name: str) -> dict[str, Any]:
        """Return the output of the client's next step."""
        assert self._process.stdout is not None
        watchdog = threading.Timer(120, self._process.kill)
        watchdog.start()
        line = self._process.stdout.readline()
        watchdog.cancel()
        assert line, self._log.read_text()[-3000:]
        found = json.loads(line)
        assert found["step"] == name
        return dict(found)

    def go_on(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()

    def terminate(self) -> None:
        self._process.terminate()

    def wait(self) -> int:
        return self._process.wait(60)

    def close(self) -> None:
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            pipe.close()


@either_protocol
def test_a_remote_client_reads_and_stops_between_two_batches(
    address: str,
    kafka: Kafka,
    topic: Callable[..., str],
    group: str,
    options: dict[str, str],
    tmp_path: Path,
) -> None:
    name, servers = topic(2), kafka.bootstrap_servers
    rows, nap = tmp_path / "rows", tmp_path / "nap"
    rows.mkdir()
    batch = {key: options[key] for key in ("kafka.bootstrap.servers", "startingOffsets")} | {"subscribe": name}
    config = {"rows": str(rows), "nap": str(nap), "checkpoint": str(tmp_path / "checkpoint"), "batch": batch}
    file = tmp_path / "client.json"
    file.write_text(json.dumps({**config, "options": {**options, "subscribe": name}}))

    def written() -> list[Any]:
        return [tuple(row) for found in rows.glob("*.json") for row in json.loads(found.read_text())]

    known: set[str] = set()

    def begun() -> str:
        """Wait until one more batch attempt runs, and return its name."""
        found = wait_for(lambda: {file.stem for file in rows.glob("*.begun")} - known, "a batch begins")
        known.update(found)
        (attempt,) = found
        return str(attempt)

    def ended(attempt: str) -> None:
        wait_for((rows / f"{attempt}.ended").exists, "the batch ends")

    def all_committed(until: int) -> None:
        assert committed(servers, group, name, range(2)) == {0: until, 1: until}

    produce(servers, name, {0: 10, 1: 10})
    with closing(Client(address, file)) as client:
        assert client.step("batch read")["rows"] == 20
        client.go_on()
        client.step("started")
        ended(begun())
        # The next trigger is an hour away.  Without the listener of register(), the query would not commit before it.
        wait_for(lambda: not lag(servers, group, name, range(2)), "lag 0", timeout_s=60)
        client.go_on()
        seen = client.step("progress")
        assert seen["rows"] == 20
        latest = seen["source"]["latestOffset"]
        latest = json.loads(latest) if isinstance(latest, str) else latest
        assert latest["assigned"] == {name: {"0": 10, "1": 10}}
        client.go_on()
        stopped = client.step("stopped")
        assert (stopped["clean"], stopped["active"]) == (True, False)
        assert stopped["took_s"] < SOON_S

        # A signal during a batch.
        nap.touch()
        produce(servers, name, {0: 10, 1: 10}, start=10)
        client.go_on()
        client.step("again")
        begun()
        client.go_on()  # from now on, the client runs until a signal
        threading.Timer(1, client.terminate).start()
        threading.Timer(3, nap.unlink).start()
        stopped = client.step("stopped")
        assert (stopped["clean"], stopped["active"]) == (True, False)
        assert len(written()) == 40, "the batch was finished"
        all_committed(20)
        assert not members(servers, group)

        # After a restart with an unfinished batch, Spark's progress does not contain the source's control socket.
        nap.touch()
        produce(servers, name, {0: 10, 1: 10}, start=20)
        client.go_on()
        client.step("again")
        begun()
        client.go_on()
        client.step("interrupted")
        nap.unlink()
        client.go_on()
        client.step("replayed")
        ended(begun())
        assert len(written()) == 60
        client.go_on()
        stopped = client.step("stopped")
        assert (stopped["clean"], stopped["active"]) == (True, False)
        assert stopped["took_s"] < SOON_S
        client.go_on()
        assert client.wait() == 0
    all_committed(30)
    assert sorted(written()) == sorted((name, p, o) for p in range(2) for o in range(30))
    assert not members(servers, group)


@either_protocol
def test_a_declarative_pipeline_reads_what_is_new(
    address: str,
    warehouse: Path,
    kafka: Kafka,
    topic: Callable[..., str],
    group: str,
    protocol: str,
    tmp_path: Path,
) -> None:
    """Spark's own `spark-pipelines run` runs twice.  Each run resumes at the last commit."""
    name = topic(2)
    table = f"orders_{group.replace('-', '_')}"
    specification, program = run_by("integration/test_spark_connect.py")
    (tmp_path / "spark-pipeline.yml").write_text(specification.replace("file:///tmp", tmp_path.as_uri()))
    here = {
        "localhost:9092": kafka.bootstrap_servers,
        '"orders-pipeline")': f'"{group}").option("kafka.group.protocol", "{protocol}")',
        '"subscribe", "orders"': f'"subscribe", "{name}"',
        'name="orders"': f'name="{table}"',
    }
    for written, instead in here.items():
        assert written in program
        program = program.replace(written, instead)
    (tmp_path / "orders.py").write_text(program)

    def run() -> list[tuple[int, int]]:
        command = [str(SPARK_HOME / "bin" / "spark-pipelines"), "run", "--remote", address]
        ran = subprocess.run(
            [*command, "--spec", str(tmp_path / "spark-pipeline.yml")],
            cwd=tmp_path,
            env=spark_environment(tmp_path),
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert ran.returncode == 0, ran.stdout[-2000:] + ran.stderr[-2000:]
        assert committed(kafka.bootstrap_servers, group, name, range(2)) == dict.fromkeys(range(2), produced)
        files = [file for file in (warehouse / table).glob("*.parquet") if file.stat().st_size]
        found = [pq.ParquetFile(file).read(columns=["partition", "offset"]) for file in files]
        return sorted((row["partition"], row["offset"]) for one in found for row in one.to_pylist())

    for produced in (10, 20):
        produce(kafka.bootstrap_servers, name, {0: 10, 1: 10}, start=produced - 10)
        assert run() == [(p, o) for p in range(2) for o in range(produced)]
