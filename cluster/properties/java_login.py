"""The logins of Java's client in librdkafka's terms: JAAS configurations, callback handlers, and the clouds' classes.

The logins of the clouds become a token provider.  The grammar of JAAS is that of Kafka's ``JaasConfig``: a class, a
control flag, options, a semicolon.  Its errors name only places, and show no part of the text: after a wrong quotation
mark, any part may be a password.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import NoReturn

from pyspark_kafka_group.cluster.properties.kafka_properties import HANDLER, JAAS
from pyspark_kafka_group.cluster.properties.permissions import SAFE_FOR_A_SHELL
from pyspark_kafka_group.offsets.errors import OptionError
from pyspark_kafka_group.wire.login.token_cache import PROVIDER, PROVIDER_CONFIG
from pyspark_kafka_group.wire.types import PropertyError

_CLIENT_HANDLER = "sasl.client.callback.handler.class"
_MECHANISM = "sasl.mechanism"
_SERVICE = "sasl.kerberos.service.name"
_ENDPOINT = "sasl.oauthbearer.token.endpoint.url"

_KAFKA = "org.apache.kafka.common.security."
_PLAIN = f"{_KAFKA}plain.PlainLoginModule"
_SCRAM = f"{_KAFKA}scram.ScramLoginModule"
_OAUTH = f"{_KAFKA}oauthbearer.OAuthBearerLoginModule"
_KERBEROS = "com.sun.security.auth.module.Krb5LoginModule"
_OIDC_HANDLERS = frozenset(
    {
        f"{_KAFKA}oauthbearer.OAuthBearerLoginCallbackHandler",
        f"{_KAFKA}oauthbearer.secured.OAuthBearerLoginCallbackHandler",
    }
)
_SHADED = ("shadedmskiam.", "kafkashaded.")  # where Databricks has these classes
_AMAZON = "software.amazon.msk.auth.iam."
_GOOGLE_HANDLER = "com.google.cloud.hosted.kafka.auth.GcpLoginCallbackHandler"

_SCRAM_MECHANISMS = ("SCRAM-SHA-256", "SCRAM-SHA-512")
# Java's modules for PLAIN and SCRAM do the same with a name and a password: either serves either mechanism.
_MECHANISMS = {
    _PLAIN: ("PLAIN", *_SCRAM_MECHANISMS),
    _SCRAM: (*_SCRAM_MECHANISMS, "PLAIN"),
    _OAUTH: ("OAUTHBEARER",),
    _KERBEROS: ("GSSAPI",),
}
_OTHERWISE = "Use kafka.sasl.mechanism with librdkafka's properties for it."

_PROFILE = "awsProfileName"
"""The option of Amazon's login module that has an equivalent."""

_AMAZON_IGNORED = frozenset({"awsDebugCreds", "awsMaxRetries", "awsMaxBackOffTimeMs"})
"""Its options that change nothing here."""

_OTHER_WAYS = ("sasl.oauthbearer.", "enable.sasl.oauthbearer.", JAAS, HANDLER)
"""What properties of other ways to tokens begin with."""

_TOKEN = re.compile(
    r"""
    (?P<space>[\x00-\x20]+ | //[^\r\n]* | /\*.*?\*/)
    | "(?P<double>(?:\\.|[^"\\\r\n])*)"
    | '(?P<single>(?:\\.|[^'\\\r\n])*)'
    | (?P<word>(?:[^\W\d]|\$)[\w.$-]*)
    | (?P<sign>[=;])
    """,
    re.VERBOSE | re.DOTALL,
)
# Of java.io.StreamTokenizer: any other character after a backslash stands for itself.
_ESCAPE = re.compile(r"\\([0-3][0-7]{0,2}|[4-7][0-7]?|.)", re.DOTALL)
_ESCAPED = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}

_FLAGS = ("required", "requisite", "sufficient", "optional")
_OCTAL_DIGITS = frozenset("01234567")

_Found = Iterator[tuple[str, str, str]]


class JaasError(ValueError):
    """A text is not a JAAS configuration.  The message names the place, and shows nothing of the text."""


@dataclass(frozen=True, slots=True)
class LoginModule:
    """A login module and its options.

    Attributes
    ----------
    name : str
        The class.
    options : mapping of str to str
        The options.  Hidden from ``repr``, because they contain secrets.
    """

    name: str
    options: Mapping[str, str] = field(repr=False)


