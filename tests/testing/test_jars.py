"""One process at a time fetches jars, once and completely, and repairs damaged ones.

Small programs imitate Ivy and Maven.  The jars that they write show what the code has requested.
"""

import dataclasses
import hashlib
import io
import json
import os
import re
import shutil
import subprocess
import sys
import textwrap
import zipfile
from pathlib import Path

import pytest

from pyspark_kafka_group.testing import jars, local
from pyspark_kafka_group.testing.errors import KafkaTestingError
from pyspark_kafka_group.testing.jars import JarSet, cache_dir, kafka_jars, resolve
from pyspark_kafka_group.testing.pinned_jars import KAFKA_JARS, KAFKA_VERSION
from tests.missing_tools import skip_without

TWO = JarSet(name="two-1", label="Two jars 1", modules=("org.a:alpha:1.0", "org.b:beta_2.13:2.5"))
NAMES = ["alpha-1.0.jar", "beta_2.13-2.5.jar"]

# Writes the jars that ivy.xml requests, like ``java -jar ivy.jar``.  The file "behaviour" changes that.
FAKE_JAVA = """
import pathlib, re, sys, time, zipfile
here = pathlib.Path(__file__).parent
if "-version" in sys.argv:
    sys.exit(print('openjdk version "17.0.1"', file=sys.stderr))
with (here / "runs").open("a") as runs:
    runs.write("ivy\\n")
behaviour = (here / "behaviour").read_text()
ivy_xml = pathlib.Path(sys.argv[sys.argv.index("-ivy") + 1])
target = pathlib.Path(sys.argv[sys.argv.index("-retrieve") + 1]).parent
(cache,) = re.findall('defaultCacheDir="(.*?)"', (target / "ivysettings.xml").read_text())
pathlib.Path(cache).mkdir(exist_ok=True)
damage = pathlib.Path(cache, "damage")
if behaviour == "damaged cache" and not (here / "was-damaged").exists():
    damage.touch()
    (here / "was-damaged").touch()
for name, version in re.findall('name="(.*?)" rev="(.*?)"', ivy_xml.read_text()):
    jar = target / f"{name}-{version}.jar"
    print(f"[SUCCESSFUL ] {name} (3ms)", flush=True)
    if damage.exists():
        jar.write_bytes(b"PK half a jar")
        continue
    content = "other" if (behaviour, name) == ("another alpha", "alpha") else name
    with zipfile.ZipFile(jar, "w") as archive:
        archive.writestr(zipfile.ZipInfo("content"), content)
    if behaviour == "fails half-way":
        sys.exit(1)
if behaviour == "slow":
    time.sleep(0.5)
"""
FAKE_MAVEN = """
import pathlib, re, sys, zipfile
here = pathlib.Path(__file__).parent
with (here / "runs").open("a") as runs:
    runs.write("maven\\n")
(here / "strict").write_text(str("--strict-checksums" in sys.argv))
(target,) = [a.partition("=")[2] for a in sys.argv if a.startswith("-DoutputDirectory=")]
pom = pathlib.Path(sys.argv[sys.argv.index("-f") + 1]).read_text()
for name, version in re.findall("<artifactId>([^<]*)</artifactId><version>([^<]*)</version></dependency>", pom):
    with zipfile.ZipFile(pathlib.Path(target, f"{name}-{version}.jar"), "w") as archive:
        archive.writestr(zipfile.ZipInfo("content"), name)
"""


def sha256_of_jar(content: str) -> str:
    """Return the hash of the jar that the imitations make."""
    jar = io.BytesIO()
    with zipfile.ZipFile(jar, "w") as archive:
        archive.writestr(zipfile.ZipInfo("content"), content)
    return hashlib.sha256(jar.getvalue()).hexdigest()


PINNED = dataclasses.replace(
    TWO, sha256={"org.a:alpha:1.0": sha256_of_jar("alpha"), "org.b:beta_2.13:2.5": sha256_of_jar("beta_2.13")}
)


