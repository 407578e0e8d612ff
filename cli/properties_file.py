"""Files of properties, as Kafka's own tools read them, and what librdkafka calls what they say.

A file may be Java's (``sasl.jaas.config``, ``ssl.truststore.location``) or librdkafka's (``sasl.username``); both have
``key=value`` lines.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from pyspark_kafka_group.offsets.errors import ConfigurationError

_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}

# Java's clients name a certificate store; of these, only PEM files can be read by others.
_PEM_STORES = {
    "ssl.truststore.location": "ssl.ca.location",
    "ssl.truststore.certificates": "ssl.ca.pem",
    "ssl.keystore.location": "ssl.certificate.location",
    "ssl.keystore.certificate.chain": "ssl.certificate.pem",
    "ssl.keystore.key": "ssl.key.pem",
}
_STORE_TYPES = {"ssl.truststore.type", "ssl.keystore.type"}

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

_LOGIN_MODULE = re.compile(r"\.(Plain|Scram)LoginModule\s+\w+")
_JAAS_VALUE = re.compile(r"(\w+)\s*=\s*(?:\"((?:[^\"\\]|\\.)*)\"|'((?:[^'\\]|\\.)*)'|([^\s;]+))")


def parse(text: str) -> dict[str, str]:
    """Return the properties of a file, as Java's ``Properties.load`` reads them; the last of a name counts."""
    found = {}
    for line in _logical_lines(text):
        key, value = _split(line)
        found[key] = value
    return found


def _logical_lines(text: str) -> Iterator[str]:
    """Return lines without comments, each with those that a backslash at its end takes in."""
    whole = ""
    for raw in re.split(r"\r\n|\r|\n", text):
        line = raw.lstrip(" \t\f")
        if not whole and (not line or line[0] in "#!"):
            continue
        whole += line
        if (len(whole) - len(whole.rstrip("\\"))) % 2:
            whole = whole[:-1]
            continue
        yield whole
        whole = ""
    if whole:
        yield whole


def _split(line: str) -> tuple[str, str]:
    match = re.match(r"((?:\\.|[^\\=: \t\f])*)[ \t\f]*[=:]?[ \t\f]*(.*)", line, re.DOTALL)
    key, value = match.groups() if match else (line, "")
    return _unescaped(key), _unescaped(value)


def _unescaped(text: str) -> str:
    def one(match: re.Match[str]) -> str:
        code, plain = match.groups()
        return chr(int(code, 16)) if code else _ESCAPES.get(plain, plain)

    return re.sub(r"\\(?:u([0-9a-fA-F]{4})|(.))", one, text, flags=re.DOTALL)


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
    """
    found: dict[str, str] = {}
    for key, value in properties.items():
        if key == "sasl.jaas.config":
            found |= _login(value, source)
        elif key in _PEM_STORES:
            found[_PEM_STORES[key]] = _pem(key, value, properties, source)
        elif key == "ssl.endpoint.identification.algorithm":
            found[key] = value or "none"
        elif key not in _STORE_TYPES and not _IGNORED.fullmatch(key) and not key.startswith("ssl.truststore."):
            found[key] = value
    # A Java key store holds the key beside the certificate; so may a PEM file.
    if "ssl.keystore.location" in properties and "ssl.key.location" not in found:
        found["ssl.key.location"] = found["ssl.certificate.location"]
    return found


def _pem(key: str, value: str, properties: Mapping[str, str], source: str) -> str:
    kind = properties.get(f"{'.'.join(key.split('.')[:2])}.type", "JKS" if key.endswith(".location") else "PEM")
    if kind.upper() != "PEM":
        raise ConfigurationError(
            f"{source}: {key} names a store of the type {kind}, which only Java reads. Export it to a PEM file, and "
            f"name that by {_PEM_STORES[key]}."
        )
    return value


def _login(jaas: str, source: str) -> dict[str, str]:
    values = {match[1]: _unescaped(match[2] or match[3] or match[4] or "") for match in _JAAS_VALUE.finditer(jaas)}
    if not _LOGIN_MODULE.search(jaas) or "username" not in values or "password" not in values:
        raise ConfigurationError(
            f"{source}: sasl.jaas.config is not that of PLAIN or SCRAM with a username and a password. Write "
            f"librdkafka's properties for another way to log in instead."
        )
    return {"sasl.username": values["username"], "sasl.password": values["password"]}