def with_provider(properties: Mapping[str, str]) -> dict[str, str]:
    """Return properties with a token provider in place of the cloud's classes of Java.

    Parameters
    ----------
    properties : mapping of str to str
        The user's properties, without ``kafka.``, each under one name.

    Raises
    ------
    OptionError
        If the name of the provider is invalid, or it contradicts another property.
    """
    found = dict(properties)
    handler, by_iam = _unshaded(found.get(HANDLER, "")), found.get(_MECHANISM, "").strip() == "AWS_MSK_IAM"
    by_token = handler == f"{_AMAZON}IAMOAuthBearerLoginCallbackHandler"
    if handler == _GOOGLE_HANDLER:
        _without_module(found, _OAUTH)
        found.setdefault(PROVIDER, "google")
    if by_iam or by_token:
        _with_amazon(found, _without_module(found, f"{_AMAZON}IAMLoginModule" if by_iam else _OAUTH))
    if handler == _GOOGLE_HANDLER or by_token:
        del found[HANDLER]
    if PROVIDER in found:
        _check_provider(found)
        found.setdefault(_MECHANISM, "OAUTHBEARER")
        found.setdefault("security.protocol", "SASL_SSL")
    return found


def _with_amazon(found: dict[str, str], options: Mapping[str, str]) -> None:
    if _unshaded(found.get(_CLIENT_HANDLER, "")) == f"{_AMAZON}IAMClientCallbackHandler":
        del found[_CLIENT_HANDLER]
    found[_MECHANISM] = "OAUTHBEARER"
    found.setdefault(PROVIDER, "msk:")
    for name, value in options.items():
        if name == _PROFILE and "," not in value:
            found.setdefault(PROVIDER_CONFIG, f"profile={value}")
        elif name not in _AMAZON_IGNORED:
            _refuse(
                f"the source has no equivalent of its option {name}, or of the option's value.",
                f"Remove it. To assume a role, name a profile of AWS that does ({_PROFILE}).",
            )


def _without_module(found: dict[str, str], expected: str) -> Mapping[str, str]:
    """Remove the login module, which must be the expected one if there is any; return its options."""
    if JAAS not in found:
        return {}
    remedy = f"Write {expected} required;"
    module = _login_module(found.pop(JAAS), remedy)
    if module.name != expected:
        _refuse("its login module is not the one of this login.", remedy)
    return module.options


def _check_provider(found: Mapping[str, str]) -> None:
    # Deliberate: not at the top.  Few queries need it.
    from pyspark_kafka_group.wire.login.token_providers import check_name

    try:
        check_name(found[PROVIDER].strip())
    except PropertyError as problem:
        raise OptionError(f"kafka.{problem.key}", problem.problem, problem.remedy) from None
    for other in found:
        if other.startswith(_OTHER_WAYS) and other not in (PROVIDER, PROVIDER_CONFIG):
            raise OptionError(f"kafka.{PROVIDER}", f"it is given together with kafka.{other}.", "Remove one.")
    if found.get(_MECHANISM, "OAUTHBEARER").strip() != "OAUTHBEARER":
        raise OptionError(f"kafka.{_MECHANISM}", f"it is not OAUTHBEARER, which kafka.{PROVIDER} needs.", "Remove one.")
    if not found.get("security.protocol", "SASL_SSL").strip().lower().startswith("sasl"):
        raise OptionError(
            "kafka.security.protocol", f"it has no login, which kafka.{PROVIDER} needs.", "Write SASL_SSL."
        )


def _unshaded(name: str) -> str:
    """Return the name of a class without the prefix that Databricks puts in front of it."""
    name = name.strip()
    return next((name.removeprefix(prefix) for prefix in _SHADED if name.startswith(prefix)), name)


def _login_module(text: str, remedy: str) -> LoginModule:
    """Return the module of a JAAS configuration, with the usual name of its class."""
    try:
        module = parse_jaas(text)
    except JaasError as problem:
        raise OptionError(f"kafka.{JAAS}", f"{problem}.", remedy) from None
    return replace(module, name=_unshaded(module.name))


