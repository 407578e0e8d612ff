"""Tokens for clients of librdkafka: with a callback, without one, and in texts about a login."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import pytest

from pyspark_kafka_group.cluster.properties.clients import (
    client_text,
    needs_renewals,
    with_tokens,
)
from pyspark_kafka_group.offsets.errors import AuthenticationError, OptionError
from pyspark_kafka_group.wire.login import token_cache, token_providers
from pyspark_kafka_group.wire.login.token_cache import PROVIDER, PROVIDER_CONFIG

GIVEN = {"client.id": "it", PROVIDER: "shop_tokens:token", PROVIDER_CONFIG: "of-the-vault"}
HIDDEN = "Failed to acquire SASL OAUTHBEARER token: OAuth callback raised exception"


@pytest.fixture
def answers(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Any]]:
    """Yield the list of answers that the provider returns or raises, in this order."""
    made: list[Any] = []

    def token(config: str) -> Any:
        assert config == "of-the-vault"
        answer = made.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    module = ModuleType("shop_tokens")
    module.token = token  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "shop_tokens", module)
    monkeypatch.setattr(token_cache, "failing", {})
    token_providers._provider.cache_clear()
    yield made
    token_providers._provider.cache_clear()


def test_without_a_provider_nothing_changes() -> None:
    given = {"client.id": "it", PROVIDER_CONFIG: "principal=me"}
    assert with_tokens(given) == given
    assert not needs_renewals(given)


def test_a_client_gets_a_callback_in_place_of_the_provider(answers: list[Any]) -> None:
    ends = time.time() + 60
    answers.append(("first", ends, "me", {"pool": "a"}))
    found = with_tokens(GIVEN)
    assert found.keys() == {"client.id", "oauth_cb"}
    assert "of-the-vault" not in repr(found)
    assert answers == [], "asked at once, so that the cause of a failure is known"
    assert found["oauth_cb"]("") == ("first", ends, "me", {"pool": "a"})
    assert needs_renewals(GIVEN)


def test_a_failing_provider_is_an_error_with_its_cause(answers: list[Any]) -> None:
    answers.append(ValueError("of-the-vault is sealed"))
    with pytest.raises(AuthenticationError, match=r"^Option 'kafka\.sasl.*'shop_tokens:token' .*\[redacted\] is"):
        with_tokens(GIVEN)
    with pytest.raises(OptionError, match=r"^Option 'kafka\.sasl\.oauthbearer\.provider': .*cannot import"):
        with_tokens({**GIVEN, PROVIDER: "no_such_module:token"})


def test_a_client_begins_while_the_network_is_away(answers: list[Any]) -> None:
    answers += [ConnectionRefusedError("away"), ConnectionRefusedError("away"), ("first", time.time() + 60)]
    callback = with_tokens(GIVEN)["oauth_cb"]
    with pytest.raises(ConnectionError, match="away"):
        callback("")
    assert callback("")[:1] == ("first",)


def test_a_text_about_a_login_has_the_cause_and_others_do_not(answers: list[Any]) -> None:
    answers.append(ValueError("sealed"))
    with pytest.raises(AuthenticationError):
        with_tokens(GIVEN)
    cause = (
        "Option 'kafka.sasl.oauthbearer.provider': the token provider 'shop_tokens:token' failed with ValueError: "
        "sealed. Check the credentials that it uses, in this process."
    )
    assert client_text(HIDDEN, GIVEN) == f"Failed to acquire SASL OAUTHBEARER token: {cause}"
    assert client_text("SASL authentication error", GIVEN) == f"SASL authentication error. {cause}"
    assert client_text("connection refused", GIVEN) == "connection refused"
    assert client_text(HIDDEN, {"client.id": "of another login"}) == HIDDEN
    answers.append(("first", time.time() + 60))
    with_tokens(GIVEN)
    assert client_text("SASL authentication error of-the-vault, first", GIVEN) == (
        "SASL authentication error [redacted], [redacted]"
    )
