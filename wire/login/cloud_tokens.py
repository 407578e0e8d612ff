"""The token providers that come with this package: Amazon MSK, Microsoft Entra, Google, and credentials of Databricks.

Each takes what follows its name, the text of ``sasl.oauthbearer.config`` and the first server.  It imports the library
of its cloud at once, and asks for credentials only when it is called.
"""

from __future__ import annotations

import base64
import importlib
import json
import os
import re
import time
from collections.abc import Callable
from datetime import UTC
from functools import cache
from typing import Any

from pyspark_kafka_group.wire.name_lookup import addresses
from pyspark_kafka_group.wire.types import PropertyError

Answer = tuple[str, float]
Provide = Callable[[str], Answer]
Ready = Callable[[str, str, str], Provide]

_CONFIG = "sasl.oauthbearer.config"
_PROVIDER = "sasl.oauthbearer.provider"
_AMAZON = re.compile(r".+\.kafka(?:-serverless)?\.([a-z0-9-]+)\.(?:api\.)?amazonaws\.com(?:\.cn)?", re.IGNORECASE)
_AZURE = re.compile(r"[^.]+\.servicebus\.(?:windows\.net|chinacloudapi\.cn|usgovcloudapi\.net)", re.IGNORECASE)
_GOOGLE = re.compile(r".+\.managedkafka\.[^.]+\.cloud\.goog", re.IGNORECASE)
_BROKERS = {"msk": (_AMAZON,), "entra": (_AZURE,), "google": (_GOOGLE,), "databricks": (_AMAZON, _AZURE, _GOOGLE)}
"""The names of brokers that only the cloud of a provider can have."""

_GOOGLE_SCOPE = "https://www.googleapis.com/auth/cloud-platform"
_PRINCIPAL_VARIABLE = "GOOGLE_MANAGED_KAFKA_AUTH_PRINCIPAL"  # of Google's handler for Java


def are_brokers_of(provider: str, servers: str) -> bool:
    """Return whether all servers have names that only the cloud of a provider of this package can have."""
    names = _BROKERS.get(provider, ())
    return all(any(name.fullmatch(address.host) for name in names) for address in addresses(servers))


def msk(region: str, config: str, server: str) -> Provide:
    """Sign in to Amazon MSK with IAM.

    Credentials come from the usual places of AWS, or from a profile, which may assume a role.
    """
    profile = _settings(config, "profile").get("profile")
    signer = _library("aws_msk_iam_sasl_signer.MSKAuthTokenProvider", "msk")
    region = region or _region(server)
    if profile is None:
        return lambda _: _seconds(signer.generate_auth_token(region))
    return lambda _: _seconds(signer.generate_auth_token_from_profile(region, profile))


def entra(host: str, config: str, server: str) -> Provide:
    """Sign in to Azure Event Hubs, or to another service behind Microsoft Entra, with the identity of the machine."""
    del server
    scope = _settings(config, "scope").get("scope") or _scope(host)
    identity = _library("azure.identity", "entra")
    credential = cache(identity.DefaultAzureCredential)
    return lambda _: _of_azure(credential(), scope)


def google(rest: str, config: str, server: str) -> Provide:
    """Sign in to Google's Managed Service for Apache Kafka with the application default credentials."""
    del rest, server
    _settings(config)
    auth = _library("google.auth", "google")
    credentials = cache(lambda: auth.default(scopes=[_GOOGLE_SCOPE])[0])
    return lambda _: _of_google(credentials())


def databricks(name: str, config: str, server: str) -> Provide:
    """Sign in with a service credential of Unity Catalog, on whichever cloud it is."""
    given = _settings(config, "scope")
    try:
        service = importlib.import_module("databricks.service_credentials")
    except ImportError:
        raise PropertyError(
            _PROVIDER,
            "this Python has no module databricks.service_credentials, which only Databricks Runtime has.",
            "Run on Databricks, or name another token provider.",
        ) from None

    def provide(_: str) -> Answer:
        found = service.getServiceCredentialsProvider(name)
        if hasattr(found, "get_token"):  # Azure
            return _of_azure(found, given.get("scope") or _scope(server))
        if hasattr(found, "get_credentials"):  # AWS: a session of botocore
            signer = _library("aws_msk_iam_sasl_signer.MSKAuthTokenProvider", "msk")
            base = importlib.import_module("botocore.credentials").CredentialProvider
            keys = type("_Provider", (base,), {"load": lambda _: found.get_credentials()})()
            return _seconds(signer.generate_auth_token_from_credentials_provider(_region(server), keys))
        return _of_google(found)

    return provide


def _seconds(answer: tuple[str, float]) -> Answer:
    return answer[0], answer[1] / 1000


def _of_azure(credential: Any, scope: str) -> Answer:
    found = credential.get_token(scope)
    return found.token, found.expires_on


def _of_google(credentials: Any) -> Answer:
    """Return the access token in the form of Google's brokers: like a JSON Web Token, with the token as signature."""
    transport = _library("google.auth.transport.requests", "google")
    credentials.refresh(transport.Request())
    expires_at = credentials.expiry.replace(tzinfo=UTC).timestamp()
    principal = os.environ.get(_PRINCIPAL_VARIABLE) or getattr(credentials, "service_account_email", None)
    if not principal:
        raise ValueError(
            "the credentials name no service account. Write its e-mail address into the variable "
            f"{_PRINCIPAL_VARIABLE}, on the driver and on the executors."
        )
    claims = {"exp": expires_at, "iat": time.time(), "iss": "Google", "scope": "kafka", "sub": principal}
    parts = (json.dumps({"typ": "JWT", "alg": "GOOG_OAUTH2_TOKEN"}), json.dumps(claims), credentials.token)
    return ".".join(base64.urlsafe_b64encode(part.encode()).decode().rstrip("=") for part in parts), expires_at


def _scope(host: str) -> str:
    return f"https://{host.partition(':')[0]}/.default"


def _region(server: str) -> str:
    found = _AMAZON.fullmatch(server)
    if found is None:
        raise PropertyError(
            _PROVIDER,
            "the name of the first server contains no region of AWS.",
            f"Write the brokers' own names into kafka.bootstrap.servers, or kafka.{_PROVIDER}=msk:REGION.",
        )
    return found[1]


def _settings(config: str, *names: str) -> dict[str, str]:
    """Parse ``name=value,...``."""
    found = {}
    for pair in config.split(","):
        name, equals, value = (part.strip() for part in pair.partition("="))
        if name in names and equals and value:
            found[name] = value
        elif pair.strip():
            known = ", ".join(f"{known}=..." for known in names)
            raise PropertyError(
                _CONFIG, "this token provider cannot understand it.", f"Write {known}." if known else "Remove it."
            )
    return found


def _library(name: str, extra: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError as problem:
        raise PropertyError(
            _PROVIDER,
            f"a library is missing: {problem}.",
            f"Run pip install 'pyspark-kafka-group[{extra}]' for the Python of the driver and of each executor.",
        ) from None