def login_properties(properties: Mapping[str, str]) -> _Found:
    """Yield librdkafka's properties of the login: the name of the origin, the name, and the value.

    Parameters
    ----------
    properties : mapping of str to str
        The user's properties, without ``kafka.``.

    Raises
    ------
    OptionError
        If only Java's client supports this login.  The text shows no value of an option of JAAS.
    """
    if HANDLER in properties:
        if _unshaded(properties[HANDLER]) not in _OIDC_HANDLERS:
            raise OptionError(
                f"kafka.{HANDLER}",
                "it is a class of Java, and the source has an equivalent only for Kafka's own "
                "OAuthBearerLoginCallbackHandler, and for those of Amazon MSK and Google.",
                "Remove it, and log in by PLAIN, SCRAM, OAUTHBEARER with OIDC, or a client certificate. Or name a "
                "token provider with kafka.sasl.oauthbearer.provider.",
            )
        yield HANDLER, "sasl.oauthbearer.method", "oidc"
    if JAAS not in properties:
        return
    module = _login_module(
        properties[JAAS],
        'Write <class> required <option>="<value>" ...; with a backslash before each quotation mark and backslash '
        "in a value. Or use kafka.sasl.username and kafka.sasl.password.",
    )
    _check_mechanism(module, properties)
    if module.name in (_PLAIN, _SCRAM):
        yield from _password(module)
    elif module.name == _OAUTH:
        yield from _oauth(module, properties)
    else:
        yield from _kerberos(module, properties)


def _check_mechanism(module: LoginModule, properties: Mapping[str, str]) -> None:
    if module.name not in _MECHANISMS:
        # Shows only what is certainly a name: with a wrong quotation mark, the text may be a password.
        shown = f" {module.name}" if re.fullmatch(r"[\w.$]+LoginModule", module.name) else ""
        _refuse(f"only Java knows its login module{shown}.", _OTHERWISE)
    if not properties.get("security.protocol", "").strip().lower().startswith("sasl"):
        return
    allowed = _MECHANISMS[module.name]
    mechanism = properties.get(_MECHANISM, "")
    if (mechanism.strip() or "GSSAPI") not in allowed:
        found = f"it is {mechanism}" if mechanism else "it is missing, which means GSSAPI"
        raise OptionError(
            f"kafka.{_MECHANISM}",
            f"{found}, but the login module of kafka.{JAAS} is for another mechanism.",
            f"Write {' or '.join(allowed)}, or another login module.",
        )


def _password(module: LoginModule) -> _Found:
    if _is_true(module, "tokenauth"):
        _refuse("librdkafka does not log in by delegation tokens (tokenauth).", "Use a user and a password.")
    for name in ("username", "password"):
        if name not in module.options:
            _refuse(f"its option {name} is missing.", f"Add {name}.")
        yield JAAS, f"sasl.{name}", module.options[name]


def _oauth(module: LoginModule, properties: Mapping[str, str]) -> _Found:
    options = module.options
    if any(name.startswith("unsecured") for name in options):
        _refuse(
            "it makes unsecured tokens (unsecuredLogin...).",
            "For tests, use kafka.enable.sasl.oauthbearer.unsecure.jwt and kafka.sasl.oauthbearer.config.",
        )
    if any(name.startswith("ssl.") and not _is_usual_tls(name, value) for name, value in options.items()):
        _refuse(
            "its options for TLS to the token endpoint (ssl...) belong to the Java client.",
            "Remove them, and use kafka.https.ca.location or kafka.https.ca.pem.",
        )
    endpoint = properties.get(_ENDPOINT, "")
    if not endpoint.strip().lower().startswith(("https://", "http://")):
        raise OptionError(
            f"kafka.{_ENDPOINT}",
            "it is missing, or not an https URL, and the login by OAUTHBEARER needs it.",
            "Set it to the URL that issues tokens. Tokens from files are not supported.",
        )
    yield JAAS, "sasl.oauthbearer.method", "oidc"
    for name, key in (("clientId", "sasl.oauthbearer.client.id"), ("clientSecret", "sasl.oauthbearer.client.secret")):
        if name in options:
            yield JAAS, key, options[name]
        elif key not in properties:
            _refuse(f"its option {name} is missing.", f"Add {name}, or kafka.{key}.")
    if "scope" in options:
        yield JAAS, "sasl.oauthbearer.scope", options["scope"]
    extensions = {name.removeprefix("extension_"): options[name] for name in options if name.startswith("extension_")}
    if any("," in value for value in extensions.values()):
        _refuse("an extension has a comma, which librdkafka does not support.", "Remove the extension.")
    if extensions:
        pairs = ",".join(f"{name}={value}" for name, value in extensions.items())
        yield JAAS, "sasl.oauthbearer.extensions", pairs


