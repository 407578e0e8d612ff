"""What an option may do only if the owner of the process allows it: one table, and one variable of the environment.

Options are input from others: whoever writes SQL writes options.  The variable belongs to the owner of the process, and
each process reads its own: the processes of the source on the driver, and the Python workers of the executors.

The command line gets its options from its owner, see `options_of_the_owner`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum
from pathlib import PurePosixPath
from urllib.parse import urlsplit

from pyspark_kafka_group.offsets.errors import OptionError
from pyspark_kafka_group.wire.login.token_cache import PROVIDER

VARIABLE = "KAFKA_GROUP_ALLOW"
"""The variable: entries such as ``file:/etc/kafka``, separated by commas.  See docs/permissions.md."""


_HAS_USER = re.compile(r"[^/?#]*//([^/?#]*@|[^/?#@:\[]*:(?!\d*([/?#]|$)))")
"""The beginning of a URL with a user and a password: with an @, or with something else than a port behind a colon."""


class Kind(Enum):
    """What an option makes a process do."""

    FILE = "file"  # read a file and send its content, or use it as a secret
    VARIABLE = "env"  # the same with a variable of the environment
    FUNCTION = "function"  # run a function of Python
    URL = "url"  # send a request, and the answer to the brokers
    COMMAND = "command"  # run a command of the shell
    NEVER = "never"  # load code, or write files, with no use for this source
    HARMLESS = "harmless"  # allowed for everybody: the text says why


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """What one property may do.

    Attributes
    ----------
    kind : Kind
        What it does.
    why : str
        What exactly, or why it is harmless.  For errors and docs.
    """

    kind: Kind
    why: str


_TLS = "the TLS library reads the file. Its content is neither sent nor shown"
_KEY = "the file is a key: the process uses it to log in. Its content is neither sent nor shown"
_CODE = "it makes the Kafka client load a library"
_STORE = "it makes the Kafka client write files of offsets"

TABLE: Mapping[str, Rule] = {
    "plugin.library.paths": Rule(kind=Kind.NEVER, why=_CODE),
    "ssl.engine.location": Rule(kind=Kind.NEVER, why=_CODE),
    "ssl.providers": Rule(kind=Kind.NEVER, why=_CODE),
    "offset.store.method": Rule(kind=Kind.NEVER, why=_STORE),
    "offset.store.path": Rule(kind=Kind.NEVER, why=_STORE),
    "sasl.kerberos.kinit.cmd": Rule(kind=Kind.COMMAND, why="a shell runs it"),
    PROVIDER: Rule(kind=Kind.FUNCTION, why="each process calls this function"),
    "sasl.oauthbearer.token.endpoint.url": Rule(kind=Kind.URL, why="each process sends a request to it"),
    "sasl.oauthbearer.assertion.file": Rule(kind=Kind.FILE, why="the content is sent to the token endpoint"),
    "sasl.oauthbearer.assertion.jwt.template.file": Rule(kind=Kind.FILE, why="the content is sent, signed"),
    "sasl.oauthbearer.assertion.private.key.file": Rule(kind=Kind.FILE, why="the key signs what is sent"),
    "https.ca.location": Rule(kind=Kind.HARMLESS, why=_TLS),
    "ssl.ca.location": Rule(kind=Kind.HARMLESS, why=_TLS),
    "ssl.certificate.location": Rule(kind=Kind.HARMLESS, why=_TLS),
    "ssl.crl.location": Rule(kind=Kind.HARMLESS, why=_TLS),
    "ssl.truststore.location": Rule(kind=Kind.HARMLESS, why=_TLS),
    "ssl.key.location": Rule(kind=Kind.HARMLESS, why=_KEY),
    "ssl.keystore.location": Rule(kind=Kind.HARMLESS, why=_KEY),
    "sasl.kerberos.keytab": Rule(kind=Kind.HARMLESS, why=_KEY),
}
"""The properties that name a file, a library, an address for tokens, a function or a command.

References, ``${file:...}`` and ``${env:...}``, may stand in any property.
"""

SAFE_FOR_A_SHELL = re.compile(r"[\w.@/:+-]*")
"""Texts without special characters of a shell."""

_IN_A_COMMAND = ("sasl.kerberos.keytab", "sasl.kerberos.principal", "sasl.kerberos.service.name")
"""The properties that librdkafka puts into its command, see ``sasl.kerberos.kinit.cmd``."""

_METADATA = "sasl.oauthbearer.metadata.authentication.type"

AZURE_URL = "http://169.254.169.254/metadata/identity/oauth2/token"
"""The token endpoint of Azure's metadata service, if an option names no other."""

_trusted = False


@contextmanager
def options_of_the_owner() -> Iterator[None]:
    """Allow everything but `Kind.NEVER` meanwhile: this process gets its options from its owner."""
    global _trusted  # noqa: PLW0603
    before, _trusted = _trusted, True
    try:
        yield
    finally:
        _trusted = before


