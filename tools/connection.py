"""Finds the cluster of a command: by options, by a file, by a profile, or by the environment."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path

from pyspark_kafka_group.cluster.cluster import Cluster, connect
from pyspark_kafka_group.cluster.properties.secret_references import parse
from pyspark_kafka_group.offsets.errors import ConfigurationError
from pyspark_kafka_group.tools.properties_file import of_connection

BOOTSTRAP_VARIABLE = "KAFKA_GROUP_BOOTSTRAP_SERVERS"
CONFIG_VARIABLE = "KAFKA_GROUP_CONFIG"
PROFILE_VARIABLE = "KAFKA_GROUP_PROFILE"

_CLIENT_ID = "kafka-group-cli"
_PROFILE_NAME = re.compile(r"[\w.-]+")
_PROFILE_SUFFIX = ".properties"


def profile_file(name: str, environment: Mapping[str, str]) -> Path:
    """Return the file of a profile: ``kafka-group/<name>.properties`` in the user's settings folder (XDG).

    Raises
    ------
    ConfigurationError
        If the name is not valid.
    """
    if not _PROFILE_NAME.fullmatch(name):
        raise ConfigurationError(f"{name!r} is not the name of a profile. Use letters, digits, dots and dashes.")
    return _profile_folder(environment) / f"{name}{_PROFILE_SUFFIX}"


def profile_names(environment: Mapping[str, str]) -> list[str]:
    """Return the profiles that exist, sorted; files with other names are left out."""
    names = [
        file.name.removesuffix(_PROFILE_SUFFIX) for file in _profile_folder(environment).glob(f"*{_PROFILE_SUFFIX}")
    ]
    return sorted(name for name in names if _PROFILE_NAME.fullmatch(name))


def _profile_folder(environment: Mapping[str, str]) -> Path:
    base = environment.get("XDG_CONFIG_HOME")
    return (Path(base) if base else Path.home() / ".config") / "kafka-group"


def properties_of(
    bootstrap_servers: str | None,
    config: str | None,
    profile: str | None,
    environment: Mapping[str, str] = os.environ,
) -> dict[str, str]:
    """Return the properties of the connection.

    A file or a profile is the base.  The servers are those of the option, else those of the file, else those of the
    variable.

    Parameters
    ----------
    bootstrap_servers, config, profile : str or None
        The values of the options.
    environment : mapping
        The environment.

    Raises
    ------
    ConfigurationError
        If a file cannot be read or understood, two are named, or the servers are unknown.
    """
    names = "--config", "--profile"
    if config is None and profile is None:
        names = CONFIG_VARIABLE, PROFILE_VARIABLE
        config, profile = (environment.get(name) for name in names)
    if config and profile:
        raise ConfigurationError(f"{' and '.join(names)} both name a file of properties. Give one of them.")
    file = Path(config) if config else profile_file(profile, environment) if profile else None
    properties = _read(file) if file else {}
    # Deliberate: the variable last.  It may name another cluster than the profile of an option.
    servers = bootstrap_servers or properties.get("bootstrap.servers") or environment.get(BOOTSTRAP_VARIABLE)
    if not servers:
        raise ConfigurationError(
            "the cluster is unknown. Give --bootstrap-server HOST:PORT, or a --config file or a --profile "
            f"with bootstrap.servers, or set {BOOTSTRAP_VARIABLE}."
        )
    return {**properties, "bootstrap.servers": servers}


def _read(file: Path) -> dict[str, str]:
    try:
        text = file.read_text(encoding="utf-8")
    except OSError as problem:
        raise ConfigurationError(f"{file}: {problem.strerror or problem}. Name a properties file.") from None
    except UnicodeDecodeError:
        raise ConfigurationError(f"{file}: it is not UTF-8 text. Name a properties file.") from None
    return of_connection(parse(text), source=str(file))


def open_inspection(properties: Mapping[str, str]) -> Cluster:
    """Return a connection that asks the cluster.

    Raises
    ------
    OptionError
        If a property asks for a connection that this command line cannot make.
    """
    return connect(properties, client_id=_CLIENT_ID)
