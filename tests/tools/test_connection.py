"""The ways to name the cluster of a command."""

from __future__ import annotations

from pathlib import Path

import pytest

from pyspark_kafka_group.offsets.errors import ConfigurationError
from pyspark_kafka_group.tools.connection import open_inspection, profile_file, properties_of


@pytest.fixture
def home(tmp_path: Path) -> dict[str, str]:
    (tmp_path / "kafka-group").mkdir()
    (tmp_path / "kafka-group" / "prod.properties").write_text("bootstrap.servers=prod:1\n", encoding="utf-8")
    (tmp_path / "mine.properties").write_text("bootstrap.servers=mine:1\nsecurity.protocol=SSL\n", encoding="utf-8")
    return {"XDG_CONFIG_HOME": str(tmp_path), "file": str(tmp_path / "mine.properties")}


def test_an_option_names_the_servers() -> None:
    assert properties_of("a:1", None, None, {}) == {"bootstrap.servers": "a:1"}


def test_a_file_or_a_profile_has_everything(home: dict[str, str]) -> None:
    assert properties_of(None, home["file"], None, home) == {
        "bootstrap.servers": "mine:1",
        "security.protocol": "SSL",
    }
    assert properties_of(None, None, "prod", home) == {"bootstrap.servers": "prod:1"}


def test_the_environment_names_servers_a_file_or_a_profile(home: dict[str, str]) -> None:
    def servers(**environment: str) -> str:
        return properties_of(None, None, None, {**home, **environment})["bootstrap.servers"]

    assert servers(KAFKA_GROUP_BOOTSTRAP_SERVERS="env:1") == "env:1"
    assert servers(KAFKA_GROUP_CONFIG=home["file"]) == "mine:1"
    assert servers(KAFKA_GROUP_PROFILE="prod") == "prod:1"


def test_options_count_more_than_the_environment(home: dict[str, str]) -> None:
    environment = {**home, "KAFKA_GROUP_CONFIG": home["file"], "KAFKA_GROUP_BOOTSTRAP_SERVERS": "env:1"}
    assert properties_of("a:1", None, "prod", environment) == {"bootstrap.servers": "a:1"}
    assert properties_of(None, home["file"], None, environment)["security.protocol"] == "SSL"


def test_a_variable_does_not_send_the_command_of_a_profile_to_another_cluster(home: dict[str, str]) -> None:
    """Regression: with the variable set, ``reset --profile prod --execute`` changed the cluster of the variable."""
    environment = {**home, "KAFKA_GROUP_BOOTSTRAP_SERVERS": "env:1"}
    assert properties_of(None, None, "prod", environment) == {"bootstrap.servers": "prod:1"}
    Path(home["file"]).write_text("security.protocol=SSL\n", encoding="utf-8")
    found = properties_of(None, home["file"], None, environment)
    assert found == {"bootstrap.servers": "env:1", "security.protocol": "SSL"}


def test_two_files_are_refused(home: dict[str, str]) -> None:
    """Regression: the profile was ignored."""
    with pytest.raises(ConfigurationError, match="--config and --profile both name a file"):
        properties_of(None, home["file"], "prod", home)
    environment = {**home, "KAFKA_GROUP_CONFIG": home["file"], "KAFKA_GROUP_PROFILE": "prod"}
    with pytest.raises(ConfigurationError, match="KAFKA_GROUP_CONFIG and KAFKA_GROUP_PROFILE both name a file"):
        properties_of(None, None, None, environment)


def test_what_is_missing_is_said(home: dict[str, str]) -> None:
    with pytest.raises(ConfigurationError, match="--bootstrap-server HOST:PORT"):
        properties_of(None, None, None, {})
    with pytest.raises(ConfigurationError, match=r"other\.properties: No such file"):
        properties_of(None, None, "other", home)
    with pytest.raises(ConfigurationError, match="is not the name of a profile"):
        profile_file("../x", home)
    binary = Path(home["XDG_CONFIG_HOME"]) / "binary"
    binary.write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigurationError, match="UTF-8"):
        properties_of(None, str(binary), None, home)


def test_a_way_to_connect_that_is_not_spoken_is_refused_without_values() -> None:
    with pytest.raises(ConfigurationError, match=r"sasl\.something") as problem:
        open_inspection({"bootstrap.servers": "a:1", "sasl.something": "s3cret"})
    assert "s3cret" not in str(problem.value)
