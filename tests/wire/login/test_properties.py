"""Encrypted and authenticated connections to a server with a small part of Kafka's protocol."""

from __future__ import annotations

import os
import re
import socket
import ssl
import sys
import threading
import time
from contextlib import nullcontext
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace

import pytest
import trustme
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import pkcs12

from pyspark_kafka_group.wire import messages as protocol
from pyspark_kafka_group.wire.broker_connection import BrokerConnection
from pyspark_kafka_group.wire.login.properties import security_of
from pyspark_kafka_group.wire.security import Security
from pyspark_kafka_group.wire.types import PropertyError, ProtocolError
from tests.wire.login_broker import Broker, broker, secured

SECRET = "hunter2"
SSL = {"security.protocol": "ssl"}


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture(scope="module")
def ca(authority: trustme.CA, tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("ca") / "ca.pem"
    authority.cert_pem.write_to_path(str(path))
    return str(path)


def connect(to: Broker, **config: str) -> None:
    security = secured({name.replace("_", "."): value for name, value in config.items()})
    BrokerConnection(to.address, "me", 2.0, security).close()


def test_a_certificate_of_a_known_authority_for_this_host_is_trusted(authority: trustme.CA, ca: str) -> None:
    with broker(authority.issue_cert("127.0.0.1")) as to:
        connect(to, security_protocol="SSL", ssl_ca_location=ca)
        connect(to, security_protocol="ssl", ssl_ca_location=str(Path(ca)), ssl_key_password="unused")
        connect(to, security_protocol="ssl", ssl_ca_pem=Path(ca).read_text())


def test_a_certificate_of_an_unknown_authority_is_not_trusted(authority: trustme.CA, ca: str) -> None:
    with broker(trustme.CA().issue_cert("127.0.0.1")) as to:
        with pytest.raises(ssl.SSLCertVerificationError):
            connect(to, security_protocol="ssl", ssl_ca_location=ca)
        with pytest.raises(ssl.SSLCertVerificationError):
            connect(to, security_protocol="ssl")
        security = secured({"security.protocol": "ssl", "enable.ssl.certificate.verification": "false"})
        BrokerConnection(to.address, "me", 2.0, security).close()


def test_a_certificate_for_another_host_is_not_trusted(authority: trustme.CA, ca: str) -> None:
    with broker(authority.issue_cert("kafka.example")) as to:
        with pytest.raises(ssl.SSLCertVerificationError):
            connect(to, security_protocol="ssl", ssl_ca_location=ca)
        for none in ("none", "NONE", " None"):
            connect(to, security_protocol="ssl", ssl_ca_location=ca, ssl_endpoint_identification_algorithm=none)


def encrypted(key: trustme.Blob) -> str:
    """Return a private key, encrypted as in Java's PEM stores."""
    found = serialization.load_pem_private_key(key.bytes(), None)
    encryption = serialization.BestAvailableEncryption(SECRET.encode())
    return found.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, encryption).decode()


def test_a_broker_that_asks_for_a_certificate_is_shown_one(authority: trustme.CA, ca: str, tmp_path: Path) -> None:
    mine = authority.issue_cert("me")
    chain = "".join(part.bytes().decode() for part in mine.cert_chain_pems)
    key = mine.private_key_pem.bytes().decode()
    (tmp_path / "me.pem").write_text(encrypted(mine.private_key_pem) + chain)
    both = str(tmp_path / "me.pem")
    with broker(authority.issue_cert("127.0.0.1"), trusts=authority) as to:
        with pytest.raises(OSError, match=r".+"):
            connect(to, security_protocol="ssl", ssl_ca_location=ca)
        shown: dict[str, str] = {"security_protocol": "ssl", "ssl_ca_location": ca}
        connect(to, **shown, ssl_certificate_pem=chain, ssl_key_pem=key)
        connect(
            to, **shown, ssl_certificate_pem=chain, ssl_key_pem=encrypted(mine.private_key_pem), ssl_key_password=SECRET
        )
        connect(to, **shown, ssl_certificate_location=both, ssl_key_location=both, ssl_key_password=SECRET)


def key_store(mine: trustme.LeafCert, path: Path) -> str:
    """Write a certificate and its key into a PKCS#12 store, and return its path."""
    key = serialization.load_pem_private_key(mine.private_key_pem.bytes(), None)
    certificate, *others = [x509.load_pem_x509_certificate(part.bytes()) for part in mine.cert_chain_pems]
    assert isinstance(key, rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey)
    encryption = serialization.BestAvailableEncryption(SECRET.encode())
    path.write_bytes(pkcs12.serialize_key_and_certificates(b"me", key, certificate, others, encryption))
    return str(path)


def test_certificate_of_a_pkcs12_store_is_shown(authority: trustme.CA, ca: str, tmp_path: Path) -> None:
    store = key_store(authority.issue_cert("me"), tmp_path / "me.p12")
    with broker(authority.issue_cert("127.0.0.1"), trusts=authority) as to:
        shown: dict[str, str] = {"security_protocol": "ssl", "ssl_ca_location": ca, "ssl_keystore_location": store}
        connect(to, **shown, ssl_keystore_password=SECRET)


