"""Fetches jars once per user, with nothing but Java and PySpark, and checks them before each use.

A `JarSet` names jars, and `resolve` returns the files.  They come through Ivy, which every PySpark ships and which also
runs alone.  If Ivy fails, they come through Maven, for which a company often sets up its mirror or proxy.  Both take
about 20 s for Kafka if nothing is cached (measured; 75 s if Ivy reads the dependencies of every module, hence the
complete list in `pinned_jars`).

Deliberate: no library that fetches URLs, such as pooch.  It would ignore the mirrors, proxies and passwords that Java
and Maven are set up with, and `LocalKafka` would need one more package.

If the hash of a jar is known, a file with another hash is never used, wherever it came from.  If it is not known, Ivy
and Maven compare the checksum that the repository publishes.

Layout of the cache: ``jars/<set>/`` has the jars and ``manifest.json``; ``ivy/`` is Ivy's own cache, with which an
interrupted download continues; ``lock`` allows one fetch at a time; ``<set>.log`` is the log of the last fetch.
"""

from __future__ import annotations

import fcntl
import hashlib
import importlib.util
import json
import os
import shutil
import sys
import time
import zipfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple
from xml.sax.saxutils import quoteattr

from pyspark_kafka_group.testing.errors import KafkaTestingError
from pyspark_kafka_group.testing.java import find_java
from pyspark_kafka_group.testing.pinned_jars import (
    KAFKA_JARS,
    KAFKA_VERSION,
    LOGGING_JARS,
    LOGGING_JARS_OF_3,
)
from pyspark_kafka_group.testing.process import GuardedProcess

CACHE_VARIABLE = "PYSPARK_KAFKA_GROUP_CACHE"

_SAY_EVERY = 10
_PROGRESS_INTERVAL_S = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class JarSet:
    """Jars that are fetched, checked and used together.

    Attributes
    ----------
    name
        Folder in the cache.  Another list of modules needs another name.
    label
        Name of the set in messages.
    modules
        ``group:artifact:version`` each, or ``group:artifact:version:classifier``.
    transitive
        Whether to fetch the dependencies of the modules.  That is slow, so a complete list is better.
    sha256
        The known hashes of the jars, in hexadecimal, by module.
    """

    name: str
    label: str
    modules: tuple[str, ...]
    transitive: bool = False
    sha256: Mapping[str, str] = field(default_factory=dict)

    @property
    def hashes(self) -> dict[str, str]:
        """The known hashes by file name."""
        return {_Module.of(module).file: digest for module, digest in self.sha256.items()}


class _Module(NamedTuple):
    """The coordinates of a jar."""

    group: str
    artifact: str
    version: str
    classifier: str = ""

    @classmethod
    def of(cls, text: str) -> _Module:
        return cls(*text.split(":"))

    @property
    def file(self) -> str:
        return f"{'-'.join(filter(None, self[1:]))}.jar"

    @property
    def maven_folder(self) -> str:
        return f"{self.group.replace('.', '/')}/{self.artifact}/{self.version}"


def kafka_jars(version: str = KAFKA_VERSION) -> list[Path]:
    """Return the jars of a Kafka broker; fetch them if necessary."""
    label = f"Apache Kafka {version}"
    if version == KAFKA_VERSION:
        return resolve(JarSet(name=f"kafka-{version}", label=label, modules=tuple(KAFKA_JARS), sha256=KAFKA_JARS))
    logging = LOGGING_JARS_OF_3 if version.startswith("3.") else LOGGING_JARS
    modules = (f"org.apache.kafka:kafka_2.13:{version}", *logging)
    return resolve(JarSet(name=f"kafka-{version}", label=label, modules=modules, transitive=True))


def cache_dir() -> Path:
    """Return the folder of the cache: ``PYSPARK_KAFKA_GROUP_CACHE``, else the user's cache folder (XDG)."""
    override = os.environ.get(CACHE_VARIABLE)
    if override:
        return Path(override).expanduser().absolute()
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "pyspark-kafka-group"


def resolve(jars: JarSet, *, say: Callable[[str], None] | None = None) -> list[Path]:
    """Return the files of a set, sorted by name; fetch them if they are missing or damaged.

    Parameters
    ----------
    jars
        The set.
    say
        Called with each line of progress; by default they go to standard error.

    Raises
    ------
    KafkaTestingError
        The jars could not be fetched or kept, or the hash of one is not the known one.  The text names what was tried,
        the log, and what to do.
    """
    folder = cache_dir() / "jars" / jars.name
    files = _intact(jars, folder)
    if files is None:
        say = say or _say_on_stderr
        try:
            with _lock(
                cache_dir() / "lock", lambda: say(f"another process is fetching jars, waiting for {jars.label}")
            ):
                # The process that held the lock may have fetched the same set.
                files = _intact(jars, folder, say) or _Fetch(jars, folder, say).run()
        except OSError as problem:
            raise KafkaTestingError(
                f"the jars of {jars.label} cannot be kept in {cache_dir()} ({problem}): set {CACHE_VARIABLE} to a "
                "folder that you may write"
            ) from problem
    return files


