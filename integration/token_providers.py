"""Token providers of a user, for tests.  Each gets ``URL ID SECRET`` of a `TokenServer`."""

from __future__ import annotations

import base64
import json
import sys
import time
import urllib.error
import urllib.request
from functools import cache
from types import ModuleType, SimpleNamespace
from typing import Any

from pyspark_kafka_group.wire.login import cloud_tokens

_last = ""


class Vault:
    """A class with a provider as a method."""

    @staticmethod
    def token(config: str) -> tuple[str, float, str, dict[str, str]]:
        """Return a token of the server.

        If this fails, raise an error with the cause, and with a text that shows the previous token.
        """
        global _last  # noqa: PLW0603
        url, client_id, secret = config.split()
        login = base64.b64encode(f"{client_id}:{secret}".encode()).decode()
        request = urllib.request.Request(url, b"", {"Authorization": f"Basic {login}"})
        try:
            with urllib.request.urlopen(request, timeout=5) as answer:
                found = json.load(answer)
        except urllib.error.HTTPError as problem:
            raise RuntimeError(f"the vault is sealed: HTTP {problem.code}, after {_last}") from None
        _last = found["access_token"]
        return _last, time.time() + found["expires_in"], client_id, {"pool": "test"}


def amazon(config: str) -> tuple[str, float]:
    """Return what ``msk:REGION`` returns if the library of Amazon signs with the token server."""
    return _amazon(config)(config)


def azure(config: str) -> tuple[str, float]:
    """Return what ``entra:HOST`` returns if the library of Microsoft gets the tokens of the server."""
    return _azure(config)(config)


@cache
def _amazon(config: str) -> cloud_tokens.Provide:
    def generate_auth_token(region: str) -> tuple[str, float]:
        assert region == "eu-west-1"
        token, expires_at, *_ = Vault.token(config)
        return token, expires_at * 1000

    return _with_library(
        "aws_msk_iam_sasl_signer.MSKAuthTokenProvider",
        lambda: cloud_tokens.msk("eu-west-1", "", ""),
        generate_auth_token=generate_auth_token,
    )


@cache
def _azure(config: str) -> cloud_tokens.Provide:
    def get_token(scope: str) -> SimpleNamespace:
        assert scope == "https://shop.servicebus.windows.net/.default"
        token, expires_at, *_ = Vault.token(config)
        return SimpleNamespace(token=token, expires_on=expires_at)

    return _with_library(
        "azure.identity",
        lambda: cloud_tokens.entra("shop.servicebus.windows.net", "", ""),
        DefaultAzureCredential=lambda: SimpleNamespace(get_token=get_token),
    )


def _with_library(name: str, make: Any, **content: Any) -> cloud_tokens.Provide:
    """Make a provider while a module stands in for the library of its cloud."""
    former = sys.modules.get(name)
    sys.modules[name] = module = ModuleType(name)
    vars(module).update(content)
    try:
        provide: cloud_tokens.Provide = make()
    finally:
        del sys.modules[name]
        if former is not None:
            sys.modules[name] = former
    return provide
