"""`LocalKafka`: Apache Kafka as processes on this machine.

Which settings the brokers get is in `broker_config`, where their jars come from in `jars`, and why they cannot
outlive us in `_guard`.
"""

from __future__ import annotations

import atexit
import os
import re
import shlex
import shutil
import tempfile
import time
from collections import deque
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from signal import SIGCONT, SIGSTOP, SIGTERM
from typing import Self

from pyspark_kafka_group.testing.broker_config import (
    LOGGING,
    LOGGING_OF_3,
    BrokerPorts,
    TlsFiles,
    broker_properties,
    meta_properties,
    new_id,
    render,
)
from pyspark_kafka_group.testing.errors import KafkaTestingError, PortInUseError
from pyspark_kafka_group.testing.jars import kafka_jars
from pyspark_kafka_group.testing.java import find_java
from pyspark_kafka_group.testing.kafka import SERVERS_VARIABLE, ExistingKafka, Kafka, await_brokers
from pyspark_kafka_group.testing.pinned_jars import KAFKA_VERSION
from pyspark_kafka_group.testing.ports import HOST, free_ports, is_free
from pyspark_kafka_group.testing.process import GuardedProcess
from pyspark_kafka_group.testing.proxy import FaultProxy

VERSION_VARIABLE = "KAFKA_VERSION"
JAVA_OPTIONS_VARIABLE = "KAFKA_JAVA_OPTIONS"

_META = "meta.properties"
_CLUSTER_ID = re.compile(r"^cluster\.id=(.*)$", re.MULTILINE)
_DATA_FOLDERS = ("log.dirs", "metadata.log.dir")
_FORMATTED: dict[str, dict[str, bytes]] = {}
"""By version of Kafka: what a new data folder has, by the names of the files, without the file of the ids."""

# A broker is up in 3 s, three in 8 s, on two idle cores; a machine busy with Spark may need far longer.
_START_TIMEOUT_S = 90.0
# A clean stop takes 0.3 s; with most brokers already gone the others wait in vain for a controller.
_STOP_GRACE_S = 10.0
_LOG_LINES_IN_ERRORS = 30
_NOT_BOUND = re.compile(rf"failed to bind to {re.escape(HOST)}:(\d+)")
# Brokers listen seconds after their ports were chosen.  Other test runs choose theirs in the same way.
_PORT_CHOICES = 3
_HIGHEST_PORT = 65_535
_LOGGING = {  # by file, with the property of Java that names it: each back end knows its own
    "log4j2.properties": ("log4j2.configurationFile", LOGGING),
    "log4j.properties": ("log4j.configuration", LOGGING_OF_3),
}

# Quick to start rather than quick for long: one compiler, one collector thread.
_JVM_OPTIONS = (
    "-XX:TieredStopAtLevel=1",
    "-XX:+UseSerialGC",
    "-XX:+ExitOnOutOfMemoryError",
    "-Djava.awt.headless=true",
)


