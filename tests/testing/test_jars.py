"""One process at a time fetches jars, once and completely, and repairs damaged ones.

Imitations of Ivy and Maven write jars that show what the code has requested.  One test runs the real Ivy.
"""

import dataclasses
import hashlib
import io
import json
import os
import re
import shutil
import time
import zipfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from pyspark_kafka_group.testing import jars, local
from pyspark_kafka_group.testing.errors import KafkaTestingError
from pyspark_kafka_group.testing.jars import JarSet, cache_dir, kafka_jars, resolve
from pyspark_kafka_group.testing.pinned_jars import KAFKA_JARS, KAFKA_VERSION
from tests.missing_tools import skip_without

TWO = JarSet(name="two-1", label="Two jars 1", modules=("org.a:alpha:1.0", "org.b:beta_2.13:2.5"))
NAMES = ["alpha-1.0.jar", "beta_2.13-2.5.jar"]


def jar_of(content: str) -> bytes:
    jar = io.BytesIO()
    with zipfile.ZipFile(jar, "w") as archive:
        archive.writestr(zipfile.ZipInfo("content"), content)
    return jar.getvalue()


def sha256_of_jar(content: str) -> str:
    return hashlib.sha256(jar_of(content)).hexdigest()


PINNED = dataclasses.replace(
    TWO, sha256={"org.a:alpha:1.0": sha256_of_jar("alpha"), "org.b:beta_2.13:2.5": sha256_of_jar("beta_2.13")}
)