@pytest.mark.parametrize("change", ["password", "file", "package"])
def test_pkcs12_store_that_cannot_be_opened_is_an_error(
    authority: trustme.CA, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    store = key_store(authority.issue_cert("me"), tmp_path / "me.p12")
    config = {"security.protocol": "ssl", "ssl.keystore.location": store, "ssl.keystore.password": SECRET}
    security_of(config)
    if change == "password":
        config["ssl.keystore.password"] = "other"
    elif change == "file":
        Path(store).write_bytes(b"a store of Java's own kind")
    else:
        monkeypatch.setitem(sys.modules, "cryptography.hazmat.primitives.serialization", None)
    with pytest.raises(PropertyError, match=r"^ssl.keystore.location: ") as problem:
        security_of(config)
    assert SECRET not in str(problem.value)


def test_certificates_and_keys_as_text_leave_no_file_open(authority: trustme.CA) -> None:
    mine = authority.issue_cert("me")
    config = {
        "security.protocol": "ssl",
        "ssl.certificate.pem": mine.cert_chain_pems[0].bytes().decode(),
        "ssl.key.pem": mine.private_key_pem.bytes().decode(),
    }
    before = len(os.listdir("/proc/self/fd"))
    secured(config)
    with pytest.raises(PropertyError, match=r"^ssl.certificate.pem: no certificate with its key"):
        security_of({**config, "ssl.key.pem": SECRET})
    with pytest.raises(PropertyError, match=r"^ssl.key.location: kafka.ssl.key.pem is also set"):
        security_of({**config, "ssl.key.location": "/nowhere"})
    assert len(os.listdir("/proc/self/fd")) == before


def revoked(authority: trustme.CA, certificate: trustme.LeafCert | None, file: Path) -> str:
    """Write the authority's list of revoked certificates, with one entry or none, and return its path."""
    issuer = x509.load_pem_x509_certificate(authority.cert_pem.bytes())
    now = datetime.now(UTC)
    made = x509.CertificateRevocationListBuilder(issuer.subject, now, now + timedelta(days=1))
    if certificate is not None:
        number = x509.load_pem_x509_certificate(certificate.cert_chain_pems[0].bytes()).serial_number
        entry = x509.RevokedCertificateBuilder().serial_number(number).revocation_date(now).build()
        made = made.add_revoked_certificate(entry)
    key = serialization.load_pem_private_key(authority.private_key_pem.bytes(), None)
    assert isinstance(key, ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey)
    file.write_bytes(made.sign(key, SHA256()).public_bytes(serialization.Encoding.PEM))
    return str(file)


def test_a_revoked_certificate_is_refused(authority: trustme.CA, ca: str, tmp_path: Path) -> None:
    certificate = authority.issue_cert("127.0.0.1")
    with broker(certificate) as to:
        shown: dict[str, str] = {"security_protocol": "ssl", "ssl_ca_location": ca}
        connect(to, **shown, ssl_crl_location=revoked(authority, None, tmp_path / "none.pem"))
        with pytest.raises(ssl.SSLError, match="revoked"):
            connect(to, **shown, ssl_crl_location=revoked(authority, certificate, tmp_path / "one.pem"))
    with pytest.raises(PropertyError, match=r"^ssl\.crl\.location: "):
        security_of({"security.protocol": "ssl", "ssl.crl.location": "/nowhere"})


def test_cipher_suites_are_those_that_are_named(authority: trustme.CA, ca: str) -> None:
    tls = secured({"security.protocol": "ssl", "ssl.cipher.suites": "ECDHE-RSA-AES128-GCM-SHA256"}).tls
    assert tls is not None
    assert {one["name"] for one in tls.get_ciphers() if one["protocol"] != "TLSv1.3"} == {"ECDHE-RSA-AES128-GCM-SHA256"}
    with pytest.raises(PropertyError, match=r"^ssl\.cipher\.suites: OpenSSL does not know any"):
        security_of({"security.protocol": "ssl", "ssl.cipher.suites": "none"})


def test_the_systems_authorities_count_if_none_are_named() -> None:
    for more in ({}, {"ssl.ca.location": "probe"}):
        tls = secured({"security.protocol": "ssl", **more}).tls
        assert tls is not None
        assert tls.verify_mode is ssl.CERT_REQUIRED


@pytest.mark.parametrize(("family", "works"), [("any", True), ("v4", True), ("v6", False)])
def test_only_addresses_of_a_family_are_connected_to(family: str, works: bool) -> None:
    with broker() as to, nullcontext() if works else pytest.raises(OSError, match=r".+"):
        connect(to, broker_address_family=family)


def test_bootstrap_servers_may_have_the_names_of_their_addresses(
    authority: trustme.CA, ca: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(socket, "getnameinfo", lambda where, _: (f"b1-{where[0]}.example", ""))
    with broker(authority.issue_cert("b1-127.0.0.1.example")) as to:
        config = {"security.protocol": "ssl", "ssl.ca.location": ca, "bootstrap.servers": str(to.address)}
        with pytest.raises(ssl.SSLError, match="verify failed"):
            BrokerConnection(to.address, "me", 2.0, secured(config)).close()
        config["client.dns.lookup"] = "resolve_canonical_bootstrap_servers_only"
        BrokerConnection(to.address, "me", 2.0, secured(config)).close()
        with pytest.raises(ssl.SSLError, match="verify failed"):
            BrokerConnection(to.address, "me", 2.0, secured({**config, "bootstrap.servers": "other:1"})).close()


def test_a_broker_that_does_not_encrypt_is_an_error(ca: str) -> None:
    with broker() as to, pytest.raises(OSError, match=r".+"):
        connect(to, security_protocol="ssl", ssl_ca_location=ca)


def test_an_encrypted_connection_can_be_interrupted_and_silence_ends_its_request(
    authority: trustme.CA, ca: str
) -> None:
    with broker(authority.issue_cert("127.0.0.1")) as to:
        security = secured({"security.protocol": "ssl", "ssl.ca.location": ca})
        connection = BrokerConnection(to.address, "me", 20.0, security)
        threading.Timer(0.2, connection.interrupt).start()
        begin = time.monotonic()
        with pytest.raises(OSError, match=r".+"):
            connection.request(protocol.FETCH, b"")  # gets no answer
        assert time.monotonic() - begin < 10
        connection = BrokerConnection(to.address, "me", 0.3, security)
        with pytest.raises(OSError, match=r".+"):
            connection.request(protocol.FETCH, b"")


LOGIN = {
    "security.protocol": "SASL_PLAINTEXT",
    "sasl.mechanism": "PLAIN",
    "sasl.username": "u",
    "sasl.password": SECRET,
}


def test_a_login_lasts_as_long_as_the_broker_says() -> None:
    with broker() as to:
        connection = BrokerConnection(to.address, "me", 2.0, secured(LOGIN))
        assert not connection.good_until.is_set
        to.lifetime_ms = 100_000
        connection = BrokerConnection(to.address, "me", 2.0, secured(LOGIN))
        assert 80 < connection.good_until.left_s < 90
        assert to.logins == 2 * [f"\0u\0{SECRET}".encode()]


def test_refused_credentials_are_an_error_that_does_not_tell_them() -> None:
    with broker() as to:
        to.refuses = True
        with pytest.raises(ProtocolError, match="refuses the credentials: error 58: wrong!") as problem:
            BrokerConnection(to.address, "me", 2.0, secured(LOGIN))
        assert SECRET not in str(problem.value)


def test_a_mechanism_that_is_not_offered_is_an_error() -> None:
    with broker() as to, pytest.raises(ProtocolError, match="offers PLAIN"):
        BrokerConnection(to.address, "me", 2.0, secured({**LOGIN, "sasl.mechanism": "SCRAM-SHA-256"}))


def test_a_broker_that_knows_no_logins_is_an_error() -> None:
    with broker() as to:
        to.offered = {1: (0, 12), 2: (0, 7), 3: (0, 9)}
        with pytest.raises(ProtocolError, match="of request 17"):
            BrokerConnection(to.address, "me", 2.0, secured(LOGIN))
        BrokerConnection(to.address, "me", 2.0, Security()).close()


def test_secrets_are_not_shown() -> None:
    assert SECRET not in repr(secured(LOGIN))
    assert SECRET not in str(SimpleNamespace(security=secured({**LOGIN, "sasl.mechanism": "SCRAM-SHA-512"})))


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"security.protocol": "nonsense"}, "security.protocol: Kafka has no such protocol"),
        ({**LOGIN, "sasl.mechanism": "NONSENSE"}, "sasl.mechanism: it is NONSENSE"),
        ({**LOGIN, "sasl.mechanism": "OAUTHBEARER"}, "sasl.oauthbearer.method: "),
        ({**LOGIN, "sasl.password": None}, "sasl.password: it is missing"),
        ({**SSL, "ssl.ca.location": "/nowhere"}, "ssl.ca.location: it cannot be read here: No such"),
        ({**SSL, "ssl.ca.location": "pyproject.toml"}, "ssl.ca.location: it contains no certif"),
        ({**SSL, "ssl.ca.pem": "no certificate"}, "ssl.ca.pem: it contains no certificate"),
        ({**SSL, "ssl.ca.pem": "# of Zo\u00eb"}, "ssl.ca.pem: it contains no certificate"),
        ({**SSL, "ssl.certificate.location": "/nowhere"}, "ssl.certificate.location: it cannot be"),
        ({**SSL, "ssl.key.location": "/nowhere"}, "ssl.key.location: it is set without a certificate. Name its"),
        ({**SSL, "ssl.key.pem": SECRET}, "ssl.key.pem: it is set without a certificate. Name its"),
    ],
    ids=str,
)
def test_what_cannot_be_used_is_an_error_that_names_the_property(config: dict[str, str | None], message: str) -> None:
    with pytest.raises(PropertyError, match=f"^{re.escape(message)}"):
        security_of({key: value for key, value in config.items() if value is not None})


def test_connections_are_plain_unless_said_otherwise() -> None:
    assert security_of({}) == Security()
    assert security_of({"sasl.username": "u", "ssl.ca.location": "/nowhere"}) == Security()
