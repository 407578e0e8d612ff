"""SASL's mechanisms, with the examples of their RFCs."""

from __future__ import annotations

import pytest

from pyspark_kafka_group.wire.login.sasl import plain, scram
from pyspark_kafka_group.wire.security import Conversation
from pyspark_kafka_group.wire.types import ProtocolError, StoppedLoginError

NONCE = "rOprNGfwEbeRWgbNEkqO"
SERVER_FIRST = b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
SERVER_FINAL = b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="


def example() -> Conversation:
    """Return the conversation of RFC 7677, section 3."""
    return scram("sha256", "user", "pencil", lambda: NONCE)


def test_plain_tells_user_and_password() -> None:
    conversation = plain("tim", "tanstaaftanstaaf")
    assert next(conversation) == b"\0tim\0tanstaaftanstaaf"
    with pytest.raises(StopIteration):
        conversation.send(b"")


def test_scram_proves_to_know_the_password() -> None:
    conversation = example()
    assert next(conversation) == b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
    assert conversation.send(SERVER_FIRST) == (
        b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
    )
    with pytest.raises(StopIteration):
        conversation.send(SERVER_FINAL)


def test_scram_with_sha_1_follows_its_rfc_too() -> None:
    """RFC 5802, section 5, contains the only other published example."""
    conversation = scram("sha1", "user", "pencil", lambda: "fyko+d2lbbFgONRv9qkxdawL")
    next(conversation)
    answer = b"r=fyko+d2lbbFgONRv9qkxdawL3rfcNHYJY1ZVvWVs7j,s=QSXCR+Q6sek8bf92,i=4096"
    assert conversation.send(answer).endswith(b",p=v0X8v3Bz2T0CJGbJQyF0X+HI4Ts=")
    with pytest.raises(StopIteration):
        conversation.send(b"v=rmF9pqV8S7suAoZWja4dJRkFsKQ=")


def test_names_with_special_characters_are_escaped() -> None:
    assert next(scram("sha256", "a=b,c", "p", lambda: "x")) == b"n,,n=a=3Db=2Cc,r=x"


def test_nonces_differ() -> None:
    assert next(scram("sha256", "u", "p")) != next(scram("sha256", "u", "p"))


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"r=someone else's,s=W22Z,i=4096",
        b"r=rOprNGfwEbeRWgbNEkqO,s=W22Z,i=4096",
        b"m=x," + SERVER_FIRST,
        SERVER_FIRST.replace(b"i=4096", b"i=x"),
        SERVER_FIRST.replace(b"i=4096", b"i=2147483647"),
        SERVER_FIRST[:60],
        b"\xff\xfe",
    ],
)
def test_a_broker_that_does_not_follow_the_rules_is_refused(answer: bytes) -> None:
    conversation = example()
    next(conversation)
    with pytest.raises(ProtocolError):
        conversation.send(answer)


@pytest.mark.parametrize("iterations", [b"-1", b"0", b"1", b"4095"])
def test_too_few_iterations_are_refused_before_the_proof_is_sent(iterations: bytes) -> None:
    """Java's client also refuses them.  librdkafka would send the proof."""
    conversation = example()
    next(conversation)
    with pytest.raises(StoppedLoginError, match=r"iterations, fewer than the 4096 .* kafka\.bootstrap\.servers"):
        conversation.send(SERVER_FIRST.replace(b"i=4096", b"i=" + iterations))


@pytest.mark.parametrize("answer", [b"", b"e=other-error", b"v=", SERVER_FINAL.replace(b"6", b"7"), b"v=\xff"])
def test_a_broker_that_does_not_know_the_password_is_refused(answer: bytes) -> None:
    conversation = example()
    next(conversation)
    conversation.send(SERVER_FIRST)
    with pytest.raises(ProtocolError, match="prove"):
        conversation.send(answer)
