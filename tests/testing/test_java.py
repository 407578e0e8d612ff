"""The search for Java: accepted versions, and the errors otherwise."""

from pathlib import Path

import pytest

from pyspark_kafka_group.testing.java import JavaError, find_java


def fake_java(folder: Path, answer: str, status: int = 0) -> Path:
    """Write a ``bin/java`` that answers like ``java -version``, on standard error."""
    java = folder / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(f"#!/bin/sh\ncat >&2 <<'END'\n{answer}\nEND\nexit {status}\n")
    java.chmod(0o755)
    return java


@pytest.fixture(autouse=True)
def only_system_tools(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Hide every Java, but not `cat` and `sh`.  A test may provide a Java."""
    tools = tmp_path / "tools"
    tools.mkdir()
    (tools / "cat").symlink_to("/bin/cat")
    monkeypatch.setenv("PATH", str(tools))
    monkeypatch.delenv("JAVA_HOME", raising=False)


@pytest.mark.parametrize(
    "answer",
    [
        'openjdk version "17.0.15" 2025-04-15',
        'openjdk version "25" 2025-09-16',
        'Picked up JAVA_TOOL_OPTIONS: -Dx=y\nopenjdk version "21.0.2" 2024-01-16',
    ],
)
def test_java_home_with_a_new_enough_java_is_used(answer: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    java = fake_java(tmp_path / "jdk", answer)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "jdk"))
    assert find_java() == java


def test_java_on_the_path_is_used_without_java_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    java = fake_java(tmp_path / "jdk", 'openjdk version "17.0.1"')
    monkeypatch.setenv("PATH", f"{tmp_path / 'tools'}:{java.parent}")
    assert find_java() == java


def test_no_java_is_one_line_that_says_what_to_install() -> None:
    with pytest.raises(JavaError) as raised:
        find_java()
    assert str(raised.value) == (
        "Kafka needs Java, and there is no java on the path: install Java 17 or newer "
        "(Debian, Ubuntu: openjdk-17-jre-headless; Fedora: java-21-openjdk-headless; macOS: brew install openjdk@21)"
    )


@pytest.mark.parametrize(("answer", "version"), [('java version "1.8.0_402"', "1"), ('openjdk version "11.0.2"', "11")])
def test_an_old_java_is_refused_with_its_version(
    answer: str, version: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    java = fake_java(tmp_path / "jdk", answer)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "jdk"))
    with pytest.raises(JavaError, match=f"^{java} is Java {version}, too old for Kafka: install Java 17 or newer"):
        find_java()


def test_a_java_home_without_java_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(JavaError, match=f"^JAVA_HOME={tmp_path} holds no bin/java: correct or unset it, or install"):
        find_java()


def test_a_java_that_only_complains_is_quoted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_java(tmp_path / "jdk", "The operation couldn't be completed.", status=1)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "jdk"))
    with pytest.raises(JavaError, match=r"does not run \(The operation couldn't be completed\.\): install Java 17"):
        find_java()


def test_a_java_that_writes_another_encoding_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Regression: it was a UnicodeDecodeError."""
    java = fake_java(tmp_path / "jdk", 'openjdk version "17.0.1"')
    java.write_bytes(java.read_bytes().replace(b"openjdk", b"g\xe9n\xe9rique\nopenjdk"))
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "jdk"))
    assert find_java() == java
