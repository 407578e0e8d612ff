"""Copies of an example that share a group: one joins late, and the first one is killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from integration.cluster import lag, members
from integration.pipelines import wait_for
from integration.processes import send, session


class Copies:
    """The started copies.

    Parameters
    ----------
    program : Path
        The example.  Its options are ``--name``, ``--bootstrap-servers``, ``--topic``, ``--group`` and more.
    folder : Path
        The folder for the logs.
    options : mapping of str to str
        The options of all copies.  ``NAME`` in a value is the name of the copy.
    partitions : int
        The number of partitions of the topic.
    submit_args : str
        ``PYSPARK_SUBMIT_ARGS`` of the copies.
    """

    def __init__(
        self, program: Path, folder: Path, options: Mapping[str, str], *, partitions: int, submit_args: str
    ) -> None:
        self._program, self._folder, self._options = program, folder, options
        self._partitions, self._submit_args = partitions, submit_args
        self._servers, self._group, self._topic = (options[name] for name in ("bootstrap-servers", "group", "topic"))
        self._started: list[subprocess.Popen[bytes]] = []

    def run(self, produce: Callable[[int], None]) -> None:
        """Start two copies, and kill the first one.  ``produce`` is called three times, with 0, 1 and 2."""
        produce(0)
        first = self._start("copy-1")
        self._wait_until(self._all_done, "the first copy has written all")
        late = self._start("copy-2")
        self._wait_until(lambda: self._share_of("copy-2") == self._partitions // 2, "the late copy has its share")
        produce(1)
        self._wait_until(self._all_done, "both have written all")
        produce(2)  # the kill may interrupt the first copy in them
        send(signal.SIGKILL, session(first.pid))
        first.wait()
        self._wait_until(self._all_done, "the late copy has written what the first one has left")
        late.terminate()
        assert late.wait(60) == 0

    def close(self) -> None:
        """Kill all copies."""
        for process in self._started:
            send(signal.SIGKILL, session(process.pid))
            process.wait()

    def _start(self, name: str) -> subprocess.Popen[bytes]:
        given = {"name": name, **self._options}
        options = (f"--{option}={value.replace('NAME', name)}" for option, value in given.items())
        environment = {**os.environ, "SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_SUBMIT_ARGS": self._submit_args}
        with (self._folder / f"{name}.log").open("ab") as log:
            self._started.append(
                subprocess.Popen(
                    [sys.executable, str(self._program), *options],
                    env=environment,
                    stdout=log,
                    stderr=log,
                    start_new_session=True,
                )
            )
        return self._started[-1]

    def _wait_until(self, condition: Callable[[], bool], what: str) -> None:
        def reached() -> bool:
            for process in self._started:
                assert process.poll() in (None, -signal.SIGKILL), "\n".join(
                    log.read_text(errors="replace")[-3000:] for log in self._folder.glob("*.log")
                )
            return condition()

        wait_for(reached, what)

    def _all_done(self) -> bool:
        return lag(self._servers, self._group, self._topic, range(self._partitions)) == 0

    def _share_of(self, name: str) -> int:
        found = members(self._servers, self._group)
        return sum(len(owned) for client_id, owned in found.items() if client_id.startswith(name))


@contextmanager
def copies(
    program: Path, folder: Path, options: Mapping[str, str], *, partitions: int, submit_args: str
) -> Iterator[Copies]:
    """Yield copies of an example, and kill them at the end."""
    made = Copies(program, folder, options, partitions=partitions, submit_args=submit_args)
    try:
        yield made
    finally:
        made.close()
