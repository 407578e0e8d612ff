"""Settings that make the JVMs of the integration tests start sooner.  ``python -m integration.java_start``.

About two hundred brokers, drivers, executors and tools live for seconds, and spend most of that time on loading and
verifying classes.  As a program, this module makes two archives of loaded classes (JEP 350) in ``build/java``: one of a
broker, and one of a Spark driver.  Java ignores an archive that belongs to other jars or to another Java.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import tempfile
import time
from pathlib import Path

import pyspark

from integration.cluster import produce
from integration.pipelines import Application, wait_for
from pyspark_kafka_group.testing import LocalKafka
from pyspark_kafka_group.testing.jars import kafka_jars
from pyspark_kafka_group.testing.java import find_java
from pyspark_kafka_group.testing.local import JAVA_OPTIONS_VARIABLE, VERSION_VARIABLE
from pyspark_kafka_group.testing.pinned_jars import KAFKA_VERSION

_EVERY_JAVA = "JDK_JAVA_OPTIONS"
_SPARK_DRIVER = "SPARK_SUBMIT_OPTS"

# With one compiler and one garbage collector thread, a JVM starts sooner and needs less.
_QUICK = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"

_FOLDER = Path(__file__).parents[1] / "build" / "java"
_KEY = _FOLDER / "key"
_ARCHIVES = {kind: _FOLDER / f"{kind}.jsa" for kind in ("kafka", "spark")}


def environment() -> dict[str, str]:
    """Return the variables that make the JVMs of Spark and `LocalKafka` start sooner, for the whole test run."""
    given = os.environ.get(_EVERY_JAVA, "")
    if _QUICK in given:
        return {}  # a worker inherits them from the process that started it
    return {
        _EVERY_JAVA: " ".join(filter(None, [given, _QUICK, _from_archive("spark")])),
        JAVA_OPTIONS_VARIABLE: " ".join(filter(None, [os.environ.get(JAVA_OPTIONS_VARIABLE), _from_archive("kafka")])),
    }


def _from_archive(kind: str) -> str:
    archive = _ARCHIVES[kind]
    # Without -Xlog, Java reports on its standard output that an archive does not fit.
    return f"-XX:SharedArchiveFile={archive} -Xlog:cds=off -Xlog:cds+dynamic=off" if archive.exists() else ""


def make_archives() -> None:
    """Make the archives, unless they exist for this Java and these jars."""
    key = _key()
    if _KEY.exists() and _KEY.read_text() == key:
        return
    begin = time.monotonic()
    print("Archiving the classes of Kafka and Spark, so that their JVMs start sooner ...", flush=True)
    shutil.rmtree(_FOLDER, ignore_errors=True)
    _FOLDER.mkdir(parents=True)
    with tempfile.TemporaryDirectory(prefix="java-") as name:
        folder = Path(name)
        made = {kind: folder / archive.name for kind, archive in _ARCHIVES.items()}
        os.environ[JAVA_OPTIONS_VARIABLE] = f"-XX:ArchiveClassesAtExit={made['kafka']}"
        with LocalKafka(data_dir=folder / "broker") as kafka:  # Deliberate: with a data folder, the broker ends cleanly
            kafka.create_topic("orders", 2)
            os.environ[_SPARK_DRIVER] = f"-XX:ArchiveClassesAtExit={made['spark']}"
            _run_a_driver(folder, kafka.bootstrap_servers)
        # A broker that ends too slowly is killed.  This check fails if its archive is incomplete.
        whole = ["-Xshare:on", f"-XX:SharedArchiveFile={made['kafka']}", "-cp", ":".join(map(str, _kafka_jars()))]
        subprocess.run([find_java(), *whole, "-version"], check=True, capture_output=True)
        for kind, archive in made.items():
            shutil.move(archive, _ARCHIVES[kind])
    _KEY.write_text(key)
    print(f"... in {time.monotonic() - begin:.0f} s")


def _kafka_jars() -> list[Path]:
    return kafka_jars(os.environ.get(VERSION_VARIABLE) or KAFKA_VERSION)


def _key() -> str:
    java = subprocess.run([find_java(), "-version"], capture_output=True, text=True, check=True).stderr
    jars = [*_kafka_jars(), *sorted((Path(pyspark.__file__).parent / "jars").glob("*.jar"))]
    files = [(str(jar), jar.stat().st_size, jar.stat().st_mtime_ns) for jar in jars]
    return hashlib.sha256(json.dumps([java, files]).encode()).hexdigest()


def _run_a_driver(folder: Path, servers: str) -> None:
    """Run an application like most tests, and wait until its JVM has ended."""
    options = {"kafka.bootstrap.servers": servers, "kafka.group.id": "archive", "subscribe": "orders"}
    application = Application(folder, "archive", {**options, "startingOffsets": "earliest"}).start()

    def has(count: int) -> bool:
        application.check()
        return len(application.rows) == count

    try:
        for start in (0, 10, 20):
            produce(servers, "orders", {0: 10, 1: 10}, start=start)
            wait_for(lambda count=2 * start + 20: has(count), "rows")  # type: ignore[misc]
        application.begin_stop()
        assert application.wait() == 0, application.log_tail()
        wait_for(lambda: not application.processes(), "the JVM has ended")
    finally:
        application.kill()


if __name__ == "__main__":
    make_archives()
