"""Properties files, as Kafka's own tools read them.

A file may have the names of Java (``sasl.jaas.config``, ``ssl.truststore.location``) or of librdkafka
(``sasl.username``).  Both have ``key=value`` lines.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from pyspark_kafka_group.cluster.properties import java_security
from pyspark_kafka_group.cluster.properties.kafka_properties import ClientKind, row_of
from pyspark_kafka_group.cluster.properties.secret_references import check_references, refers
from pyspark_kafka_group.offsets.errors import ConfigurationError, OptionError

_PREFIX = re.compile(r"\bkafka\.(?=(sasl|ssl|security|https|enable|config)\.)")
_OPTION = re.compile(r"^Option 'kafka\.(?:group\.id|bootstrap\.servers)': (\w)")


def of_connection(properties: Mapping[str, str], *, source: str) -> dict[str, str]:
    """Return the properties of the connection, which translates their names and resolves their references.

    Parameters
    ----------
    properties : mapping
        The properties of a file, with names of Java or of librdkafka.
    source : str
        Name of the file in errors.

    Raises
    ------
    ConfigurationError
        If only Java's client supports one of them.
    """
    kept = {key: value for key, value in properties.items() if _concerns_connection(key, value)}
    try:
        check_references(kept, decided=())
        if not any(map(refers, kept.values())):
            java_security.as_librdkafka(kept)  # only to check it now: a second translation may differ
    except OptionError as problem:
        raise ConfigurationError(f"{source}: {without_options(str(problem))}") from None
    return kept


def without_options(text: str) -> str:
    """Return the text of an error of queries in the words of the command line, which has no options of Spark."""
    text = _PREFIX.sub("", _OPTION.sub(lambda found: found[1].upper(), text))
    return text.replace("user of this query", "user of this connection")


def _concerns_connection(key: str, value: str) -> bool:
    if key.startswith(("config.", "security.")):
        return True
    if key == "metadata.broker.list":  # the command line has the servers from bootstrap.servers, or its own options
        return False
    return ClientKind.PRODUCER in row_of(key).applies_to and not java_security.only_java_knows(key, value)
