"""Fetching jars once per user, with nothing but Java and PySpark, and checking them before each use.

A `JarSet` names what is wanted; `resolve` returns the files.  They come through Ivy, which PySpark ships among
its own jars and which can be run by itself; where Ivy fails, through Maven if it is installed.  Both take about
20 s for Kafka when nothing is cached (measured; 75 s if Ivy has to read every module's dependencies, hence the
complete list in `pinned_jars`).  Ivy goes first because it is there wherever PySpark is; Maven second because a
company's mirror or proxy is usually set up for it alone.

Deliberate: no library that fetches URLs, such as pooch.  It would know nothing of the mirrors, proxies and passwords
that Java and Maven are set up with, and `LocalKafka` would need a package more.

Where the hash of a jar is known before it is fetched, a file with another one is never used, wherever it came from.
Where it is not, Ivy and Maven compare with the checksum that the repository publishes.

Layout of the cache: ``jars/<set>/`` with ``manifest.json`` beside the jars, ``ivy/`` (Ivy's own cache, which makes
an interrupted download go on where it stopped), ``lock`` (one fetch at a time), ``<set>.log`` (the last fetch).
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
from xml.sax.saxutils import quoteattr

from pyspark_kafka_group.testing.java import find_java
from pyspark_kafka_group.testing.kafka import KafkaTestingError
from pyspark_kafka_group.testing.pinned_jars import (
    KAFKA_JARS,
    KAFKA_VERSION,
    LOGGING_JARS,
    LOGGING_JARS_OF_3,
)
from pyspark_kafka_group.testing.process import GuardedProcess

CACHE_VARIABLE = "PYSPARK_KAFKA_GROUP_CACHE"


@dataclass(frozen=True, slots=True, kw_only=True)
class JarSet:
    """Jars that are fetched, checked and used together.

    Attributes
    ----------
    name
        Folder in the cache.  Another list of modules needs another name.
    label
        What the user is told is being fetched.
    modules
        ``group:artifact:version`` each, or ``group:artifact:version:classifier``.
    transitive
        Whether to fetch what the modules depend on, too; slow, so a complete list is better.
    sha256
        The hash of each module's jar, in hexadecimal, by module; empty if they are not known.
    """

    name: str
    label: str
    modules: tuple[str, ...]
    transitive: bool = False
    sha256: Mapping[str, str] = field(default_factory=dict)

    @property
    def hashes(self) -> dict[str, str]:
        """The known hashes by name of file."""
        return {_file_name(module): digest for module, digest in self.sha256.items()}


def kafka_jars(version: str = KAFKA_VERSION) -> list[Path]:
    """The jars of a Kafka broker, fetched if they are not there yet."""
    label = f"Apache Kafka {version}"
    if version == KAFKA_VERSION:
        return resolve(JarSet(name=f"kafka-{version}", label=label, modules=tuple(KAFKA_JARS), sha256=KAFKA_JARS))
    logging = LOGGING_JARS_OF_3 if version.startswith("3.") else LOGGING_JARS
    modules = (f"org.apache.kafka:kafka_2.13:{version}", *logging)
    return resolve(JarSet(name=f"kafka-{version}", label=label, modules=modules, transitive=True))


def cache_dir() -> Path:
    """Where jars are kept: ``PYSPARK_KAFKA_GROUP_CACHE``, else the user's cache folder as XDG defines it."""
    override = os.environ.get(CACHE_VARIABLE)
    if override:
        return Path(override).expanduser().absolute()
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "pyspark-kafka-group"


def resolve(jars: JarSet, *, say: Callable[[str], None] | None = None) -> list[Path]:
    """The files of a set, sorted by name; fetched, or fetched again, unless they are there and intact.

    Parameters
    ----------
    jars
        What is wanted.
    say
        Called with each line of progress; by default they go to standard error.

    Raises
    ------
    KafkaTestingError
        The jars could not be fetched, or one is not the file whose hash is known; the text says which, what was
        tried, what to do, and where the details are.
    """
    folder = cache_dir() / "jars" / jars.name
    files = _intact(jars, folder)
    if files is None:
        say = say or _say_on_stderr
        with _lock(cache_dir() / "lock", lambda: say(f"another process is fetching jars, waiting for {jars.label}")):
            # Whoever held the lock may have fetched the same set.
            files = _intact(jars, folder, say) or _fetch(jars, folder, say)
    return files


