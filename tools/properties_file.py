"""Files of properties, as Kafka's own tools read them, and what librdkafka calls what they say.

A file may be Java's (``sasl.jaas.config``, ``ssl.truststore.location``) or librdkafka's (``sasl.username``); both have
``key=value`` lines.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from pyspark_kafka_group.offsets.errors import ConfigurationError, OptionError
from pyspark_kafka_group.offsets.properties import java_security
from pyspark_kafka_group.offsets.properties.secret_references import check_references, refers

# What concerns a program that reads or writes, or Java's classes; a tool that looks has no use for it.
_IGNORED = re.compile(
    r"(key|value)\.(de)?serializer|group\.(id|instance\.id|protocol|remote\.assignor)|"
    r"auto\.(commit\.interval\.ms|offset\.reset)|enable\.(auto\.commit|idempotence)|"
    r"(session|request|default\.api|delivery)\.timeout\.ms|(heartbeat|max\.poll)\..*|isolation\.level|client\.(id|dns\.lookup)|"
    r"acks|batch\.size|linger\.ms|buffer\.memory|compression\.type|retries|max\.(block\.ms|request\.size)|"
    r"fetch\..*|partition\.assignment\.strategy|transactional\.id|interceptor\.classes|metric.*|"
    r"ssl\.(protocol|enabled\.protocols|provider|secure\.random\.implementation|trustmanager\.algorithm|"
    r"keymanager\.algorithm|cipher\.suites|engine\.factory\.class)|"
    r"sasl\.(client\.callback\.handler\.class|login\..*|kerberos\.(ticket|kinit).*)"
)

# How options of Spark are named, in errors about what they have in common with files.
_PREFIX = re.compile(r"\bkafka\.(?=(sasl|ssl|security|https|enable|config)\.)")


def as_librdkafka(properties: Mapping[str, str], *, source: str) -> dict[str, str]:
    """Return what librdkafka calls these properties, without those that say nothing of the connection.

    Parameters
    ----------
    properties : mapping
        Java's or librdkafka's, mixed if need be.
    source : str
        What to call the file in errors.

    Raises
    ------
    ConfigurationError
        If only Java's client can do what they say.

    Notes
    -----
    With references in them they stay as they are, for what opens the connection.
    """
    kept = {key: value for key, value in properties.items() if not _IGNORED.fullmatch(key)}
    try:
        check_references(kept, decided=())
        # Deliberate: references are followed where the connection is opened, and once: what they lead to may look
        # like another one.  What they decide is translated there, too.
        return kept if any(map(refers, kept.values())) else java_security.as_librdkafka(kept)
    except OptionError as problem:
        raise ConfigurationError(f"{source}: {_PREFIX.sub('', str(problem))}") from None
