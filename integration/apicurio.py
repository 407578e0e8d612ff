"""A real schema registry for tests: Apicurio Registry, with its interface for Confluent's clients.

``python -m integration.apicurio`` fetches it, 151 MB once per user, and exits with 1 and the reason if that fails.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
import urllib.request
from pathlib import Path
from typing import Self

from pyspark_kafka_group.testing.jars import cache_dir
from pyspark_kafka_group.testing.ports import free_ports
from pyspark_kafka_group.testing.process import GuardedProcess

VERSION = "3.3.3"
_ARCHIVE = f"io.apicurio:apicurio-registry-app:{VERSION}:tar.gz:all"
_SHA256 = "8bc6751c76d963734224b01d5e7f84ccb3cb61c87d3bd77c36c35f10a5cbed63"
_JAVA_VERSION = 21
_PATIENCE_S = 120


def find_java() -> Path | None:
    """Return a Java that is new enough: of ``JAVA_HOME``, of the path, or of the folder where Linux installs them."""
    home = Path(os.environ.get("JAVA_HOME", "/"), "bin", "java")
    on_path = shutil.which("java")
    for java in (home, *([Path(on_path)] if on_path else []), *sorted(Path("/usr/lib/jvm").glob("*/bin/java"))):
        if java.is_file():
            answer = subprocess.run([java, "-version"], capture_output=True, text=True, check=False).stderr
            found = re.search(r'version "(\d+)', answer)
            if found is not None and int(found[1]) >= _JAVA_VERSION:
                return java
    return None


def missing() -> str:
    """Return what this machine lacks to run the registry; empty if it lacks nothing."""
    if find_java() is None:
        return f"Java {_JAVA_VERSION} or newer, in /usr/lib/jvm or as JAVA_HOME"
    return "" if _folder().exists() else f"Apicurio {VERSION} (python -m integration.apicurio fetches it with Maven)"


def fetch() -> None:
    """Fetch and unpack the registry, unless it is in the cache."""
    folder = _folder()
    if folder.exists():
        return
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent) as name:
        copy = ["mvn", "-B", "-q", "dependency:copy", f"-Dartifact={_ARCHIVE}", f"-DoutputDirectory={name}"]
        subprocess.run(copy, check=True, cwd=name)
        (archive,) = Path(name).glob("*.tar.gz")
        with archive.open("rb") as content:
            if (found := hashlib.file_digest(content, "sha256").hexdigest()) != _SHA256:
                raise RuntimeError(f"{archive.name} has the hash {found}, known is {_SHA256}")
        with tarfile.open(archive) as content:
            content.extractall(Path(name, "unpacked"), filter="data")
        Path(name, "unpacked").rename(folder)


class Apicurio:
    """A registry that listens on the loopback interface inside a ``with`` block, and keeps schemas in memory.

    Parameters
    ----------
    folder : Path
        The folder for its log.

    Attributes
    ----------
    url : str
        The URL for Confluent's clients.
    """

    def __init__(self, folder: Path) -> None:
        self._log = folder / "apicurio.log"
        self._port, self._management = free_ports(2)
        self.url = f"http://127.0.0.1:{self._port}/apis/ccompat/v7"

    def __enter__(self) -> Self:
        settings = {
            "quarkus.http.host": "127.0.0.1",
            "quarkus.http.port": self._port,
            "quarkus.management.host": "127.0.0.1",
            "quarkus.management.port": self._management,
        }
        options = ["-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
        command = [str(find_java()), *options, *(f"-D{key}={value}" for key, value in settings.items())]
        # An archive of loaded classes belongs to another Java.
        environment = {key: value for key, value in os.environ.items() if key != "JDK_JAVA_OPTIONS"}
        self._process = GuardedProcess([*command, "-jar", str(_folder() / "quarkus-run.jar")], self._log, environment)
        deadline = time.monotonic() + _PATIENCE_S
        while not self._is_ready():
            if self._process.exit_status() is not None or time.monotonic() > deadline:
                self._process.kill()
                raise RuntimeError(f"Apicurio did not start:\n{self._log.read_text()[-3000:]}")
            time.sleep(0.2)
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()

    def _is_ready(self) -> bool:
        """Return whether it answers Confluent's clients, and says that all of its parts have started."""
        ready = f"http://127.0.0.1:{self._management}/health/ready"
        try:
            for url in (ready, f"{self.url}/subjects"):
                urllib.request.urlopen(url, timeout=10).close()
        except OSError:  # also the status 503
            return False
        return True


def _folder() -> Path:
    return cache_dir() / f"apicurio-{VERSION}"


if __name__ == "__main__":
    if find_java() is None:
        sys.exit(missing())
    fetch()
