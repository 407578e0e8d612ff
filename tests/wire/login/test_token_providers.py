"""Token providers: names, results of callables, errors, and the time for which clients use a token."""

from __future__ import annotations

import re
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from email.message import Message
from types import ModuleType, SimpleNamespace
from typing import Any
from urllib.error import HTTPError

import pytest

from pyspark_kafka_group.wire.deadline import Deadline
from pyspark_kafka_group.wire.login import known_secrets, token_cache, token_providers
from pyspark_kafka_group.wire.login.properties import security_of
from pyspark_kafka_group.wire.login.token_cache import (
    PROVIDER,
    PROVIDER_CONFIG,
    Tokens,
    failure,
    recent_tokens,
    tokens_of,
)
from pyspark_kafka_group.wire.login.token_providers import (
    NoTokenError,
    TokenProvider,
    check_name,
    token_provider,
)
from pyspark_kafka_group.wire.types import PropertyError
from tests.wire.login.test_oauth import connect, jwt
from tests.wire.login_broker import broker

SASL = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "OAUTHBEARER"}
TOKEN = jwt(sub="etl")
LATER = time.time() + 1e6


@pytest.fixture(autouse=True)
def _no_failures(monkeypatch: pytest.MonkeyPatch) -> None:
    """Forget the providers that failed in earlier tests."""
    monkeypatch.setattr(token_cache, "failing", {})


@pytest.fixture
def module(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """Yield an empty module of the user, ``shop.tokens``."""
    shop, tokens = ModuleType("shop"), ModuleType("shop.tokens")
    monkeypatch.setitem(sys.modules, "shop", shop)
    monkeypatch.setitem(sys.modules, "shop.tokens", tokens)
    token_providers._provider.cache_clear()
    yield tokens
    token_providers._provider.cache_clear()


def named(name: str = "shop.tokens:provider", config: str = "") -> dict[str, str]:
    return {**SASL, PROVIDER: name, PROVIDER_CONFIG: config}


def soon() -> Deadline:
    return Deadline.after(5)


def provider(call: Callable[[str], Any], config: str = "") -> TokenProvider:
    return TokenProvider("it", call, config)


@pytest.mark.parametrize(
    "name", ["msk:eu-west-1", "msk:", "entra:a.b", "google", "databricks:x", "a:b", "a.b_c.d1:e.f", "googles.x:y"]
)
def test_names(name: str) -> None:
    check_name(name)


@pytest.mark.parametrize(
    "name", ["", "msk", "entra:", "google:x", "databricks:", "a", "a:", ":b", "a-b:c", "a:b:c", "a.:b"]
)
def test_what_is_no_name(name: str) -> None:
    with pytest.raises(
        PropertyError, match=r"sasl\.oauthbearer\.provider: .* names no token provider\. Write msk:REGION"
    ):
        check_name(name)


def test_a_broker_is_shown_the_token_and_the_extensions(module: ModuleType) -> None:
    asked: list[str] = []

    class Vault:
        @staticmethod
        def token(config: str) -> tuple[str, float, str, dict[str, str]]:
            asked.append(config)
            return TOKEN, time.time() + 60, "etl", {"pool": "a b"}

    module.Vault = Vault  # type: ignore[attr-defined]
    given = named("shop.tokens:Vault.token", "where=here")
    with broker() as to:
        for _ in range(3):
            connect(to, given)
        assert to.logins == 3 * [f"n,,\x01auth=Bearer {TOKEN}\x01pool=a b\x01\x01".encode()]
    assert asked == ["where=here"], "one token for all connections"
    tokens_of(token_provider(given)).forget(TOKEN)
    with broker() as to:
        connect(to, given)
    assert len(asked) == 2, "a refused one is not shown again"
    assert TOKEN in recent_tokens()
    assert TOKEN not in repr(tokens_of(token_provider(given)).current(soon()))
    assert "where=here" not in repr(security_of(given))


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("shop.nothing:provider", "this process cannot import shop.nothing: ModuleNotFoundError: No module named"),
        ("shop.tokens:nothing", "nothing in shop.tokens does not exist"),
        ("shop.tokens:number", "number in shop.tokens is not callable"),
    ],
)
def test_what_cannot_be_imported_is_an_error_of_the_property(module: ModuleType, name: str, problem: str) -> None:
    module.number = 1  # type: ignore[attr-defined]
    with pytest.raises(PropertyError, match=f"^sasl.oauthbearer.provider: {name}: {problem}"):
        security_of(named(name))