class Tools:
    """The imitated tools of a test."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.behave("well")

    def install(self, name: str, source: str) -> None:
        program = self.folder / name
        program.write_text(f"#!{sys.executable}\n{textwrap.dedent(source)}")
        program.chmod(0o755)

    def behave(self, behaviour: str) -> None:
        (self.folder / "behaviour").write_text(behaviour)

    @property
    def runs(self) -> list[str]:
        runs = self.folder / "runs"
        return runs.read_text().split() if runs.exists() else []


@pytest.fixture
def tools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Tools:
    folder = tmp_path / "tools"
    folder.mkdir()
    tools = Tools(folder)
    tools.install("java", FAKE_JAVA)
    monkeypatch.setenv("PATH", str(folder))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PYSPARK_KAFKA_GROUP_CACHE", str(tmp_path / "cache"))
    return tools


def forget_this_process() -> None:
    """Let the code check hashes again, like a new process."""
    jars._hashed.clear()


def test_jars_are_fetched_once(tools: Tools) -> None:
    first = resolve(TWO)
    forget_this_process()
    assert resolve(TWO) == first
    assert [jar.name for jar in first] == NAMES
    assert zipfile.ZipFile(first[1]).read("content") == b"beta_2.13"
    assert tools.runs == ["ivy"]


def test_nothing_but_jars_and_their_manifest_is_left_in_the_folder(tools: Tools) -> None:
    del tools
    folder = resolve(TWO)[0].parent
    assert sorted(file.name for file in folder.iterdir()) == [*NAMES, "manifest.json"]
    assert sorted(json.loads((folder / "manifest.json").read_text())) == NAMES


def test_the_first_fetch_is_announced_in_plain_words(tools: Tools) -> None:
    del tools
    said: list[str] = []
    many = JarSet(name="many", label="Many jars", modules=tuple(f"org:jar{i}:1" for i in range(25)))
    resolve(many, say=said.append)
    assert said == [
        "fetching Many jars (25 jars, once per user) ...",
        "  10 jars fetched",
        "  20 jars fetched",
        "fetched Many jars: 25 jars",
    ]
    resolve(many, say=said.append)
    assert len(said) == 4


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
    assert resolve(TWO)[0].read_bytes()[-1:] == content[-1:]
    assert zipfile.ZipFile(jar).testzip() is None
    assert tools.runs == ["ivy", "ivy"]


def test_ivys_cache_is_discarded_when_it_delivers_damaged_jars(tools: Tools) -> None:
    tools.behave("damaged cache")
    assert zipfile.ZipFile(resolve(TWO)[0]).testzip() is None
    assert tools.runs == ["ivy", "ivy"]


def test_a_failed_fetch_leaves_no_set_but_ivys_own_cache(tools: Tools) -> None:
    tools.behave("fails half-way")
    with pytest.raises(KafkaTestingError, match=r"^could not fetch Two jars 1, neither with Ivy nor with Maven"):
        resolve(TWO)
    assert sorted(file.name for file in (cache_dir() / "jars").iterdir()) == ["two-1.log"]
    assert (cache_dir() / "ivy").is_dir()
    assert "Maven: there is no mvn on the path" in (cache_dir() / "jars" / "two-1.log").read_text()
    tools.behave("well")
    assert [jar.name for jar in resolve(TWO)] == NAMES


def test_maven_is_used_where_ivy_fails(tools: Tools) -> None:
    tools.behave("fails half-way")
    tools.install("mvn", FAKE_MAVEN)
    assert [jar.name for jar in resolve(TWO)] == NAMES
    assert tools.runs == ["ivy", "maven"]


def test_maven_is_used_where_pyspark_has_no_ivy(tools: Tools, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jars, "_ivy_jar", lambda: None)
    tools.install("mvn", FAKE_MAVEN)
    assert [jar.name for jar in resolve(TWO)] == NAMES
    assert tools.runs == ["maven"]


def test_without_ivy_and_maven_the_error_says_what_to_install(tools: Tools, monkeypatch: pytest.MonkeyPatch) -> None:
    """Regression: it advised to check the network, and only a log named the missing packages."""
    monkeypatch.setattr(jars, "_ivy_jar", lambda: None)
    with pytest.raises(KafkaTestingError, match="neither PySpark, which ships Ivy, nor Maven is installed here"):
        resolve(TWO)
    assert tools.runs == []


def test_two_processes_at_once_fetch_once(tools: Tools) -> None:
    tools.behave("slow")
    script = (
        "from pyspark_kafka_group.testing.jars import JarSet, resolve\n"
        f"print(len(resolve(JarSet(name={TWO.name!r}, label='Two', modules={TWO.modules!r}))))"
    )
    processes = [
        subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    answers = [process.communicate(timeout=60) for process in processes]
    assert [output.strip() for output, _ in answers] == ["2", "2"]
    assert tools.runs == ["ivy"]
    assert sum("another process is fetching jars" in said for _, said in answers) == 1


def test_jars_with_known_hashes_are_fetched_once(tools: Tools) -> None:
    assert [jar.name for jar in resolve(PINNED)] == NAMES
    forget_this_process()
    assert [jar.name for jar in resolve(PINNED)] == NAMES
    assert tools.runs == ["ivy"]


def test_a_jar_that_is_not_what_it_was_is_refused(tools: Tools) -> None:
    tools.behave("another alpha")
    with pytest.raises(KafkaTestingError) as problem:
        resolve(PINNED)
    jars_folder = cache_dir() / "jars"
    assert str(problem.value) == (
        f"could not fetch Two jars 1: refused alpha-1.0.jar (SHA-256 {sha256_of_jar('other')}, known is "
        f"{sha256_of_jar('alpha')}; Maven's folder org/a/alpha/1.0). A mirror or proxy on the way to Maven Central "
        "changes jars or keeps a bad copy: have it repaired, or use another. A bad copy may also be in "
        f"Maven's local repository: remove its folder there. Details are in {jars_folder / 'two-1.log'}"
    )
    assert tools.runs == ["ivy", "ivy"], "the second time without what Ivy had kept"
    assert sorted(file.name for file in jars_folder.iterdir()) == ["two-1.log"]
    tools.behave("well")
    assert [jar.name for jar in resolve(PINNED)] == NAMES


def test_maven_is_asked_where_ivy_gives_another_jar(tools: Tools) -> None:
    tools.behave("another alpha")
    tools.install("mvn", FAKE_MAVEN)
    assert zipfile.ZipFile(resolve(PINNED)[0]).read("content") == b"alpha"
    assert tools.runs == ["ivy", "ivy", "maven"]


def test_another_jar_from_maven_is_refused(tools: Tools) -> None:
    tools.behave("fails half-way")
    tools.install("mvn", FAKE_MAVEN.replace('ZipInfo("content"), name', 'ZipInfo("content"), name + "?"'))
    with pytest.raises(
        KafkaTestingError, match=r"refused alpha-1\.0\.jar .*; beta_2\.13-2\.5\.jar .* org/b/beta_2\.13/2\.5"
    ):
        resolve(PINNED)


def test_a_cached_jar_with_another_hash_is_fetched_again_even_if_the_manifest_knows_it(tools: Tools) -> None:
    tools.behave("another alpha")
    jar = resolve(TWO)[0]
    tools.behave("well")
    forget_this_process()
    said: list[str] = []
    assert resolve(PINNED, say=said.append)[0] == jar
    assert zipfile.ZipFile(jar).read("content") == b"alpha"
    assert said[0] == f"{jar} has changed: Two jars 1 must be fetched again"


@pytest.mark.parametrize(("wanted", "strict"), [(TWO, "True"), (PINNED, "False")])
def test_maven_compares_with_the_repositorys_checksums_where_no_hash_is_known(
    wanted: JarSet, strict: str, tools: Tools
) -> None:
    tools.behave("fails half-way")
    tools.install("mvn", FAKE_MAVEN)
    resolve(wanted)
    assert (tools.folder / "strict").read_text() == strict


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


@pytest.mark.parametrize(("version", "pinned"), [(KAFKA_VERSION, True), ("4.2.0", False)])
def test_only_the_pinned_kafka_has_known_hashes(version: str, pinned: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[JarSet] = []
    monkeypatch.setattr(jars, "resolve", asked.append)
    kafka_jars(version)
    assert bool(asked[0].sha256) is pinned
    assert asked[0].transitive is not pinned
    assert f"org.apache.kafka:kafka_2.13:{version}" in asked[0].modules


@pytest.mark.parametrize(
    ("version", "logging"), [("3.9.1", "org.slf4j:slf4j-reload4j"), ("4.0.1", "org.apache.logging.log4j:log4j-core")]
)
def test_each_kafka_gets_the_logging_that_it_starts_with(
    version: str, logging: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[JarSet] = []
    monkeypatch.setattr(jars, "resolve", asked.append)
    kafka_jars(version)
    assert logging in {module.rpartition(":")[0] for module in asked[0].modules}


@pytest.mark.parametrize(
    ("given", "variable", "expected"),
    [(None, None, KAFKA_VERSION), (None, "4.0.1", "4.0.1"), ("3.9.1", "4.0.1", "3.9.1"), (None, "", KAFKA_VERSION)],
)
def test_the_version_is_the_one_given_else_the_variables(
    given: str | None, variable: str | None, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    class StopHereError(Exception):
        pass

    def record(version: str) -> list[Path]:
        asked.append(version)
        raise StopHereError

    asked: list[str] = []
    monkeypatch.setattr(local, "kafka_jars", record)
    monkeypatch.delenv(local.VERSION_VARIABLE, raising=False)
    if variable is not None:
        monkeypatch.setenv(local.VERSION_VARIABLE, variable)
    with pytest.raises(StopHereError):
        local.LocalKafka(version=given).start()
    assert asked == [expected]


def test_pysparks_ivy_is_found() -> None:
    ivy = jars._ivy_jar()
    assert ivy is not None
    assert "org/apache/ivy/Main.class" in zipfile.ZipFile(ivy).namelist()
