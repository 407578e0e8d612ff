"""The watch sees how each source process ends, whichever process is killed, and reports unexpected ends."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from signal import SIGABRT, SIGKILL, SIGSEGV, SIGTERM

import pytest

from integration.pipelines import wait_for
from integration.soak.source_ends import SourceEnd, SourceWatch, unaccounted
from integration.soak.supervisor import Ending
from integration.soak.watched_python import RUNNER

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="orphans are adopted on Linux only")

SLEEP = "import time; time.sleep(30)"


@pytest.fixture
def watch(tmp_path: Path) -> Iterator[SourceWatch]:
    with SourceWatch(tmp_path) as entered:
        yield entered


def wait_for_begin(watch: SourceWatch) -> SourceEnd:
    wait_for(lambda: bool(watch.ends()), "the begin of a source process is known")
    return watch.ends()[0]


def wait_for_end(watch: SourceWatch) -> SourceEnd:
    wait_for(lambda: bool(watch.ends()) and watch.ends()[0].code is not None, "its end is known")
    return watch.ends()[0]


@pytest.mark.parametrize(
    ("code", "seen"),
    [
        ("pass", 0),
        ("raise SystemExit(3)", 3),
        ("import os; os.abort()", -SIGABRT),
        ("import os; os.kill(os.getpid(), 11)", -SIGSEGV),
    ],
)
def test_how_it_ended_by_itself(watch: SourceWatch, code: str, seen: int) -> None:
    told = subprocess.run([watch.python_of("app0"), "-c", code, RUNNER], check=False, stderr=subprocess.DEVNULL)
    assert wait_for_end(watch).code == seen
    assert told.returncode == (seen if seen >= 0 else 128 - seen)


def test_sigterm_of_spark_is_passed_on(watch: SourceWatch) -> None:
    process = subprocess.Popen([watch.python_of("app0"), "-c", SLEEP, RUNNER])
    wait_for_begin(watch)
    process.terminate()
    end = wait_for_end(watch)
    assert (end.code, end.passed_on) == (-SIGTERM, [SIGTERM])
    process.wait()


def test_the_jvm_is_gone(watch: SourceWatch) -> None:
    """The source process must see that its parent has changed, and the watch must still see its end."""
    code = "import os, time\nparent = os.getppid()\nwhile os.getppid() == parent: time.sleep(0.02)\nos.abort()"
    jvm = subprocess.Popen(
        ["sh", "-c", '"$@" & wait', "sh", watch.python_of("app0"), "-c", code, RUNNER], stderr=subprocess.DEVNULL
    )
    wait_for_begin(watch)
    jvm.kill()
    jvm.wait()
    assert wait_for_end(watch).code == -SIGABRT


def test_the_watcher_is_killed(watch: SourceWatch) -> None:
    watcher = subprocess.Popen([watch.python_of("app0"), "-c", SLEEP, RUNNER])
    begun = wait_for_begin(watch)
    watcher.kill()
    watcher.wait()
    os.kill(begun.pid, SIGKILL)
    assert wait_for_end(watch).code == -SIGKILL


def test_other_python_processes_are_not_watched(watch: SourceWatch) -> None:
    code = "import os; print(os.getppid())"
    process = subprocess.run([watch.python_of("app0"), "-c", code], check=True, capture_output=True)
    assert int(process.stdout) == os.getpid()
    assert not watch.ends()


def end(code: int | None, *passed_on: int) -> SourceEnd:
    return SourceEnd(pid=7, query="app0", began=1.0, ended=2.0, code=code, passed_on=[*passed_on])


def ending(code: int, at: float = 3.0, application: str = "app0") -> Ending:
    return Ending(at, application, code, [], "")


@pytest.mark.parametrize(
    "accounted",
    [
        unaccounted([end(0)], {}, []),
        unaccounted([end(-SIGKILL)], {"app0": [(7, SIGKILL)]}, []),
        unaccounted([end(-SIGTERM, SIGTERM)], {}, []),
        unaccounted([end(255, SIGTERM)], {}, [ending(0)]),
        unaccounted([end(1)], {}, [ending(-9)]),
        unaccounted([end(255)], {}, [ending(1, at=1.5), ending(0)]),  # of a JVM that was killed on a busy machine
    ],
)
def test_ends_that_are_accounted_for(accounted: list[str]) -> None:
    assert not accounted


@pytest.mark.parametrize(
    ("violations", "told"),
    [
        (unaccounted([end(None)], {}, []), "no end was seen"),
        (unaccounted([end(-SIGABRT)], {"app0": [(7, SIGKILL)]}, [ending(1)]), "SIGABRT"),
        (unaccounted([end(-SIGSEGV)], {}, []), "SIGSEGV"),
        (unaccounted([end(-SIGKILL)], {"app0": [(8, SIGKILL)], "app1": [(7, SIGKILL)]}, []), "SIGKILL"),
        (unaccounted([end(1)], {}, [ending(1, at=1.0), ending(0)]), "exit 1"),
        (unaccounted([end(1)], {}, [ending(1, application="app1")]), "exit 1"),
    ],
)
def test_ends_that_nobody_asked_for(violations: list[str], told: str) -> None:
    assert len(violations) == 1
    assert told in violations[0]
