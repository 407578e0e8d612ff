"""An application that uses secured brokers in every way, with full logs.  A test then searches its traces for secrets.

The application reads JSON from its standard input, so that no file and no command line contains a secret:

* ``folder``: the folder for all files;
* ``secrets``: the secrets, by name;
* ``works``: the options of each connection that works, by name;
* ``fails``: the options of each connection that cannot work, by name;
* ``topic``: the topic to read.

Spark's executor is a process of its own.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import sys
import time
import traceback
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyspark
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

import pyspark_kafka_group
from integration.secret_search import Leaks

PATIENCE_S = 60

LOGGING = """rootLogger.level = debug
rootLogger.appenderRef.console.ref = console
appender.console.type = Console
appender.console.name = console
appender.console.target = SYSTEM_ERR
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d %p %c: %m%n%ex
"""

PAGES = ("environment", "SQL", "SQL/execution/?id=0", "StreamingQuery", "jobs", "stages", "executors", "storage")
QUERIES = "sql?details=true&planDescription=true&length=1000"
ANSWERS = ("environment", QUERIES, "jobs", "stages?details=true", "executors")


def main() -> None:
    config = json.load(sys.stdin)
    logging.basicConfig(level=logging.INFO)
    # Deliberate: not also py4j's logger.  It logs all arguments of each call of the user's Python.
    logging.getLogger("pyspark_kafka_group").setLevel(logging.DEBUG)
    run = Run(Path(config["folder"]), config["topic"], Leaks(config["secrets"]))

    def do_what_fails() -> None:
        for name, options in config["fails"].items():
            run.failures(name, options)

    # In parallel, because connections that fail spend most of their time waiting.
    with ThreadPoolExecutor(1) as beside:
        failing = beside.submit(do_what_fails)
        for name, options in config["works"].items():
            run.everything(name, options, every_sink=name in ("password", "oauth", "provider"))
        failing.result()
    run.look_around()
    run.spark.stop()
    print("THE END", flush=True)


def session(folder: Path) -> SparkSession:
    """Return a session that writes as much as possible into the folder."""
    home = folder / "home"
    home.mkdir()
    for part in Path(pyspark.__file__).parent.iterdir():
        if part.name != "work":
            (home / part.name).symlink_to(part)  # a standalone worker writes beside these
    settings = folder / "log4j2.properties"
    settings.write_text(LOGGING)
    java = f"-Dlog4j2.configurationFile=file:{settings} -Djava.io.tmpdir={folder / 'tmp'} -XX:TieredStopAtLevel=1"
    os.environ.update(SPARK_HOME=str(home), PYSPARK_PYTHON=sys.executable, SPARK_LOCAL_IP="127.0.0.1")
    (folder / "events").mkdir()
    return (
        SparkSession.builder.master("local-cluster[1,2,1024]")
        .appName("secrets")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.ui.port", "0")
        .config("spark.local.dir", str(folder / "local"))
        .config("spark.eventLog.enabled", "true")
        .config("spark.eventLog.dir", str(folder / "events"))
        .config("spark.eventLog.compress", "false")
        .config("spark.driver.extraJavaOptions", java)
        .config("spark.executor.extraJavaOptions", java)
        .config("spark.task.maxFailures", "1")
        .config("spark.sql.shuffle.partitions", "1")
        .config("spark.sql.maxPlanStringLength", "10000000")
        .getOrCreate()
    )


class Run:
    """One application.

    Parameters
    ----------
    folder : Path
        The folder for all files.
    topic : str
        The topic to read.
    leaks : Leaks
        Searches for secrets during the run.
    """

    def __init__(self, folder: Path, topic: str, leaks: Leaks) -> None:
        self.spark = session(folder)
        pyspark_kafka_group.register(self.spark)
        self._folder = folder
        self._topic = topic
        self._leaks = leaks

    def everything(self, name: str, options: Mapping[str, str], *, every_sink: bool) -> None:
        """Read and write, in batches and as a stream, with options that work."""
        read = self.spark.read.format("kafka-group").options(**options).option("subscribe", self._topic).load()
        _show(read)
        rows = read.count()
        assert rows > 0
        read.limit(3).select("key", "value").write.format("kafka-group").options(**_connection(options)).option(
            "topic", "copies"
        ).mode("append").save()
        self._stream(name, options, lambda frame: frame.writeStream.foreachBatch(_explain))
        with _failing(f"{name} show"):
            shown = self.spark.read.format("kafka-group").options(**_connection(options))
            shown.option("kafka.group.id", name).option("show", "lag").load().show()
            _tell(f"DONE {name} show")
        for delivery in ("at-least-once", "exactly-once") if every_sink else ("exactly-once",):
            with _failing(f"{name} {delivery}"):
                self._stream(
                    f"{name}-{delivery}",
                    options,
                    lambda frame, delivery=delivery: (
                        frame.select("key", "value")  # type: ignore[misc]
                        .writeStream.format("kafka-group")
                        .options(**_connection(options))
                        .options(topic="copies", delivery=delivery)
                    ),
                )
                _tell(f"DONE {name} {delivery}")

    def failures(self, name: str, options: Mapping[str, str]) -> None:
        """Read and write with options that do not work."""
        with _failing(f"{name} batch"):
            self.spark.read.format("kafka-group").options(**options).options(
                **{"subscribe": self._topic, "fetchOffset.numRetries": "1", "fetchOffset.retryIntervalMs": "100"}
            ).load().count()
        with _failing(f"{name} sink"):
            self.spark.createDataFrame([("a", "b")], "key string, value string").write.format("kafka-group").options(
                **_connection(options)
            ).options(**{"topic": "copies", "kafka.message.timeout.ms": "3000"}).mode("append").save()
        with _failing(f"{name} stream"):
            # Deliberate: a shorter wait for the query that waits for unreachable brokers.
            patience_s = 8 if name == "unreachable" else PATIENCE_S
            self._stream(f"fails-{name}", options, lambda frame: frame.writeStream.format("noop"), patience_s)

    def _stream(
        self,
        name: str,
        options: Mapping[str, str],
        write: Callable[[DataFrame], object],
        patience_s: float = PATIENCE_S,
    ) -> None:
        frame = (
            self.spark.readStream.format("kafka-group")
            .options(**options)
            .options(**{"subscribe": self._topic, "kafka.group.id": name, "startingOffsets": "earliest"})
            .option("eventLog", str(self._folder / f"{name}.events.jsonl"))
            .load()
        )
        _show(frame)
        writer = write(frame)
        query: StreamingQuery = (
            writer.option("checkpointLocation", str(self._folder / "checkpoints" / name))  # type: ignore[attr-defined]
            .queryName(name)
            .trigger(processingTime="500 milliseconds")
            .start()
        )
        try:
            deadline = time.monotonic() + patience_s
            while query.isActive and time.monotonic() < deadline:
                if any(progress.numInputRows for progress in query.recentProgress):
                    break
                time.sleep(0.2)
            self.look_around()
            query.explain(True)
            for progress in query.recentProgress:
                print(progress.json)
            print(query.status, query.name, query.exception())
            problem = query.exception()
            if problem is not None:
                raise problem
        finally:
            pyspark_kafka_group.stop(query)
            query.stop()

    def look_around(self) -> None:
        """Save the pages of Spark's web server.  Search command lines and new files, which may soon be gone."""
        base = self.spark.sparkContext.uiWebUrl
        assert base is not None
        application = f"{base}/api/v1/applications/{self.spark.sparkContext.applicationId}"
        saved = self._folder / "web"
        saved.mkdir(exist_ok=True)
        for number, url in enumerate([*(f"{base}/{page}" for page in PAGES), *(f"{application}/{a}" for a in ANSWERS)]):
            try:
                with urllib.request.urlopen(url, timeout=20) as answer:
                    content = answer.read()
            except OSError as problem:
                content = str(problem).encode()
            (saved / f"{time.time_ns()}-{number}").write_bytes(content)
        for leak in (*self._leaks.in_command_lines(), *self._leaks.in_what_is_new(self._folder)):
            _tell(f"LEAK {leak}")


def _connection(options: Mapping[str, str]) -> dict[str, str]:
    return {key: value for key, value in options.items() if key.startswith("kafka.")}


def _show(frame: DataFrame) -> None:
    frame.explain(True)
    print(repr(frame), frame.schema.json())


def _tell(line: str) -> None:
    """Print a separate line for the test, even while another thread prints."""
    print(f"\n{line}\n", end="", flush=True)


def _explain(batch: DataFrame, _: int) -> None:
    batch.explain(True)
    batch.count()


@contextlib.contextmanager
def _failing(what: str) -> Iterator[None]:
    """Print an error with all its details."""
    try:
        yield
    except Exception as problem:
        _tell(f"FAILED {what}: {type(problem).__name__}")
        traceback.print_exc(file=sys.stdout)
        print(repr(problem), problem.args, getattr(problem, "__dict__", {}), flush=True)
        java = getattr(problem, "_origin", None) or getattr(problem, "java_exception", None)
        if java is not None:
            print(java.toString())


if __name__ == "__main__":
    main()
