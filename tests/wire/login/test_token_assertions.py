"""Tokens and assertions that a client makes itself."""

from __future__ import annotations

import base64
import json
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa, utils
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
)

from pyspark_kafka_group.wire.login.oauth import assertion_of, oauth_login, read_file, unsecured_token
from pyspark_kafka_group.wire.types import PropertyError

RSA, CURVE = rsa.generate_private_key(65537, 2048), ec.generate_private_key(ec.SECP256R1())
SECRET = "Pa55phrase"


def pem(key: rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey, passphrase: str = "") -> str:
    how = BestAvailableEncryption(passphrase.encode()) if passphrase else NoEncryption()
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, how).decode()


def config(**more: str) -> dict[str, str]:
    return {f"sasl.oauthbearer.assertion.{name.replace('_', '.')}": value for name, value in more.items()}


def decoded(part: str) -> Any:
    return json.loads(base64.urlsafe_b64decode(part + "=="))


def test_an_assertion_has_the_claims_of_librdkafka_and_a_signature(tmp_path: Path) -> None:
    template = tmp_path / "template.json"
    template.write_text('{"header": {"kid": "k"}, "payload": {"tenant": "t", "aud": "replaced"}}')
    (tmp_path / "key.pem").write_text(pem(RSA, SECRET))
    given = config(
        private_key_file=str(tmp_path / "key.pem"),
        private_key_passphrase=SECRET,
        jwt_template_file=str(template),
        claim_aud="a",
        claim_iss="i",
        claim_sub="s",
        claim_exp_seconds="100",
        claim_nbf_seconds="10",
        claim_jti_include="true",
    )
    header, payload, signature = assertion_of(given).sign().split(".")
    assert decoded(header) == {"kid": "k", "alg": "RS256", "typ": "JWT"}
    claims = decoded(payload)
    assert claims.pop("jti") != decoded(assertion_of(given).sign().split(".")[1])["jti"]
    made = claims.pop("iat")
    assert abs(made - time.time()) < 60
    assert claims == {"tenant": "t", "aud": "a", "iss": "i", "sub": "s", "exp": made + 100, "nbf": made - 10}
    shown = base64.urlsafe_b64decode(signature + "==")
    RSA.public_key().verify(shown, f"{header}.{payload}".encode(), padding.PKCS1v15(), SHA256())


def test_an_elliptic_curve_signs_as_jose_says() -> None:
    text, _, signature = assertion_of(config(private_key_pem=pem(CURVE), algorithm="ES256")).sign().rpartition(".")
    raw = base64.urlsafe_b64decode(signature + "==")
    shown = utils.encode_dss_signature(int.from_bytes(raw[:32], "big"), int.from_bytes(raw[32:], "big"))
    CURVE.public_key().verify(shown, text.encode(), ec.ECDSA(SHA256()))


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({}, "private.key.file"),
        ({"private_key_file": "/nowhere"}, "private.key.file"),
        ({"private_key_pem": "none"}, "private.key.pem"),
        ({"private_key_pem": pem(CURVE)}, "private.key.pem"),
        ({"private_key_pem": pem(RSA, SECRET)}, "private.key.pem"),
        ({"private_key_pem": pem(ec.generate_private_key(ec.SECP384R1())), "algorithm": "ES256"}, "private.key.pem"),
        ({"private_key_pem": pem(RSA), "jwt_template_file": "@deep"}, "private.key.pem"),
        ({"private_key_pem": pem(RSA), "algorithm": "HS256"}, "algorithm"),
        ({"private_key_pem": pem(RSA), "claim_exp_seconds": "soon"}, "claim.exp.seconds"),
        ({"private_key_pem": pem(RSA), "jwt_template_file": "/nowhere"}, "jwt.template.file"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_makes_no_assertion_is_named(given: dict[str, str], named: str, tmp_path: Path) -> None:
    (tmp_path / "deep").write_text("[" * 100_000)
    given = {key: value.replace("@", f"{tmp_path}/") for key, value in given.items()}
    with pytest.raises(PropertyError) as problem:
        assertion_of(config(**given))
    assert problem.value.key == f"sasl.oauthbearer.assertion.{named}"
    assert "PRIVATE KEY" not in str(problem.value)


def test_without_the_package_an_error_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cryptography.hazmat.primitives.serialization", None)
    with pytest.raises(PropertyError, match=r"Install pyspark-kafka-group\[pkcs12\]"):
        assertion_of(config(private_key_pem=pem(RSA)))


def test_a_file_that_is_no_text_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"\xff\xfe")
    with pytest.raises(PropertyError, match="it is not a text"):
        read_file({"key": str(tmp_path / "x")}, "key")


def test_a_token_without_a_signature_says_what_the_property_says() -> None:
    text = "principalClaimName=azp principal=admin scopeClaimName=roles scope=a,b lifeSeconds=600 extension_traceId=1"
    token, extensions = unsecured_token(text)
    header, payload, signature = token.split(".")
    claims = decoded(payload)
    assert (decoded(header), signature, extensions) == ({"alg": "none"}, "", {"traceId": "1"})
    assert claims["exp"] - claims["iat"] == pytest.approx(600)
    assert (claims["azp"], claims["roles"]) == ("admin", ["a", "b"])
    assert decoded(unsecured_token("principal=b")[0].split(".")[1]).keys() == {"sub", "iat", "exp"}


@pytest.mark.parametrize("life", ["1h", "1.5", "9" * 400, "9" * 5000])
def test_a_life_of_a_token_without_a_signature_that_is_no_number_is_an_error_of_the_property(life: str) -> None:
    given = {"enable.sasl.oauthbearer.unsecure.jwt": "true", "sasl.oauthbearer.config": f"lifeSeconds={life}"}
    with pytest.raises(PropertyError, match=r"^sasl\.oauthbearer\.config: lifeSeconds is not a whole number"):
        oauth_login(given)