@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        (TOKEN, "returned a str and not"),
        ((TOKEN,), "returned a tuple and not"),
        ((TOKEN, 1, "", {}, 1), "returned a tuple and not"),
        ((b"abc", LATER), "a token that cannot be sent"),
        (("", LATER), "a token that cannot be sent"),
        (("a\x01auth=b", LATER), "a token that cannot be sent"),
        ((TOKEN, "soon"), "a str as expiry"),
        ((TOKEN, True), "a bool as expiry"),
        ((TOKEN, time.time() * 1000), "an expiry in milliseconds"),
        ((TOKEN, time.time() - 1), "has expired"),
        ((TOKEN, float("nan")), "has expired"),
        ((TOKEN, LATER, 7), "a int as principal"),
        ((TOKEN, LATER, None, "a=b"), "a str as extensions"),
        ((TOKEN, LATER, None, {"auth": "x"}), "an extension that cannot be sent"),
        ((TOKEN, LATER, None, {"a": "\x01"}), "an extension that cannot be sent"),
        ((TOKEN, LATER, None, {"a": 1}), "an extension that cannot be sent"),
    ],
)
def test_what_is_no_token_is_an_error_that_does_not_show_it(answer: Any, problem: str) -> None:
    with pytest.raises(NoTokenError, match=r"provider 'it' returned .*Return \(token, expiry in seconds") as found:
        provider(lambda _: answer).fetch(soon())
    assert problem in str(found.value)
    assert TOKEN not in str(found.value)


@pytest.mark.parametrize("answer", [(TOKEN, 60), [TOKEN, 60.5], (TOKEN, 60, None), (TOKEN, 60, "me", None)])
def test_a_token_is_good_for_most_of_its_life(answer: Any) -> None:
    text, life_s, *rest = answer
    token = provider(lambda _: (text, time.time() + life_s, *rest)).fetch(soon())
    assert token.text == TOKEN
    assert 46 < token.good_until.left_s <= 48.4
    assert 58 < token.ends.left_s <= 60.5
    assert token.principal == (rest[0] if rest and rest[0] else "")


class RequestsError(OSError):
    """Like the HTTPError of the package requests."""

    def __init__(self, text: str, status_code: int) -> None:
        super().__init__(text)
        self.response = SimpleNamespace(status_code=status_code)


@pytest.mark.parametrize(
    ("problem", "kind"),
    [
        (ValueError("no credentials"), NoTokenError),
        (FileNotFoundError(2, "No such file", "/key.json"), NoTokenError),
        (ConnectionRefusedError(111, "refused"), ConnectionError),
        (TimeoutError("too slow"), ConnectionError),
        (HTTPError("http://vault", 503, "overloaded", Message(), None), ConnectionError),
        (HTTPError("http://vault", 401, "unauthorized", Message(), None), NoTokenError),
        (RequestsError("400 Bad Request", 400), NoTokenError),
        (RequestsError("429 Too Many Requests", 429), ConnectionError),
    ],
)
def test_a_failure_of_the_network_may_pass_and_others_do_not(problem: Exception, kind: type) -> None:
    def inside(_: str) -> None:
        raise problem

    def outside(_: str) -> None:
        raise RuntimeError(f"cannot log in: {problem}") from problem

    for call in (inside, outside):
        with pytest.raises(kind, match=re.escape(str(problem))) as found:
            provider(call).fetch(soon())
        assert "Check the credentials" in str(found.value)
        assert found.value.__cause__ is None


def test_a_cause_that_the_provider_hides_does_not_count() -> None:
    def ask() -> None:
        raise ConnectionRefusedError

    def call(_: str) -> None:
        try:
            ask()
        except ConnectionRefusedError:
            raise RuntimeError("the vault is sealed") from None

    with pytest.raises(NoTokenError, match="RuntimeError: the vault is sealed"):
        provider(call).fetch(soon())


PASSWORDS = ["password=abc12", '{"user": "etl", "password": "abc12"}', "user=etl;pass: abc12"]
SETTINGS = '{"url": "http://vault", "id": "etl", "password": "hunter2"}'


