"""Reads over TLS: ``spark.read`` reads a whole topic in plain text and encrypted.

Both sources get the same options, with the names of Java's client.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.environment import Bench, Say, bench
from benchmarks.queries import rotated
from benchmarks.records import Shape, load
from benchmarks.results import Cell, Result
from benchmarks.views import BUILTIN, OURS
from pyspark_kafka_group.testing import TlsFiles

ARMS = (BUILTIN, OURS)

QUICK: dict[str, Any] = {"megabytes": 4, "sizes": [100], "repetitions": 1}

_PARTITIONS = 8
_USER, _PASSWORD = "bench", "no-secret"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of this benchmark."""
    parser.add_argument("--megabytes", type=int, default=200, help="of values in a topic (default: %(default)s)")
    parser.add_argument("--sizes", type=int, nargs="*", default=[100, 1000], help="of values, in bytes (%(default)s)")
    parser.add_argument("--repetitions", type=int, default=5, help="(default: %(default)s)")


def measure(args: argparse.Namespace, result: Result, say: Say) -> None:
    """Run the benchmark and add a cell for each case to the result."""
    with tempfile.TemporaryDirectory(prefix="benchmark-tls-") as folder:
        files, truststore = _certificates(Path(folder))
        encrypted = {
            "kafka.security.protocol": "SSL",
            "kafka.ssl.truststore.type": "PEM",
            "kafka.ssl.truststore.location": str(truststore),
        }
        login = f'username="{_USER}" password="{_PASSWORD}"'
        with_login = {
            **encrypted,
            "kafka.security.protocol": "SASL_SSL",
            "kafka.sasl.mechanism": "SCRAM-SHA-512",
            "kafka.sasl.jaas.config": f"org.apache.kafka.common.security.scram.ScramLoginModule required {login};",
        }
        # A LocalKafka has only one listener besides the one in plain text, so the benchmark needs two brokers.
        with bench(say, tls=files) as place:
            _cells(args, place, {"plain text": {}, "SSL": encrypted}, result)
        with bench(say, tls=files, sasl_users={_USER: _PASSWORD}) as place:
            _add_scram_user(place)
            _cells(args, place, {"SASL_SSL": with_login}, result)


def _cells(args: argparse.Namespace, place: Bench, ways: Mapping[str, Mapping[str, str]], result: Result) -> None:
    for size in args.sizes:
        records = args.megabytes * 1_000_000 // size
        topic = place.topic(_PARTITIONS)
        load(place.servers, topic, shape=Shape(value_size=size), partitions=_PARTITIONS, records=records)
        cells = {
            way: Cell(name=f"{size:,} B, {way}", factors={"records": records, "value_size": size, "way": way})
            for way in ways
        }
        result.cells += cells.values()
        runs = [f"{arm}\n{way}" for way in ways for arm in ARMS]
        for repetition in range(-1, args.repetitions):  # the first repetition is the warm-up
            for arm, _, way in (run.partition("\n") for run in rotated(runs, max(0, repetition))):
                took_s = _read(place, arm, topic, ways[way])
                if repetition >= 0:
                    cells[way].add(arm, {"records_per_s": records / took_s, "mb_per_s": args.megabytes / took_s})
                    place.say(f"{cells[way].name}, {arm}: {took_s:.2f} s")
        place.kafka.delete_topic(topic)


def _read(place: Bench, arm: str, topic: str, security: Mapping[str, str]) -> float:
    """Read a whole topic into the ``noop`` sink, and return the time since ``load()``."""
    servers = place.kafka.secured_bootstrap_servers if security else place.servers
    begin = time.monotonic()
    options = {"kafka.bootstrap.servers": servers, "subscribe": topic, **security}
    place.spark.read.format(arm).options(**options).load().write.format("noop").mode("overwrite").save()
    return time.monotonic() - begin


def _certificates(folder: Path) -> tuple[TlsFiles, Path]:
    """Return the broker's certificate files, and the file of the authority that has signed them."""
    import trustme
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, load_pem_private_key

    authority = trustme.CA()
    made = authority.issue_cert("127.0.0.1")
    key = load_pem_private_key(made.private_key_pem.bytes(), None)
    pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    (folder / "broker.pem").write_bytes(pem + b"".join(blob.bytes() for blob in made.cert_chain_pems))
    authority.cert_pem.write_to_path(str(folder / "ca.pem"))
    return TlsFiles(certificate=folder / "broker.pem"), folder / "ca.pem"


def _add_scram_user(place: Bench) -> None:
    from confluent_kafka.admin import (
        AdminClient,
        ScramCredentialInfo,
        ScramMechanism,
        UserScramCredentialUpsertion,
    )

    credential = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096)
    wanted = UserScramCredentialUpsertion(_USER, credential, _PASSWORD.encode())
    admin = AdminClient({"bootstrap.servers": place.servers})
    for future in admin.alter_user_scram_credentials([wanted]).values():
        future.result(30)
