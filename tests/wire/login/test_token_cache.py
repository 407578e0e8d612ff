"""The token of a process while its source hangs."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import pytest

from pyspark_kafka_group.wire.deadline import Deadline
from pyspark_kafka_group.wire.login.token_cache import Token, Tokens


class Source:
    """Issues the tokens of a test, each from a call."""

    def __init__(self, *calls: Callable[[], Token]) -> None:
        self.calls = [*calls]

    def fetch(self, deadline: Deadline) -> Token:
        del deadline
        return self.calls.pop(0)()

    def overdue(self) -> OSError:
        return TimeoutError("no answer")


def due(text: str, ends_s: float = 60.0) -> Token:
    """Return a token that is to be renewed."""
    return Token(text, Deadline.after(0), Deadline.after(ends_s))


def test_a_token_is_used_while_its_renewal_hangs(caplog: pytest.LogCaptureFixture) -> None:
    """Regression: all connections of the process failed meanwhile, although the token was valid."""
    go_on = threading.Event()

    def hang() -> Token:
        go_on.wait(10)
        return Token("token-second", Deadline.after(60), Deadline.after(60))

    source = Source(lambda: due("token-first"), hang)
    tokens = Tokens(source)
    assert tokens.current(Deadline.after(5)).text == "token-first"
    begin = time.monotonic()
    assert tokens.current(Deadline.after(0.2)).text == "token-first"
    assert time.monotonic() - begin < 0.19, "there is time left for a login"
    assert "was not renewed, but is valid for another 60 s. no answer" in caplog.text
    begin = time.monotonic()
    assert {tokens.current(Deadline.after(5)).text for _ in range(3)} == {"token-first"}
    assert time.monotonic() - begin < 1
    go_on.set()
    until = Deadline.after(5)
    while tokens.current(Deadline.after(5)).text == "token-first":
        assert not until.passed
        time.sleep(0.01)
    assert not source.calls, "one renewal"


def test_a_source_that_hangs_costs_each_client_only_its_own_time() -> None:
    """Regression: it held the others for as long as it hung.  An example is a name server that does not answer."""
    go_on = threading.Event()

    def hang() -> Token:
        go_on.wait(10)
        return due("token-late")

    tokens = Tokens(Source(hang))
    begin = time.monotonic()
    for _ in range(3):
        with pytest.raises(TimeoutError, match="no answer"):
            tokens.current(Deadline.after(0.05))
    assert time.monotonic() - begin < 2
    go_on.set()
    assert tokens.current(Deadline.after(5)).text == "token-late"