# Folders whose hashes this process has compared.  After that it compares the sizes only.
_hashed: set[Path] = set()


def _intact(jars: JarSet, folder: Path, say: Callable[[str], None] | None = None) -> list[Path] | None:
    """Return the files of a complete, undamaged folder; None otherwise."""
    hashes = jars.hashes
    try:
        manifest: dict[str, dict[str, int | str]] = json.loads((folder / "manifest.json").read_text())
        if hashes and manifest.keys() != hashes.keys():
            return None
        files = [folder / name for name in sorted(manifest)]
        for file in files:
            expected = manifest[file.name]
            if file.stat().st_size == expected["bytes"] and (
                folder in _hashed or _sha256(file) == hashes.get(file.name, expected["sha256"])
            ):
                continue
            if say:
                say(f"{file} has changed: {jars.label} must be fetched again")
            return None
    except (OSError, ValueError):
        return None
    _hashed.add(folder)
    return files


class _Fetch:
    """Fetches a set into its folder."""

    def __init__(self, jars: JarSet, folder: Path, say: Callable[[str], None]) -> None:
        self._jars = jars
        self._modules = [_Module.of(module) for module in jars.modules]
        self._folder = folder
        self._part = folder.with_name(f"{folder.name}.part")
        self._log = folder.with_name(f"{folder.name}.log")
        self._say = say
        self._refused: list[str] = []

    def run(self) -> list[Path]:
        """Fetch the jars and return the files."""
        jars, part = self._jars, self._part
        if _ivy_jar() is None and shutil.which("mvn") is None:
            raise KafkaTestingError(
                f"could not fetch {jars.label}, because neither PySpark, which ships Ivy, nor Maven is installed here: "
                f"pip install 'pyspark-kafka-group[spark]'"
            )
        count = "" if jars.transitive else f"{len(jars.modules)} jars, "
        self._say(f"fetching {jars.label} ({count}once per user) ...")
        part.parent.mkdir(parents=True, exist_ok=True)
        self._log.unlink(missing_ok=True)
        _hashed.discard(self._folder)
        if not (self._with_ivy() or self._with_maven()):
            shutil.rmtree(part, ignore_errors=True)
            if self._refused:
                raise KafkaTestingError(
                    f"could not fetch {jars.label}: refused {'; '.join(self._refused)}. A mirror or proxy on the way "
                    f"to Maven Central changes jars or keeps a bad copy: have it repaired, or use another. A bad copy "
                    f"may also be in Maven's local repository: remove its folder there. Details are in {self._log}"
                )
            raise KafkaTestingError(
                f"could not fetch {jars.label}, neither with Ivy nor with Maven; details are in {self._log}. Check the "
                "network; behind a proxy set JAVA_TOOL_OPTIONS='-Dhttps.proxyHost=HOST -Dhttps.proxyPort=PORT', or "
                "configure Maven. The next attempt uses what was fetched so far"
            )
        for left_over in part.iterdir():
            if left_over.suffix != ".jar":
                left_over.unlink()
        files = sorted(part.iterdir())
        manifest = {file.name: {"bytes": file.stat().st_size, "sha256": _sha256(file)} for file in files}
        # The manifest is written last, and the folder gets its name last.  A folder that has both is complete.
        (part / "manifest.json").write_text(json.dumps(manifest, indent=1))
        shutil.rmtree(self._folder, ignore_errors=True)
        part.rename(self._folder)
        self._say(f"fetched {jars.label}: {len(files)} jars")
        return [self._folder / file.name for file in files]

    def _with_ivy(self) -> bool:
        if not self._run_ivy():
            return False
        if self._is_complete() and not self._strangers():
            return True
        # Ivy does not notice a damaged file in its own cache.
        self._say("  a fetched jar is damaged or has another hash, fetching all of them again")
        shutil.rmtree(_ivy_cache(), ignore_errors=True)
        return self._run_ivy() and self._is_accepted()

    def _run_ivy(self) -> bool:
        ivy = _ivy_jar()
        if ivy is None:
            self._note("Ivy: PySpark is not installed here, or ships none")
            return False
        self._empty()
        transitive = str(self._jars.transitive).lower()
        settings, wanted = self._part / "ivysettings.xml", self._part / "ivy.xml"
        settings.write_text(_IVY_SETTINGS.format(cache=quoteattr(str(_ivy_cache())), poms=transitive))
        wanted.write_text(_ivy_module(self._modules, transitive))
        command = [str(find_java()), "-jar", str(ivy), "-settings", str(settings), "-ivy", str(wanted)]
        command += ["-retrieve", f"{self._part}/[artifact]-[revision](-[classifier]).[ext]"]
        said = 0

        def progress() -> None:
            nonlocal said
            fetched = self._log.read_text(errors="replace").count("[SUCCESSFUL ]")
            while fetched >= said + _SAY_EVERY:
                said += _SAY_EVERY
                self._say(f"  {said} jars fetched")

        return self._run(command, progress)

    def _with_maven(self) -> bool:
        maven = shutil.which("mvn")
        if maven is None:
            self._note("Maven: there is no mvn on the path")
            return False
        self._say("  Ivy could not fetch everything, trying Maven")
        self._empty()
        pom = self._part / "pom.xml"
        pom.write_text(_maven_project(self._modules))
        command = [maven, "-B", "-f", str(pom), "dependency:copy-dependencies", "-DincludeScope=runtime"]
        command += [f"-DexcludeTransitive={str(not self._jars.transitive).lower()}", f"-DoutputDirectory={self._part}"]
        if not self._jars.sha256:
            # By default Maven only warns if a jar does not have the checksum of the repository.
            command.append("--strict-checksums")
        return self._run(command, lambda: None) and self._is_accepted()

    def _run(self, command: list[str], progress: Callable[[], None]) -> bool:
        # Guarded: the download ends with this process, and does not run beside the next attempt.
        process = GuardedProcess(command, self._log)
        try:
            while process.exit_status() is None:
                progress()
                time.sleep(_PROGRESS_INTERVAL_S)
        finally:
            process.kill()
        progress()
        return process.exit_status() == 0

    def _note(self, line: str) -> None:
        with self._log.open("a") as output:
            output.write(f"{line}\n")

    def _empty(self) -> None:
        shutil.rmtree(self._part, ignore_errors=True)
        self._part.mkdir()

    def _is_complete(self) -> bool:
        """Return whether no jar of the list is missing and no jar in the folder is damaged."""
        files = {*self._part.glob("*.jar")}
        return {self._part / module.file for module in self._modules} <= files and all(map(_is_sound, files))

    def _is_accepted(self) -> bool:
        """Return whether the folder is complete and no hash is wrong; note the jars that are refused."""
        self._refused += (strangers := self._strangers())
        return not strangers and self._is_complete()

    def _strangers(self) -> list[str]:
        """Return the files whose hash is not the known one, each with what to look for."""
        found = []
        for text, expected in self._jars.sha256.items():
            module = _Module.of(text)
            file = self._part / module.file
            if file.exists() and (digest := _sha256(file)) != expected:
                found.append(
                    f"{file.name} (SHA-256 {digest}, known is {expected}; Maven's folder {module.maven_folder})"
                )
        return found


