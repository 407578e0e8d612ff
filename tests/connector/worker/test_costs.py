"""A worker acknowledges data at once, keeps modules out of garbage collection, and spares Spark's zips."""

from __future__ import annotations

import importlib
import os
import pickle
import socket
import struct
import subprocess
import sys
import zipfile
import zipimport
from collections.abc import Iterator
from pathlib import Path

import pytest

from pyspark_kafka_group.worker.costs import SentToWorkers, acknowledge, spare_zips

ROUNDS = 12

needs_linux = pytest.mark.skipif(sys.platform != "linux", reason="only Linux lets a program acknowledge")


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        socket.create_connection(server.getsockname()) as jvm,
        server.accept()[0] as worker,
    ):
        yield jvm, worker


class Reader(SentToWorkers):
    def __init__(self) -> None:
        self.topic = "orders"


def unacknowledged(connection: socket.socket) -> int:
    """Return how many segments the other side has not acknowledged.  This is Linux's ``tcpi_unacked``."""
    return int(struct.unpack_from("I", connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 104), 24)[0])


def outstanding(jvm: socket.socket, worker: socket.socket, *, asked: bool) -> set[int]:
    """Return the numbers of unacknowledged segments after a worker has read its task, over many tasks."""
    found = set()
    for _ in range(ROUNDS):
        jvm.sendall(b"what it is")
        assert worker.recv(100) == b"what it is"
        if asked:
            acknowledge()
        found.add(unacknowledged(jvm))
        worker.sendall(b"rows")
        assert jvm.recv(100) == b"rows"
    return found


@needs_linux
def test_what_has_come_is_acknowledged(pair: tuple[socket.socket, socket.socket]) -> None:
    assert 1 in outstanding(*pair, asked=False)
    assert outstanding(*pair, asked=True) == {0}


def test_files_stay_as_they_are(pair: tuple[socket.socket, socket.socket]) -> None:
    """This includes files that are no connection: a pipe, a pair of Unix sockets, a socket without a peer."""
    read, write = os.pipe()
    one, other = socket.socketpair()
    with socket.socket() as alone, one, other:
        files = [read, write, one.fileno(), alone.fileno(), pair[0].fileno()]
        before = [os.get_blocking(file) for file in files]

        acknowledge()

        assert [os.get_blocking(file) for file in files] == before
        one.send(b"x")
        pair[0].send(b"y")
        assert (other.recv(1), pair[1].recv(1)) == (b"x", b"y")
    os.close(read)
    os.close(write)


def test_with_a_default_timeout_nothing_is_touched(pair: tuple[socket.socket, socket.socket]) -> None:
    socket.setdefaulttimeout(5)
    try:
        acknowledge()
    finally:
        socket.setdefaulttimeout(None)

    assert os.get_blocking(pair[0].fileno())


def test_what_is_unpickled_is_what_was_pickled() -> None:
    assert pickle.loads(pickle.dumps(Reader())).topic == "orders"


# -- the garbage collector

USES = 40


# Each is an import, and one use of a worker.
TASK = ("from pyspark_kafka_group.worker.costs import spare_modules", "spare_modules()")
SINK = (
    "from pyspark.sql.types import StructType\nfrom pyspark_kafka_group.writers import KafkaGroupStreamWriter",
    "KafkaGroupStreamWriter({'kafka.bootstrap.servers': 'a:1', 'topic': 'out'}, StructType().add('value', 'string'))",
)


def frozen_after_each_use(env: dict[str, str], what: tuple[str, str] = TASK) -> list[int]:
    """Return how many objects are frozen after each use of a new worker."""
    imports, use = what
    program = f"import gc\n{imports}\nfor _ in range({USES}):\n    {use}\n    print(gc.get_freeze_count())\n"
    others = {name: value for name, value in os.environ.items() if name != "SPARK_REUSE_WORKER"}
    done = subprocess.run([sys.executable, "-c", program], env={**others, **env}, capture_output=True, check=True)
    return [int(line) for line in done.stdout.split()]


@pytest.mark.parametrize("what", [TASK, SINK], ids=["task", "sink's planning"])
def test_a_worker_that_spark_keeps_freezes_what_it_has_imported_a_few_times(what: tuple[str, str]) -> None:
    found = frozen_after_each_use({"SPARK_REUSE_WORKER": "1"}, what)

    assert found[0] == 0, "at the first use there is garbage of the imports"
    assert found[1] > 1_000
    assert len(set(found)) <= 4, "what is frozen is never collected"


def test_no_other_process_freezes_anything() -> None:
    assert set(frozen_after_each_use({})) == {0}


# -- Spark's zip files


def import_from(file: Path, package: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with zipfile.ZipFile(file, "w") as archive:
        for module in ("__init__", "first", "later"):
            archive.writestr(f"{package}/{module}.py", "")
    monkeypatch.syspath_prepend(str(file))
    importlib.import_module(f"{package}.first")


@pytest.mark.parametrize("name", ["pyspark.zip", "py4j-0.10.9.9-src.zip", "spark-core_2.13-4.1.1.jar"])
def test_only_the_zips_of_users_are_read_again_before_a_task(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The jar stands on the path of each worker of PySpark 4.1, and any import looks into it."""
    sparks, users = tmp_path / name, tmp_path / "shop.zip"
    package = name.partition("-")[0].partition(".")[0]
    import_from(sparks, f"of_{package}", monkeypatch)
    import_from(users, f"of_user_of_{package}", monkeypatch)
    read_again = []
    monkeypatch.setattr(zipimport.zipimporter, "invalidate_caches", lambda self: read_again.append(Path(self.archive)))

    spare_zips()
    importlib.invalidate_caches()  # as PySpark 4.1 does

    assert {path for path in read_again if path.parent == tmp_path} == {users}  # other tests may have left some


def test_what_was_not_imported_yet_is_still_found_in_the_zip(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import_from(tmp_path / "pyspark.zip", "of_spark_later", monkeypatch)

    spare_zips()

    assert importlib.import_module("of_spark_later.later").__name__ == "of_spark_later.later"