def _kerberos(module: LoginModule, properties: Mapping[str, str]) -> _Found:
    options = module.options
    service = options.get("serviceName")
    if service is not None:
        yield JAAS, _SERVICE, service
    if "ticketCache" in options:
        _refuse(
            "librdkafka has no property for a ticket cache.",
            "Remove ticketCache, and set the variable KRB5CCNAME on the driver and the executors.",
        )
    principal = options.get("principal")
    if "keyTab" in options and _is_true(module, "useKeyTab"):
        if principal is None:
            _refuse("its option principal is missing.", "Add principal.")
        for name, value in (("keyTab", options["keyTab"]), ("principal", principal)):
            if not SAFE_FOR_A_SHELL.fullmatch(value):
                _refuse(
                    f"its option {name} has special characters of the shell in which librdkafka runs kinit.",
                    "Use only letters, digits and . _ @ / : + -",
                )
        yield JAAS, "sasl.kerberos.keytab", options["keyTab"]
        yield JAAS, "sasl.kerberos.principal", principal
    elif _is_true(module, "useTicketCache"):
        # librdkafka then runs no kinit, and takes the ticket that there is.
        if "sasl.kerberos.min.time.before.relogin" not in properties:
            yield JAAS, "sasl.kerberos.min.time.before.relogin", "0"
        if principal is not None:
            yield JAAS, "sasl.kerberos.principal", principal
    else:
        _refuse(
            "librdkafka does not ask for a Kerberos password.",
            "Write useKeyTab=true with keyTab and principal, or useTicketCache=true.",
        )


def _is_usual_tls(name: str, value: str) -> bool:
    # Microsoft's examples have it.  Requests to the token endpoint use TLS 1.2 or newer anyway.
    return name == "ssl.protocol" and value.strip().upper() in ("SSL", "TLS", "TLSV1.2", "TLSV1.3")


def _is_true(module: LoginModule, option: str) -> bool:
    return module.options.get(option, "").strip().lower() == "true"


def _refuse(problem: str, remedy: str) -> NoReturn:
    raise OptionError(f"kafka.{JAAS}", problem, remedy)


def parse_jaas(text: str) -> LoginModule:
    """Return the one login module of a configuration.

    Raises
    ------
    JaasError
        If Java's clients would not understand it, or it has several modules.
    """
    tokens = [*_tokens(text), ("end", "")]
    if tokens[0][0] != "text":
        raise JaasError("it does not begin with a class")
    name = tokens[0][1]
    if tokens[1][0] != "text" or tokens[1][1].lower() not in _FLAGS:
        raise JaasError("no control flag, such as required, follows the class")
    options: dict[str, str] = {}
    at = 2
    while tokens[at][0] == "text":
        kinds = [kind for kind, _ in tokens[at + 1 : at + 3]]
        if kinds != ["=", "text"]:
            raise JaasError(f"option {len(options) + 1} has no value, or a quotation mark in it has no backslash")
        options[tokens[at][1]] = tokens[at + 2][1]
        at += 3
    if tokens[at][0] != ";":
        raise JaasError("it does not end with a semicolon")
    if tokens[at + 1][0] != "end":
        raise JaasError("it names more than one login module")
    return LoginModule(name, options)


def _tokens(text: str) -> Iterator[tuple[str, str]]:
    at = 0
    while at < len(text):
        found = _TOKEN.match(text, at)
        if found is None:
            raise JaasError(
                f"character {at + 1} is not valid here; a value that is not a word must be in quotation marks, on one "
                "line"
            )
        at = found.end()
        kind = found.lastgroup
        if kind == "sign":
            yield found[0], found[0]
        elif kind == "word":
            yield "text", found[0]
        elif kind != "space":
            yield "text", _ESCAPE.sub(_meaning, found[kind or 0])


def _meaning(escape: re.Match[str]) -> str:
    text = escape[1]
    return chr(int(text, 8)) if text in _OCTAL_DIGITS or len(text) > 1 else _ESCAPED.get(text, text)
