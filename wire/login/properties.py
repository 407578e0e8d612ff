"""Encryption and authentication of connections to brokers, from librdkafka's properties.

An unsupported property is a `PropertyError`, which names it and the remedy.
"""

from __future__ import annotations

import socket
from collections.abc import Mapping
from typing import TYPE_CHECKING

from pyspark_kafka_group.wire.login.sasl import SCRAM_HASHES, plain, scram
from pyspark_kafka_group.wire.name_lookup import addresses
from pyspark_kafka_group.wire.security import Login, Security
from pyspark_kafka_group.wire.types import PropertyError

if TYPE_CHECKING:
    import ssl

_ALL_ADDRESSES, _CANONICAL = "use_all_dns_ips", "resolve_canonical_bootstrap_servers_only"
_FAMILIES = {"any": socket.AF_UNSPEC, "v4": socket.AF_INET, "v6": socket.AF_INET6}


def security_of(config: Mapping[str, str]) -> Security:
    """Return how to open and secure connections.

    Parameters
    ----------
    config
        librdkafka's properties.  Others than those about security are ignored.

    Raises
    ------
    PropertyError
        If a property is invalid or not supported.
    """
    protocol = config.get("security.protocol", "plaintext").lower()
    if protocol not in ("plaintext", "ssl", "sasl_plaintext", "sasl_ssl"):
        raise PropertyError(
            "security.protocol", "Kafka has no such protocol.", "Write PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL."
        )
    family = config.get("broker.address.family", "any").strip().lower()
    if family not in _FAMILIES:
        raise PropertyError("broker.address.family", f"it cannot be {family}.", f"Write {' or '.join(_FAMILIES)}.")
    by_name = config.get("client.dns.lookup", _ALL_ADDRESSES)
    if by_name not in (_ALL_ADDRESSES, _CANONICAL):
        raise PropertyError("client.dns.lookup", "it cannot be this.", f"Write {_ALL_ADDRESSES} or {_CANONICAL}.")
    return Security(
        protocol,
        _tls(config) if protocol.endswith("ssl") else None,
        _login(config) if protocol.startswith("sasl") else None,
        _FAMILIES[family],
        frozenset(addresses(config.get("bootstrap.servers", "")) if by_name == _CANONICAL else ()),
    )


# Deliberate, here and below: imports where they are needed.  Each process of Spark would import every login.


def _tls(config: Mapping[str, str]) -> ssl.SSLContext:
    from pyspark_kafka_group.wire.login.tls import client_context

    return client_context(config)


def _login(config: Mapping[str, str]) -> Login:
    # The default is GSSAPI, as in librdkafka and Java's client.
    mechanism = config.get("sasl.mechanism") or "GSSAPI"
    if mechanism == "GSSAPI":
        from pyspark_kafka_group.wire.login.kerberos import kerberos_login

        return Login(mechanism, kerberos_login(config).talk)
    if mechanism == "OAUTHBEARER":
        from pyspark_kafka_group.wire.login.oauth import oauth_login

        return Login(mechanism, oauth_login(config))
    if mechanism != "PLAIN" and mechanism not in SCRAM_HASHES:
        raise PropertyError(
            "sasl.mechanism",
            f"it is {mechanism}, which the source does not support.",
            f"Use PLAIN, {', '.join(SCRAM_HASHES)}, OAUTHBEARER or GSSAPI.",
        )
    for needed in ("sasl.username", "sasl.password"):
        if needed not in config:
            raise PropertyError(needed, f"it is missing, but {mechanism} needs it.", "Add it.")
    username, password = config["sasl.username"], config["sasl.password"]
    if mechanism == "PLAIN":
        return Login(mechanism, lambda *_: plain(username, password))
    return Login(mechanism, lambda *_: scram(SCRAM_HASHES[mechanism], username, password))