class Tools:
    """Imitations of Ivy and Maven, which write the jars that their files request."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.behaviour = "well"
        self.runs: list[str] = []
        self.strict = False
        self.of_maven = ""  # what Maven's jars contain besides their names

    def has_maven(self) -> None:
        (self.folder / "mvn").touch(0o755)

    def run(self, fetch: jars._Fetch, command: list[str], progress: Callable[[], None]) -> bool:
        """Replace the process of one of the tools, and return whether it succeeded."""
        if "-ivy" not in command:
            self.runs.append("maven")
            self.strict = "--strict-checksums" in command
            pom = Path(command[command.index("-f") + 1]).read_text()
            wanted = "<artifactId>([^<]*)</artifactId><version>([^<]*)</version></dependency>"
            for name, version in re.findall(wanted, pom):
                (fetch._part / f"{name}-{version}.jar").write_bytes(jar_of(name + self.of_maven))
            return True
        self.runs.append("ivy")
        (cache,) = re.findall('defaultCacheDir="(.*?)"', (fetch._part / "ivysettings.xml").read_text())
        Path(cache).mkdir(exist_ok=True)
        damage = Path(cache, "damage")
        if self.behaviour == "damaged cache" and self.runs == ["ivy"]:
            damage.touch()
        for name, version in re.findall('name="(.*?)" rev="(.*?)"', (fetch._part / "ivy.xml").read_text()):
            content = "other" if (self.behaviour, name) == ("another alpha", "alpha") else name
            file = fetch._part / f"{name}-{version}.jar"
            file.write_bytes(b"PK half a jar" if damage.exists() else jar_of(content))
            fetch._note(f"[SUCCESSFUL ] {name} (3ms)")
            if self.behaviour == "fails half-way":
                return False
        if self.behaviour == "slow":
            time.sleep(0.5)
        progress()
        return True


@pytest.fixture
def tools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Tools:
    folder = tmp_path / "tools"
    folder.mkdir()
    tools = Tools(folder)

    def run(fetch: jars._Fetch, command: list[str], progress: Callable[[], None]) -> bool:
        return tools.run(fetch, command, progress)

    monkeypatch.setattr(jars._Fetch, "_run", run)
    monkeypatch.setattr(jars, "find_java", lambda: "java")
    monkeypatch.setenv("PATH", str(folder))
    monkeypatch.setenv("PYSPARK_KAFKA_GROUP_CACHE", str(tmp_path / "cache"))
    return tools


def forget_this_process() -> None:
    """Let the code check hashes again, like a new process."""
    jars._hashed.clear()


def test_a_cache_that_cannot_be_written_is_named(tools: Tools, monkeypatch: pytest.MonkeyPatch) -> None:
    """Regression: in a container whose user has no home it was a bare FileNotFoundError."""
    (tools.folder / "file").touch()
    monkeypatch.setenv("PYSPARK_KAFKA_GROUP_CACHE", str(tools.folder / "file" / "cache"))
    remedy = "set PYSPARK_KAFKA_GROUP_CACHE to a folder that you may write"
    with pytest.raises(KafkaTestingError, match=rf"Two jars 1 cannot be kept in .*/file/cache \(.*\): {remedy}"):
        resolve(TWO)


@pytest.mark.parametrize("wanted", [TWO, PINNED], ids=["any", "with known hashes"])
def test_jars_are_fetched_once_and_nothing_but_them_and_their_manifest_is_left(wanted: JarSet, tools: Tools) -> None:
    first = resolve(wanted)
    forget_this_process()
    assert resolve(wanted) == first
    assert [jar.name for jar in first] == NAMES
    assert zipfile.ZipFile(first[1]).read("content") == b"beta_2.13"
    assert tools.runs == ["ivy"]
    folder = first[0].parent
    assert sorted(file.name for file in folder.iterdir()) == [*NAMES, "manifest.json"]
    assert sorted(json.loads((folder / "manifest.json").read_text())) == NAMES


def test_the_first_fetch_is_announced_in_plain_words(tools: Tools) -> None:
    del tools
    said: list[str] = []
    many = JarSet(name="many", label="Many jars", modules=tuple(f"org:jar{i}:1" for i in range(25)))
    for _ in range(2):
        resolve(many, say=said.append)
        assert said == [
            "fetching Many jars (25 jars, once per user) ...",
            "  10 jars fetched",
            "  20 jars fetched",
            "fetched Many jars: 25 jars",
        ]


@pytest.mark.parametrize("harm", ["shortened", "altered", "removed", "manifest removed", "manifest cut"])
def test_a_damaged_folder_is_fetched_again(harm: str, tools: Tools) -> None:
    jar = resolve(TWO)[0]
    content, manifest = jar.read_bytes(), jar.parent / "manifest.json"
    match harm:
        case "shortened":
            jar.write_bytes(content[:-1])
        case "altered":
            jar.write_bytes(content[:-1] + b"?")
        case "removed":
            jar.unlink()
        case "manifest removed":
            manifest.unlink()
        case "manifest cut":
            manifest.write_text(manifest.read_text()[:-5])
    forget_this_process()
    assert resolve(TWO)[0].read_bytes() == content
    assert tools.runs == ["ivy", "ivy"]


def test_ivys_cache_is_discarded_when_it_delivers_damaged_jars(tools: Tools) -> None:
    tools.behaviour = "damaged cache"
    assert zipfile.ZipFile(resolve(TWO)[0]).testzip() is None
    assert tools.runs == ["ivy", "ivy"]


def test_a_failed_fetch_leaves_no_set_but_ivys_own_cache(tools: Tools) -> None:
    tools.behaviour = "fails half-way"
    with pytest.raises(KafkaTestingError, match=r"^could not fetch Two jars 1, neither with Ivy nor with Maven"):
        resolve(TWO)
    assert sorted(file.name for file in (cache_dir() / "jars").iterdir()) == ["two-1.log"]
    assert (cache_dir() / "ivy").is_dir()
    assert "Maven: there is no mvn on the path" in (cache_dir() / "jars" / "two-1.log").read_text()
    tools.behaviour = "well"
    assert [jar.name for jar in resolve(TWO)] == NAMES


@pytest.mark.parametrize(("wanted", "strict"), [(TWO, True), (PINNED, False)], ids=["any", "with known hashes"])
def test_maven_is_used_where_ivy_fails_and_compares_checksums_where_no_hash_is_known(
    wanted: JarSet, strict: bool, tools: Tools
) -> None:
    tools.behaviour = "fails half-way"
    tools.has_maven()
    assert [jar.name for jar in resolve(wanted)] == NAMES
    assert (tools.runs, tools.strict) == (["ivy", "maven"], strict)


def test_without_ivy_maven_is_used_or_the_error_says_what_to_install(
    tools: Tools, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Regression: it advised to check the network, and only a log named the missing packages."""
    monkeypatch.setattr(jars, "_ivy_jar", lambda: None)
    with pytest.raises(KafkaTestingError, match="neither PySpark, which ships Ivy, nor Maven is installed here"):
        resolve(TWO)
    tools.has_maven()
    assert [jar.name for jar in resolve(TWO)] == NAMES
    assert tools.runs == ["maven"]