def _is_sound(jar: Path) -> bool:
    try:
        with zipfile.ZipFile(jar) as archive:
            return archive.testzip() is None
    except (OSError, zipfile.BadZipFile):
        return False


def _sha256(file: Path) -> str:
    with file.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()


def _ivy_jar() -> Path | None:
    # Found without importing pyspark, which takes a second.
    spec = importlib.util.find_spec("pyspark")
    folders = [Path(folder, "jars") for folder in (spec.submodule_search_locations or ())] if spec else []
    return next((jar for folder in folders for jar in sorted(folder.glob("ivy-*.jar"))), None)


def _ivy_cache() -> Path:
    return cache_dir() / "ivy"


@contextmanager
def _lock(path: Path, waiting: Callable[[], None]) -> Iterator[None]:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            waiting()
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _say_on_stderr(line: str) -> None:
    sys.stderr.write(f"{line}\n")
    sys.stderr.flush()


# Without usepoms="false" Ivy reads the description of every module and its parents: 400 requests instead of 90.
_IVY_SETTINGS = """<ivysettings>
  <settings defaultResolver="central"/>
  <caches defaultCacheDir={cache}/>
  <timeout-constraints>
    <timeout-constraint name="patient" connectionTimeout="15000" readTimeout="60000"/>
  </timeout-constraints>
  <resolvers>
    <ibiblio name="central" m2compatible="true" usepoms="{poms}" timeoutConstraint="patient"/>
  </resolvers>
</ivysettings>
"""


def _ivy_module(modules: list[_Module], transitive: str) -> str:
    wanted = []
    for module in modules:
        part = f'<artifact name="{module.artifact}" type="jar" ext="jar" maven:classifier="{module.classifier}"/>'
        wanted.append(
            f'<dependency org="{module.group}" name="{module.artifact}" rev="{module.version}" '
            f'conf="default->default" transitive="{transitive}">{part if module.classifier else ""}</dependency>'
        )
    return f"""<ivy-module version="2.0" xmlns:maven="http://ant.apache.org/ivy/maven">
  <info organisation="pyspark-kafka-group" module="jars"/>
  <configurations><conf name="default"/></configurations>
  <dependencies>{"".join(wanted)}</dependencies>
</ivy-module>
"""


def _maven_project(modules: list[_Module]) -> str:
    wanted = []
    for group, artifact, version, classifier in modules:
        part = f"<classifier>{classifier}</classifier>" if classifier else ""
        wanted.append(
            f"<dependency><groupId>{group}</groupId><artifactId>{artifact}</artifactId><version>{version}</version>"
            f"{part}</dependency>"
        )
    return f"""<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>
  <groupId>pyspark-kafka-group</groupId><artifactId>jars</artifactId><version>1</version>
  <packaging>pom</packaging>
  <dependencies>{"".join(wanted)}</dependencies>
</project>
"""