# Folders whose hashes this process has compared; afterwards sizes are enough.
_hashed: set[Path] = set()


def _intact(jars: JarSet, folder: Path, say: Callable[[str], None] | None = None) -> list[Path] | None:
    """The files of a complete, undamaged folder, or None."""
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
                say(f"{file} is not what it was: {jars.label} must be fetched again")
            return None
    except (OSError, ValueError):
        return None
    _hashed.add(folder)
    return files


def _fetch(jars: JarSet, folder: Path, say: Callable[[str], None]) -> list[Path]:
    count = "" if jars.transitive else f"{len(jars.modules)} jars, "
    say(f"fetching {jars.label} ({count}once per user) ...")
    part = folder.with_name(f"{folder.name}.part")
    log = folder.with_name(f"{folder.name}.log")
    part.parent.mkdir(parents=True, exist_ok=True)
    log.unlink(missing_ok=True)
    _hashed.discard(folder)
    refused: list[str] = []
    if not (_with_ivy(jars, part, log, say, refused) or _with_maven(jars, part, log, say, refused)):
        shutil.rmtree(part, ignore_errors=True)
        if refused:
            raise KafkaTestingError(
                f"could not fetch {jars.label}: refused {'; '.join(refused)}. A mirror or proxy on the way to Maven "
                "Central changes jars or keeps a bad copy: have it repaired, or use another. A bad copy may also be "
                f"Maven's own: remove the folder from its local repository. Details are in {log}"
            )
        raise KafkaTestingError(
            f"could not fetch {jars.label}, neither with Ivy nor with Maven; details are in {log}. Check the "
            "network; behind a proxy set JAVA_TOOL_OPTIONS='-Dhttps.proxyHost=HOST -Dhttps.proxyPort=PORT', or "
            "configure Maven. What was fetched so far is kept for the next attempt"
        )
    for left_over in part.iterdir():
        if left_over.suffix != ".jar":
            left_over.unlink()
    files = sorted(part.iterdir())
    manifest = {file.name: {"bytes": file.stat().st_size, "sha256": _sha256(file)} for file in files}
    # The manifest goes last into a folder that gets its name last: what has both is complete.
    (part / "manifest.json").write_text(json.dumps(manifest, indent=1))
    shutil.rmtree(folder, ignore_errors=True)
    part.rename(folder)
    say(f"fetched {jars.label}: {len(files)} jars")
    return [folder / file.name for file in files]


def _with_ivy(jars: JarSet, target: Path, log: Path, say: Callable[[str], None], refused: list[str]) -> bool:
    if not _run_ivy(jars, target, log, say):
        return False
    if _is_complete(jars, target) and not _strangers(jars, target):
        return True
    # Ivy does not notice a file that was damaged in its own cache.
    say("  a fetched jar is damaged or not the one that is known, fetching all of them again")
    shutil.rmtree(_ivy_cache(), ignore_errors=True)
    return _run_ivy(jars, target, log, say) and _is_accepted(jars, target, refused)


def _run_ivy(jars: JarSet, target: Path, log: Path, say: Callable[[str], None]) -> bool:
    ivy = _ivy_jar()
    if ivy is None:
        _note(log, "Ivy: PySpark is not installed here, or ships none")
        return False
    _empty(target)
    transitive = str(jars.transitive).lower()
    dependencies = "".join(
        _IVY_DEPENDENCY.format(
            **named, transitive=transitive, part=_IVY_PART.format(**named) if named["classifier"] else ""
        )
        for named in map(_split, jars.modules)
    )
    settings, wanted = target / "ivysettings.xml", target / "ivy.xml"
    settings.write_text(_IVY_SETTINGS.format(cache=quoteattr(str(_ivy_cache())), poms=transitive))
    wanted.write_text(_IVY_MODULE.format(dependencies=dependencies))
    command = [str(find_java()), "-jar", str(ivy), "-settings", str(settings), "-ivy", str(wanted)]
    command += ["-retrieve", f"{target}/[artifact]-[revision](-[classifier]).[ext]"]
    said = 0

    def progress() -> None:
        nonlocal said
        fetched = log.read_text(errors="replace").count("[SUCCESSFUL ]")
        while fetched >= said + _SAY_EVERY:
            said += _SAY_EVERY
            say(f"  {said} jars fetched")

    return _run(command, log, progress)