def check_allowed(option: str, kind: Kind, target: str, why: str) -> None:
    """Refuse what the owner of this process has not allowed.

    Parameters
    ----------
    option : str
        The name of the option.
    kind : Kind
        What it does.
    target : str
        The file, variable, function, URL or command.
    why : str
        What happens with it.

    Raises
    ------
    OptionError
        If no entry of the variable allows it.  The error names the entry to add.
    """
    if kind is Kind.NEVER:
        raise OptionError(option, f"it cannot be set: {why}.", "Remove it.")
    if kind is Kind.HARMLESS or _trusted or any(_allows(entry, kind, target) for entry in _entries(kind)):
        return
    raise OptionError(
        option,
        f"{why}, and the owner of this process has not allowed that.",
        f"If you are the owner, add {kind.value}:{_entry(kind, target)} to the variable {VARIABLE} in the environment "
        f"of the driver and of each executor, before they start. See docs/permissions.md.",
    )


def check_properties(config: Mapping[str, str]) -> None:
    """Refuse properties that do what the owner of this process has not allowed.

    Parameters
    ----------
    config : mapping of str to str
        Properties with librdkafka's names, without ``kafka.``.

    Raises
    ------
    OptionError
        If one is refused.  The error names the entry to add.
    """
    for key in sorted(config.keys() & TABLE.keys()):
        rule, target = TABLE[key], config[key].strip()
        if rule.kind is Kind.URL and _HAS_USER.match(target):
            raise OptionError(
                f"kafka.{key}",
                "it has a user or a password before its host, with which the source's own connections reach no host.",
                "Write them as kafka.sasl.oauthbearer.client.id and kafka.sasl.oauthbearer.client.secret.",
            )
        if not (key == PROVIDER and _goes_home(target, config)):
            check_allowed(f"kafka.{key}", rule.kind, target, rule.why)
    for key in _IN_A_COMMAND:
        if not SAFE_FOR_A_SHELL.fullmatch(config.get(key, "")):
            why = "it has special characters of the shell in which the Kafka client runs kinit"
            check_allowed(f"kafka.{key}", Kind.COMMAND, config[key].strip(), why)
    metadata = config.get(_METADATA, "").strip()
    if metadata == "azure_imds" and "sasl.oauthbearer.token.endpoint.url" not in config:
        check_allowed(f"kafka.{_METADATA}", Kind.URL, AZURE_URL, "it sends the token of this machine to the brokers")
    if metadata == "aws_iam":
        raise OptionError(
            f"kafka.{_METADATA}",
            "only clients of confluent-kafka know aws_iam. They would send a token of this machine to any broker.",
            f"Remove it. For Amazon MSK, set kafka.{PROVIDER}=msk:REGION. For another cluster, let a function of your "
            "own call GetWebIdentityToken of AWS STS, and name it there; docs/tokens.md has the function.",
        )


def _goes_home(provider: str, config: Mapping[str, str]) -> bool:
    """Return whether a provider of this package sends its tokens, encrypted, to brokers of its own cloud."""
    from pyspark_kafka_group.wire.login.cloud_tokens import are_brokers_of

    # Deliberate: nobody but the cloud has a certificate for such names.  Elsewhere, the broker gets a token of the
    # identity of this machine.
    encrypted = config.get("security.protocol", "SASL_SSL").strip().lower() == "sasl_ssl"
    servers = config.get("bootstrap.servers")  # none: it is missing, or not known yet
    return encrypted and (servers is None or are_brokers_of(provider.partition(":")[0], servers))


def _entries(kind: Kind) -> Iterator[str]:
    for entry in os.environ.get(VARIABLE, "").split(","):
        of, _, what = entry.strip().partition(":")
        if of == kind.value and what:
            yield what


def _entry(kind: Kind, target: str) -> str:
    """Return what to add to the variable.  The query of a URL may be a secret, and does not matter for an entry."""
    return target.partition("#")[0].partition("?")[0] if kind is Kind.URL else target


def _allows(entry: str, kind: Kind, target: str) -> bool:
    match kind:
        case Kind.FILE:
            path = PurePosixPath(target)
            return path.is_absolute() and ".." not in path.parts and path.is_relative_to(entry)
        case Kind.VARIABLE:
            return target.startswith(entry[:-1]) if entry.endswith("*") else target == entry
        case Kind.URL:
            return _is_below(target, entry)
        case _:  # Deliberate: the whole name.  From an allowed module, a path of names leads to any other one.
            return target == entry


def _is_below(url: str, allowed: str) -> bool:
    """Return whether a URL is an allowed one, or below it."""
    try:
        asked, entry = urlsplit(url), urlsplit(allowed)
    except ValueError:
        return False
    path, folder = asked.path or "/", entry.path.rstrip("/")
    plain = not any(sign in path for sign in ("..", "%", "\\"))
    same = (asked.scheme.lower(), asked.netloc.lower()) == (entry.scheme.lower(), entry.netloc.lower())
    return same and plain and (path == folder or path.startswith(f"{folder}/"))