@pytest.mark.parametrize(
    ("config", "text", "shown"),
    [
        (SETTINGS, f"no {SETTINGS}: hunter2 is refused for etl", "no [redacted]: [redacted] is refused for etl"),
        *((config, "abc12 is refused for etl", "[redacted] is refused for etl") for config in PASSWORDS),
        ("", f"refused {TOKEN} here", "refused [redacted] here"),
        ("", "Authorization: Bearer abc.def", "Authorization: [redacted]"),
        ("", "client_secret='0123456789abcdef', tenant x", "client_secret='[redacted]', tenant x"),
        ("", f"got {'x' * 70}", "got [redacted]"),
        ("", "&X-Amz-Signature=0123456789abcdef&X", "&X-Amz-Signature=[redacted]&X"),
        ("", "cannot reach https://etl:pw@proxy:3128", "cannot reach https://[redacted]@proxy:3128"),
        ("", "token expired at noon", "token expired at noon"),
        ("", "line one\n  line two", "line one line two"),
    ],
)
def test_a_failure_shows_nothing_secret(config: str, text: str, shown: str) -> None:
    def fail(_: str) -> None:
        raise ValueError(text)

    with pytest.raises(NoTokenError) as found:
        provider(fail, config).fetch(soon())
    assert f"failed with ValueError: {shown}. Check" in str(found.value)


def test_a_recent_token_is_in_no_failure() -> None:
    short = "opaque-7"
    answers: list[Any] = [(short, time.time() + 60)]

    def call(_: str) -> Any:
        if answers:
            return answers.pop()
        raise ValueError(f"{short} was refused")

    tokens = Tokens(provider(call))
    assert tokens.current(soon()).text == short
    tokens.forget(short)
    with pytest.raises(NoTokenError, match=r"ValueError: \[redacted\] was refused"):
        tokens.current(soon())


def test_a_failure_shows_nothing_that_is_behind_a_reference(monkeypatch: pytest.MonkeyPatch) -> None:
    """Regression: the library of a cloud quoted a name of a profile, which may be any value that the owner allows."""
    monkeypatch.setattr(known_secrets, "_read", frozenset({"msk:ab-12", "profile=xy-34", "ab-12", "xy-34"}))

    def fail(_: str) -> None:
        raise ValueError("no profile xy-34, or no region AB-12")

    with pytest.raises(NoTokenError) as found:
        TokenProvider("msk:ab-12", fail, "profile=xy-34").fetch(soon())
    assert str(found.value).startswith(
        "Option 'kafka.sasl.oauthbearer.provider': the token provider '[redacted]' failed with ValueError: no profile "
        "[redacted], or no region [redacted]. Check"
    )


def test_what_ends_the_interpreter_is_a_failure_like_others() -> None:
    def leave(_: str) -> None:
        sys.exit("no config")

    with pytest.raises(NoTokenError, match="SystemExit: no config"):
        provider(leave).fetch(soon())


def test_a_provider_that_hangs_is_called_once_and_its_late_answer_counts() -> None:
    calls, go_on = [], threading.Event()

    def call(_: str) -> tuple[str, float]:
        calls.append(1)
        go_on.wait(10)
        return TOKEN, time.time() + 60

    tokens = Tokens(provider(call))
    begin = time.monotonic()
    for _ in range(3):
        with pytest.raises(TimeoutError, match="'it' does not answer"):
            tokens.current(Deadline.after(0.05))
    assert time.monotonic() - begin < 5
    assert "does not answer" in failure({PROVIDER: "it"})
    assert failure({"sasl.mechanism": "AWS_MSK_IAM"}) == failure({PROVIDER: "it"}), "also before it is translated"
    assert failure({"sasl.mechanism": "PLAIN"}) == failure({}) == failure({PROVIDER: "another"}) == ""
    go_on.set()
    assert tokens.current(soon()).text == TOKEN
    assert len(calls) == 1
    assert failure({PROVIDER: "it"}) == "", "it works again"


def test_a_token_is_used_while_its_renewal_fails_and_not_longer(caplog: pytest.LogCaptureFixture) -> None:
    answers: list[Mapping[str, float] | None] = [{"first": 3.0}, None, None, {"second": 60}]

    def call(_: str) -> tuple[str, float]:
        answer = answers.pop(0) if answers else None
        if answer is None:
            raise ValueError("the vault is sealed")
        ((text, life_s),) = answer.items()
        return text, time.time() + life_s

    tokens = Tokens(provider(call))
    assert tokens.current(soon()).text == "first"
    time.sleep(2.42)  # a busy machine has half a second for what follows
    assert tokens.current(soon()).text == "first"
    assert "was not renewed, but is valid for another" in caplog.text
    assert "the vault is sealed" in caplog.text
    assert tokens.current(soon()).text == "first"
    assert len(answers) == 2, "not asked again at once"
    time.sleep(0.8)
    with pytest.raises(NoTokenError, match="the vault is sealed"):
        tokens.current(soon())
    assert tokens.current(soon()).text == "second"