def test_two_at_once_fetch_once(tools: Tools) -> None:
    tools.behaviour = "slow"
    said: list[str] = []
    with ThreadPoolExecutor(2) as both:
        found = list(both.map(lambda _: resolve(TWO, say=said.append), range(2)))
    assert found[0] == found[1]
    assert tools.runs == ["ivy"]
    assert said.count("another process is fetching jars, waiting for Two jars 1") == 1


def test_a_jar_that_is_not_what_it_was_is_refused(tools: Tools) -> None:
    tools.behaviour = "another alpha"
    with pytest.raises(KafkaTestingError, match=r"^could not fetch Two jars 1: refused .* have it repaired") as problem:
        resolve(PINNED)
    known = f"(SHA-256 {sha256_of_jar('other')}, known is {sha256_of_jar('alpha')}; Maven's folder org/a/alpha/1.0)"
    assert f"alpha-1.0.jar {known}" in str(problem.value)
    assert tools.runs == ["ivy", "ivy"], "the second time without what Ivy had kept"
    assert sorted(file.name for file in (cache_dir() / "jars").iterdir()) == ["two-1.log"]
    tools.behaviour = "well"
    assert [jar.name for jar in resolve(PINNED)] == NAMES


def test_maven_is_asked_where_ivy_gives_another_jar_and_is_refused_if_it_does_too(tools: Tools) -> None:
    tools.behaviour, tools.of_maven = "another alpha", "?"
    tools.has_maven()
    with pytest.raises(
        KafkaTestingError, match=r"refused alpha-1\.0\.jar .*; beta_2\.13-2\.5\.jar .* org/b/beta_2\.13/2\.5"
    ):
        resolve(PINNED)
    tools.of_maven = ""
    assert zipfile.ZipFile(resolve(PINNED)[0]).read("content") == b"alpha"
    assert tools.runs == ["ivy", "ivy", "maven"] * 2


def test_a_cached_jar_with_another_hash_is_fetched_again_even_if_the_manifest_knows_it(tools: Tools) -> None:
    tools.behaviour = "another alpha"
    jar = resolve(TWO)[0]
    tools.behaviour = "well"
    forget_this_process()
    said: list[str] = []
    assert resolve(PINNED, say=said.append)[0] == jar
    assert zipfile.ZipFile(jar).read("content") == b"alpha"
    assert said[0] == f"{jar} has changed: Two jars 1 must be fetched again"


