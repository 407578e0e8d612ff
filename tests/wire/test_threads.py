"""What runs on a thread of its own survives a moment in which the system has no threads."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import pytest

from pyspark_kafka_group.wire.deadline import Deadline
from pyspark_kafka_group.wire.login.kerberos import _within
from pyspark_kafka_group.wire.login.token_cache import Tokens
from pyspark_kafka_group.wire.login.token_providers import TokenProvider
from pyspark_kafka_group.wire.name_lookup import endpoints
from pyspark_kafka_group.wire.types import Address

TOKENS = Tokens(TokenProvider("it", lambda _: ("token-of-threads", time.time() + 60), ""))
CALLS: dict[str, Callable[[], object]] = {
    "name": lambda: endpoints(Address("localhost", 1), 10.0),
    "token": lambda: TOKENS.current(Deadline.after(10.0)),
    "Kerberos": lambda: _within(Deadline.after(10.0), lambda: "answer"),
}


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_a_thread_that_cannot_start_is_tried_again(call: Callable[[], object], monkeypatch: pytest.MonkeyPatch) -> None:
    """Regression: all later calls waited for the thread that had not started."""

    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        with pytest.raises(OSError, match="Raise the limit of threads"):
            call()
    assert call()