def _with_maven(jars: JarSet, target: Path, log: Path, say: Callable[[str], None], refused: list[str]) -> bool:
    maven = shutil.which("mvn")
    if maven is None:
        _note(log, "Maven: there is no mvn on the path")
        return False
    say("  Ivy could not fetch everything, trying Maven")
    _empty(target)
    dependencies = "".join(
        _POM_DEPENDENCY.format(**named, part=_POM_PART.format(**named) if named["classifier"] else "")
        for named in map(_split, jars.modules)
    )
    pom = target / "pom.xml"
    pom.write_text(_POM.format(dependencies=dependencies))
    command = [maven, "-B", "-f", str(pom), "dependency:copy-dependencies", "-DincludeScope=runtime"]
    command += [f"-DexcludeTransitive={str(not jars.transitive).lower()}", f"-DoutputDirectory={target}"]
    if not jars.sha256:
        # Else it only warns of a jar that is not what the repository's checksum says.
        command.append("--strict-checksums")
    return _run(command, log, lambda: None) and _is_accepted(jars, target, refused)


def _run(command: list[str], log: Path, progress: Callable[[], None]) -> bool:
    # Guarded, so that a download whose owner was killed does not go on beside the next attempt.
    process = GuardedProcess(command, log)
    try:
        while process.exit_status() is None:
            progress()
            time.sleep(_PROGRESS_INTERVAL_S)
    finally:
        process.kill()
    progress()
    return process.exit_status() == 0


def _note(log: Path, line: str) -> None:
    with log.open("a") as output:
        output.write(f"{line}\n")


def _empty(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()


def _is_complete(jars: JarSet, folder: Path) -> bool:
    """Whether no jar of the list is missing and none in the folder is damaged."""
    files = set(folder.glob("*.jar"))
    wanted = {folder / _file_name(module) for module in jars.modules}
    return wanted <= files and all(map(_is_sound, files))


def _is_accepted(jars: JarSet, folder: Path, refused: list[str]) -> bool:
    """Whether a folder is complete and holds no other file than is known; what is refused is added to the list."""
    refused += (strangers := _strangers(jars, folder))
    return not strangers and _is_complete(jars, folder)


def _strangers(jars: JarSet, folder: Path) -> list[str]:
    """The files that are there and whose hash is not the known one, each with what to look for."""
    found = []
    for module, expected in jars.sha256.items():
        file = folder / _file_name(module)
        if file.exists() and (digest := _sha256(file)) != expected:
            named = _split(module)
            place = f"{named['group'].replace('.', '/')}/{named['artifact']}/{named['version']}"
            found.append(f"{file.name} (SHA-256 {digest}, known is {expected}; Maven's folder {place})")
    return found


def _file_name(module: str) -> str:
    _, *parts = module.split(":")
    return f"{'-'.join(parts)}.jar"


def _split(module: str) -> dict[str, str]:
    return dict(zip(("group", "artifact", "version", "classifier"), (*module.split(":"), ""), strict=False))


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


_SAY_EVERY = 10
_PROGRESS_INTERVAL_S = 0.1

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
_IVY_MODULE = """<ivy-module version="2.0" xmlns:maven="http://ant.apache.org/ivy/maven">
  <info organisation="pyspark-kafka-group" module="jars"/>
  <configurations><conf name="default"/></configurations>
  <dependencies>{dependencies}</dependencies>
</ivy-module>
"""
_IVY_DEPENDENCY = (
    '<dependency org="{group}" name="{artifact}" rev="{version}" conf="default->default" transitive="{transitive}">'
    "{part}</dependency>"
)
_IVY_PART = '<artifact name="{artifact}" type="jar" ext="jar" maven:classifier="{classifier}"/>'
_POM = """<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>
  <groupId>pyspark-kafka-group</groupId><artifactId>jars</artifactId><version>1</version>
  <packaging>pom</packaging>
  <dependencies>{dependencies}</dependencies>
</project>
"""
_POM_DEPENDENCY = (
    "<dependency><groupId>{group}</groupId><artifactId>{artifact}</artifactId><version>{version}</version>{part}"
    "</dependency>"
)
_POM_PART = "<classifier>{classifier}</classifier>"
