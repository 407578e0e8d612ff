"""A task notices that Spark has ended it."""

from __future__ import annotations

import socket
from typing import Any

import pytest

from pyspark_kafka_group.worker.jvm_connection import jvm_is_gone


def as_worker(outfile: Any) -> bool:
    """Ask from a function that looks like that of Spark's worker."""
    scope: dict[str, Any] = {"ask": jvm_is_gone}
    exec(compile("def main(outfile):\n    return ask()", "/x/pyspark/worker.py", "exec"), scope)
    found: bool = scope["main"](outfile)
    return found


def test_a_connection_that_was_closed_is_noticed() -> None:
    """This holds with and without unread bytes."""
    worker, jvm = socket.socketpair()
    with worker, jvm, worker.makefile("rwb", 0) as outfile:
        assert not as_worker(outfile)
        jvm.send(b"more")
        assert not as_worker(outfile)
        assert worker.recv(10) == b"more"
        jvm.close()
        assert as_worker(outfile)


@pytest.mark.parametrize("outfile", [None, object()])
def test_what_cannot_be_found_out_is_no_reason_to_fail(outfile: Any) -> None:
    assert not as_worker(outfile)
    assert not jvm_is_gone()
