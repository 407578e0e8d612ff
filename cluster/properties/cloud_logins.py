"""The logins of the clouds as Spark's own source takes them, by classes of Java, in terms of a token provider."""

from __future__ import annotations

from collections.abc import Mapping

from pyspark_kafka_group.offsets.errors import OptionError
from pyspark_kafka_group.wire.login import token_cache
from pyspark_kafka_group.wire.types import PropertyError

PROVIDER = token_cache.PROVIDER
PROVIDER_CONFIG = token_cache.PROVIDER_CONFIG

_JAAS = "sasl.jaas.config"
_LOGIN_HANDLER = "sasl.login.callback.handler.class"
_CLIENT_HANDLER = "sasl.client.callback.handler.class"
_MECHANISM = "sasl.mechanism"

_SHADED = ("shadedmskiam.", "kafkashaded.")  # where Databricks has these classes
_AMAZON = "software.amazon.msk.auth.iam."
_GOOGLE_HANDLER = "com.google.cloud.hosted.kafka.auth.GcpLoginCallbackHandler"
_KAFKA_MODULE = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"

# Options of the login module, and the provider's names for them.
_AMAZON_OPTIONS = {"awsProfileName": "profile"}

# Options of the login module that change nothing here.
_AMAZON_IGNORED = frozenset({"awsDebugCreds", "awsMaxRetries", "awsMaxBackOffTimeMs"})

_OTHER_WAYS = ("sasl.oauthbearer.", "enable.sasl.oauthbearer.", _JAAS, _LOGIN_HANDLER)
"""What properties of other ways to tokens begin with."""


def unshaded(name: str) -> str:
    """Return the name of a class without the prefix that Databricks puts in front of it."""
    name = name.strip()
    return next((name.removeprefix(prefix) for prefix in _SHADED if name.startswith(prefix)), name)


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
    found = _without_amazon(_without_google(dict(properties)))
    if PROVIDER not in found:
        return found
    # Deliberate: not at the top, here and below.  Few queries need it.
    from pyspark_kafka_group.wire.login.token_providers import check_name

    try:
        check_name(found[PROVIDER].strip())
    except PropertyError as problem:
        raise OptionError(f"kafka.{problem.key}", problem.problem, problem.remedy) from None
    for other in found:
        if other.startswith(_OTHER_WAYS) and other not in (PROVIDER, PROVIDER_CONFIG):
            raise OptionError(f"kafka.{PROVIDER}", f"it is given together with kafka.{other}.", "Remove one.")
    if found.setdefault(_MECHANISM, "OAUTHBEARER").strip() != "OAUTHBEARER":
        raise OptionError(f"kafka.{_MECHANISM}", f"it is not OAUTHBEARER, which kafka.{PROVIDER} needs.", "Remove one.")
    if not found.setdefault("security.protocol", "SASL_SSL").strip().lower().startswith("sasl"):
        raise OptionError(
            "kafka.security.protocol", f"it has no login, which kafka.{PROVIDER} needs.", "Write SASL_SSL."
        )
    return found


def _without_amazon(properties: dict[str, str]) -> dict[str, str]:
    by_iam = properties.get(_MECHANISM, "").strip() == "AWS_MSK_IAM"
    by_token = unshaded(properties.get(_LOGIN_HANDLER, "")) == f"{_AMAZON}IAMOAuthBearerLoginCallbackHandler"
    if not by_iam and not by_token:
        return properties
    module_name = f"{_AMAZON}IAMLoginModule" if by_iam else _KAFKA_MODULE
    options = _options(properties.pop(_JAAS, None), module_name)
    if unshaded(properties.get(_CLIENT_HANDLER, "")) == f"{_AMAZON}IAMClientCallbackHandler":
        del properties[_CLIENT_HANDLER]
    if by_token:
        del properties[_LOGIN_HANDLER]
    properties[_MECHANISM] = "OAUTHBEARER"
    properties.setdefault(PROVIDER, "msk:")
    given = {name: value for name, value in options.items() if name not in _AMAZON_IGNORED}
    for name, value in given.items():
        if name not in _AMAZON_OPTIONS or "," in value:
            raise OptionError(
                f"kafka.{_JAAS}",
                f"the source has no equivalent of its option {name}, or of the option's value.",
                "Remove it. To assume a role, name a profile of AWS that does (awsProfileName).",
            )
    if given:
        pairs = (f"{_AMAZON_OPTIONS[name]}={value}" for name, value in given.items())
        properties.setdefault(PROVIDER_CONFIG, ",".join(pairs))
    return properties


def _without_google(properties: dict[str, str]) -> dict[str, str]:
    if unshaded(properties.get(_LOGIN_HANDLER, "")) != _GOOGLE_HANDLER:
        return properties
    _options(properties.pop(_JAAS, None), _KAFKA_MODULE)
    del properties[_LOGIN_HANDLER]
    properties.setdefault(PROVIDER, "google")
    return properties


def _options(text: str | None, expected: str) -> Mapping[str, str]:
    """Return the options of a login module, after a check that it is the expected one."""
    if text is None:
        return {}
    from pyspark_kafka_group.cluster.properties.jaas import JaasError, parse_jaas

    try:
        module = parse_jaas(text)
    except JaasError as problem:
        raise OptionError(f"kafka.{_JAAS}", f"{problem}.", f"Write {expected} required;") from None
    if unshaded(module.name) != expected:
        raise OptionError(
            f"kafka.{_JAAS}", "its login module is not the one of this login.", f"Write {expected} required;"
        )
    return module.options