@pytest.mark.parametrize(("published", "fetched"), [("right", True), ("none", True), ("wrong", False)])
def test_ivy_compares_with_the_repositorys_checksums_where_no_hash_is_known(
    published: str, fetched: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """This test runs the real Ivy, with a folder as its repository."""
    if not (shutil.which("java") or os.environ.get("JAVA_HOME")):
        skip_without("java", "Ivy needs Java")
    module = tmp_path / "repository" / "org" / "a" / "alpha" / "1.0"
    module.mkdir(parents=True)
    jar = module / "alpha-1.0.jar"
    with zipfile.ZipFile(jar, "w") as archive:
        archive.writestr("content", "alpha")
    if published != "none":
        digest = hashlib.sha1(jar.read_bytes() if published == "right" else b"").hexdigest()
        jar.with_name("alpha-1.0.jar.sha1").write_text(digest)
    root = f'm2compatible="true" root="{(tmp_path / "repository").as_uri()}/"'
    monkeypatch.setattr(jars, "_IVY_SETTINGS", jars._IVY_SETTINGS.replace('m2compatible="true"', root))
    monkeypatch.setattr(jars._Fetch, "_with_maven", lambda _: False)
    monkeypatch.setenv("PYSPARK_KAFKA_GROUP_CACHE", str(tmp_path / "cache"))
    alpha = JarSet(name="alpha", label="Alpha", modules=("org.a:alpha:1.0",))
    if fetched:
        assert [file.name for file in resolve(alpha)] == ["alpha-1.0.jar"]
    else:
        with pytest.raises(KafkaTestingError, match="could not fetch Alpha"):
            resolve(alpha)
        assert "invalid sha1" in (cache_dir() / "jars" / "alpha.log").read_text()


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({"PYSPARK_KAFKA_GROUP_CACHE": "/a", "XDG_CACHE_HOME": "/b"}, "/a"),
        ({"XDG_CACHE_HOME": "/b"}, "/b/pyspark-kafka-group"),
        ({"HOME": "/home/x"}, "/home/x/.cache/pyspark-kafka-group"),
    ],
)
def test_the_cache_is_where_the_user_wants_it(
    environment: dict[str, str], expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("PYSPARK_KAFKA_GROUP_CACHE", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert cache_dir() == Path(expected)


def test_the_list_for_the_pinned_kafka_names_every_module_once() -> None:
    names = [module.rpartition(":")[0] for module in KAFKA_JARS]
    assert len(names) == len(set(names)) == 46
    assert f"org.apache.kafka:kafka_2.13:{KAFKA_VERSION}" in KAFKA_JARS
    assert {m.rpartition(":")[2] for m in KAFKA_JARS if m.startswith("org.apache.kafka:")} == {KAFKA_VERSION}
    assert all(re.fullmatch("[0-9a-f]{64}", digest) for digest in KAFKA_JARS.values())


@pytest.mark.parametrize(
    ("version", "logging"),
    [
        (KAFKA_VERSION, "org.apache.logging.log4j:log4j-core"),
        ("4.0.1", "org.apache.logging.log4j:log4j-core"),
        ("3.9.1", "org.slf4j:slf4j-reload4j"),
    ],
)
def test_each_kafka_gets_its_logging_and_only_the_pinned_one_has_known_hashes(
    version: str, logging: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[JarSet] = []
    monkeypatch.setattr(jars, "resolve", asked.append)
    kafka_jars(version)
    assert bool(asked[0].sha256) is (version == KAFKA_VERSION)
    assert asked[0].transitive is (version != KAFKA_VERSION)
    assert f"org.apache.kafka:kafka_2.13:{version}" in asked[0].modules
    assert logging in {module.rpartition(":")[0] for module in asked[0].modules}


@pytest.mark.parametrize(
    ("given", "variable", "expected"),
    [(None, None, KAFKA_VERSION), (None, "4.0.1", "4.0.1"), ("3.9.1", "4.0.1", "3.9.1"), (None, "", KAFKA_VERSION)],
)
def test_the_version_is_the_one_given_else_the_variables(
    given: str | None, variable: str | None, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    def stop(version: str) -> list[Path]:
        asked.append(version)
        raise KafkaTestingError("far enough")

    monkeypatch.setattr(local, "kafka_jars", stop)
    monkeypatch.delenv(local.VERSION_VARIABLE, raising=False)
    if variable is not None:
        monkeypatch.setenv(local.VERSION_VARIABLE, variable)
    with pytest.raises(KafkaTestingError, match="far enough"):
        local.LocalKafka(version=given).start()
    assert asked == [expected]