class LocalKafka(Kafka):
    """Apache Kafka (KRaft mode, no ZooKeeper) as one or three JVM processes that listen on 127.0.0.1 only.

    Needs Java 17 or newer.  The first use fetches Kafka's jars, 44 MB, once per user.  The processes end with the
    Python process that started them, even if that one is killed.

    Settings are for tests: no automatic topics, short waits, small heaps; see `broker_config`.  Options of the JVMs,
    as a larger heap, are taken from the variable ``KAFKA_JAVA_OPTIONS``.

    Parameters
    ----------
    brokers
        1, or 3 for tests that lose brokers; ids are 1, 2, 3, and each is a controller as well.
    port
        The port for clients of the only broker.  By default a free one.
    version
        Kafka's version, 3.9 or newer.  By default that of the variable ``KAFKA_VERSION``, else one that is pinned with
        all it depends on; another is resolved when first used.
    properties
        Settings of the brokers, over those of the tests.
    data_dir
        Where data and logs go; kept at the end, and used again by a later run.  By default a temporary folder.
    proxied
        Whether each broker has a second listener that clients reach only through a `FaultProxy`.
    sasl_users
        ``{"name": "password"}``: adds a listener for clients that authenticate, with SASL's mechanism PLAIN.  It offers
        SCRAM, too, to users that are created with ``AdminClient.alter_user_scram_credentials``.
    tls
        Adds encryption to that listener.  Without `sasl_users` it is the one of protocol SSL.

    Attributes
    ----------
    proxies
        With `proxied`: the proxy of each broker by its id, while the cluster is started.
    """

    def __init__(
        self,
        brokers: int = 1,
        *,
        port: int | None = None,
        version: str | None = None,
        properties: Mapping[str, str] | None = None,
        data_dir: str | os.PathLike[str] | None = None,
        proxied: bool = False,
        sasl_users: Mapping[str, str] | None = None,
        tls: TlsFiles | None = None,
    ) -> None:
        if brokers not in (1, 3):
            raise ValueError(f"brokers={brokers}: choose 1, or 3 (two cannot outvote a lost one)")
        if port is not None and brokers != 1:
            raise ValueError(f"port={port} is for one broker, and brokers={brokers}")
        if port is not None and not 0 <= port <= _HIGHEST_PORT:
            raise ValueError(f"port={port}: choose a port from 1 to {_HIGHEST_PORT}")
        self._brokers = brokers
        self._port = port
        self._version = version or os.environ.get(VERSION_VARIABLE) or KAFKA_VERSION
        self._properties = dict(properties or {})
        self._keep = Path(data_dir).absolute() if data_dir is not None else None
        self._proxied = proxied
        self._sasl_users = dict(sasl_users or {})
        self._tls = tls
        self._ports: dict[int, BrokerPorts] = {}
        self._processes: dict[int, GuardedProcess] = {}
        self._launched_at: dict[int, int] = {}  # the size of the log of each broker then
        self._paused: set[int] = set()
        self._folder: Path | None = None
        self._command: list[str] = []
        self.proxies: dict[int, FaultProxy] = {}

    @property
    def bootstrap_servers(self) -> str:
        """The address of each broker without authentication and proxy."""
        return _servers([ports.client for ports in self._started().values()])

    @property
    def proxied_bootstrap_servers(self) -> str:
        """The address of each proxy, for clients that shall see the faults."""
        if not self._proxied:
            raise KafkaTestingError("this LocalKafka has no proxies: create it with proxied=True")
        return _servers([ports.proxied[1] for ports in self._started().values() if ports.proxied])

    @property
    def secured_bootstrap_servers(self) -> str:
        """The address of each broker with authentication, encryption, or both."""
        if not (self._sasl_users or self._tls):
            raise KafkaTestingError(
                "this LocalKafka has no secured listener: create it with sasl_users={'name': 'password'} or tls=..."
            )
        return _servers([ports.secured for ports in self._started().values() if ports.secured])

    @property
    def proxy(self) -> FaultProxy:
        """The proxy of the only broker."""
        if len(self.proxies) != 1:
            raise KafkaTestingError(
                f"there are {len(self.proxies)} proxies: use LocalKafka(1, proxied=True), or .proxies[id]"
            )
        return self.proxies[1]

    def start(self) -> Self:
        """Fetch the jars if they are not there, start all brokers and wait until they know each other."""
        if self._ports:
            return self
        if self._port is not None and not is_free(self._port):
            raise PortInUseError(self._port)
        java = find_java()
        jars = kafka_jars(self._version)
        choices = _PORT_CHOICES if self._port is None else 1
        for left in reversed(range(choices)):
            try:
                self._start_brokers(java, jars)
                break
            except PortInUseError:
                if not left:
                    raise
        return self

    def _start_brokers(self, java: Path, jars: list[Path]) -> None:
        atexit.register(self._stop_at_exit, os.getpid())
        try:
            self._folder = self._keep or Path(tempfile.mkdtemp(prefix="kafka-"))
            self._configure(self._folder)
            self._command = self._java(java, jars, self._folder)
            self._format()
            for broker_id in self._ports:
                self._launch(broker_id)
            self._await_brokers()
        except BaseException as problem:
            self.stop()
            if not isinstance(problem, OSError) or problem.filename is None:
                raise
            raise KafkaTestingError(
                f"the brokers' files cannot be written ({problem}): choose another data_dir, or another TMPDIR"
            ) from problem

    def stop(self) -> None:
        """End all brokers: cleanly where `data_dir` stays, else at once, with their data."""
        atexit.unregister(self._stop_at_exit)
        if self._keep is not None:
            for process in self._processes.values():
                process.send(SIGCONT)
                process.send(SIGTERM)
            deadline = time.monotonic() + _STOP_GRACE_S
            for process in self._processes.values():
                process.end(max(0.0, deadline - time.monotonic()))
        for process in self._processes.values():
            process.kill()
        for proxy in self.proxies.values():
            proxy.stop()
        if self._keep is None and self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
        self._folder = None
        self._processes.clear()
        self._paused.clear()
        self._ports.clear()
        self.proxies.clear()

    def kill(self, broker_id: int) -> None:
        """End the process with SIGKILL; its data stays."""
        self._running(broker_id).kill()
        del self._processes[broker_id]
        self._paused.discard(broker_id)

    def pause(self, broker_id: int) -> None:
        """Freeze the process with SIGSTOP."""
        self._running(broker_id).send(SIGSTOP)
        self._paused.add(broker_id)

    def resume(self, broker_id: int) -> None:
        """Continue the process with SIGCONT."""
        self._running(broker_id).send(SIGCONT)
        self._paused.discard(broker_id)

    def restart(self, broker_id: int) -> None:
        """Start the process again, after a clean stop with SIGTERM if it runs.

        A killed broker is let in again when its old session is over: after 3 s with the settings for tests.
        """
        if broker_id not in self._started():
            raise self._no_such_broker(broker_id)
        self._end(broker_id)
        self._launch(broker_id)
        self._await_brokers()

    def move(self, broker_id: int, port: int) -> None:
        """Restart the broker with another port for clients; ``bootstrap_servers`` has the new one.

        A client that knows only the old port has lost the broker.
        """
        if broker_id not in self._started():
            raise self._no_such_broker(broker_id)
        if port != self._ports[broker_id].client and not is_free(port):
            raise PortInUseError(port)
        self._end(broker_id)
        self._ports[broker_id] = replace(self._ports[broker_id], client=port)
        self._write_settings(broker_id)
        self._launch(broker_id)
        self._await_brokers()

    def _end(self, broker_id: int) -> None:
        if broker_id in self._processes:
            self.resume(broker_id)
            self._processes.pop(broker_id).end(_STOP_GRACE_S)

    def partition_folder(self, broker_id: int, topic: str, partition: int) -> Path:
        """Return the folder of a partition's log.  Change it only while the broker is stopped."""
        folders = [data / f"{topic}-{partition}" for data in self._data(broker_id)]
        return next((folder for folder in folders if folder.exists()), folders[0])

    def log_tail(self, lines: int = 100) -> str:
        """Return the last lines of each broker's log, until the cluster is stopped."""
        tails = []
        for broker_id in self._ports:
            with self._log(broker_id).open(errors="replace") as log:
                tail = "".join(deque(log, maxlen=lines))
            tails.append(f"---- broker {broker_id}, last {lines} lines of its log ----\n{tail}")
        return "".join(tails)

    def _answering_servers(self) -> list[str]:
        answering = [i for i in self._started() if i in self._processes and i not in self._paused]
        return [f"{HOST}:{self._ports[i].client}" for i in answering]

    def _started(self) -> dict[int, BrokerPorts]:
        if not self._ports:
            raise KafkaTestingError("LocalKafka is not started: use it in a with statement, or call start()")
        return self._ports

    def _running(self, broker_id: int) -> GuardedProcess:
        if broker_id not in self._started():
            raise self._no_such_broker(broker_id)
        if broker_id not in self._processes:
            raise KafkaTestingError(f"broker {broker_id} does not run: restart() it first")
        return self._processes[broker_id]

    def _no_such_broker(self, broker_id: int) -> KafkaTestingError:
        return KafkaTestingError(f"there is no broker {broker_id}: ids are {', '.join(map(str, self._ports))}")

    def _java(self, java: Path, jars: list[Path], folder: Path) -> list[str]:
        heap = "-Xmx512m" if self._brokers == 1 else "-Xmx384m"
        logging = [f"-D{name}={(folder / file).as_uri()}" for file, (name, _) in _LOGGING.items()]
        try:
            more = shlex.split(os.environ.get(JAVA_OPTIONS_VARIABLE, ""))
        except ValueError as problem:
            raise KafkaTestingError(
                f"{JAVA_OPTIONS_VARIABLE} cannot be read ({problem}): correct its quotes"
            ) from problem
        return [str(java), heap, *_JVM_OPTIONS, *more, *logging, "-cp", ":".join(map(str, jars))]

    def _configure(self, folder: Path) -> None:
        """Choose ports, start the proxies and write each broker's files."""
        if "," in str(folder):
            raise KafkaTestingError(
                f"Kafka takes {folder} for several folders, because of its comma: choose another data_dir, or another "
                "TMPDIR"
            )
        ids = range(1, self._brokers + 1)
        ports = iter(free_ports(5 * self._brokers))
        for broker_id in ids:
            behind, secured = next(ports), next(ports)
            if self._proxied:
                self.proxies[broker_id] = FaultProxy(f"{HOST}:{behind}").start()
            self._ports[broker_id] = BrokerPorts(
                client=self._port or next(ports),
                controller=next(ports),
                proxied=(behind, self.proxies[broker_id].port) if self._proxied else None,
                secured=secured if self._sasl_users or self._tls else None,
            )
        for broker_id in ids:
            self._home(broker_id).mkdir(parents=True, exist_ok=True)
            self._write_settings(broker_id)
            self._log(broker_id).touch()
        for file, (_, text) in _LOGGING.items():
            (folder / file).write_text(text)

    def _write_settings(self, broker_id: int) -> None:
        properties = broker_properties(
            broker_id,
            self._ports,
            self._home(broker_id) / "data",
            sasl_users=self._sasl_users,
            tls=self._tls,
            overrides=self._properties,
        )
        settings = self._settings(broker_id)
        settings.touch(mode=0o600)  # it may hold passwords
        settings.write_text(render(properties))

    def _format(self) -> None:
        """Format each new data folder, all at the same time: each is a separate JVM.

        Apart from the ids, Kafka's version alone decides what is written.  So one such JVM serves all later clusters
        of this process.
        """
        cluster_id = self._cluster_id() or new_id()
        folders = {broker_id: self._data(broker_id)[0] for broker_id in self._ports}
        new = {broker_id: data for broker_id, data in folders.items() if not (data / _META).exists()}
        usual = self._properties.keys().isdisjoint(_DATA_FOLDERS)
        if usual and self._version in _FORMATTED:
            for broker_id, data in new.items():
                data.mkdir(parents=True, exist_ok=True)
                for name, content in _FORMATTED[self._version].items():
                    (data / name).write_bytes(content)
                (data / _META).write_text(meta_properties(broker_id, cluster_id))
            return
        command = [*self._command, "kafka.tools.StorageTool", "format", "--cluster-id", cluster_id]
        runs: dict[int, GuardedProcess] = {}
        try:
            for broker_id in new:
                settings = str(self._settings(broker_id))
                runs[broker_id] = GuardedProcess([*command, "--config", settings], self._log(broker_id))
            for broker_id, run in runs.items():
                if run.wait() != 0:
                    tail = self.log_tail(_LOG_LINES_IN_ERRORS)
                    raise KafkaTestingError(f"could not format the data folder of broker {broker_id}:\n{tail}")
        finally:
            for run in runs.values():
                run.kill()
        for data in new.values() if usual else ():
            written = [file for file in data.iterdir() if file.name != _META]
            _FORMATTED[self._version] = {file.name: file.read_bytes() for file in written}

    def _cluster_id(self) -> str | None:
        """Return the id of the cluster, as it is in the data folders; None if all of them are new."""
        for broker_id in self._ports:
            meta = self._data(broker_id)[0] / _META
            found = _CLUSTER_ID.search(meta.read_text()) if meta.exists() else None
            if found is not None:
                return found[1]
        return None

    def _launch(self, broker_id: int) -> None:
        log = self._log(broker_id)
        self._launched_at[broker_id] = log.stat().st_size if log.exists() else 0
        command = [*self._command, "kafka.Kafka", str(self._settings(broker_id))]
        self._processes[broker_id] = GuardedProcess(command, self._log(broker_id))

    def _await_brokers(self) -> None:
        await_brokers(
            self._answering_servers(),
            len(self._processes) - len(self._paused),
            _START_TIMEOUT_S,
            self._check_alive,
            self._cluster_id(),
        )

    def _check_alive(self) -> None:
        for broker_id, process in self._processes.items():
            status = process.exit_status()
            if status is not None:
                if taken := _NOT_BOUND.search(self._said_since_launch(broker_id)):
                    raise PortInUseError(int(taken[1]))
                tail = self.log_tail(_LOG_LINES_IN_ERRORS)
                raise KafkaTestingError(f"broker {broker_id} ended with exit status {status}:\n{tail}")

    def _said_since_launch(self, broker_id: int) -> str:
        """Return what the last process of a broker has logged.  The log of a `data_dir` may have more."""
        with self._log(broker_id).open("rb") as log:
            log.seek(self._launched_at[broker_id])
            return log.read().decode(errors="replace")

    def _stop_at_exit(self, owner: int) -> None:
        # A fork of the process that started the brokers must not end them with itself.
        if os.getpid() == owner:
            self.stop()

    def _home(self, broker_id: int) -> Path:
        assert self._folder is not None
        return self._folder / f"broker-{broker_id}"

    def _data(self, broker_id: int) -> list[Path]:
        """Return the data folders of a broker, which runs in its home."""
        named = self._properties.get("log.dirs", "data")
        return [self._home(broker_id) / one.strip() for one in named.split(",")]

    def _settings(self, broker_id: int) -> Path:
        return self._home(broker_id) / "server.properties"

    def _log(self, broker_id: int) -> Path:
        return self._home(broker_id) / "broker.log"


def _servers(ports: list[int]) -> str:
    return ",".join(f"{HOST}:{port}" for port in ports)


def kafka_from_environment() -> Kafka:
    """Return the cluster of ``KAFKA_BOOTSTRAP_SERVERS`` if set, else a `LocalKafka`; not started."""
    return ExistingKafka() if os.environ.get(SERVERS_VARIABLE) else LocalKafka()
