"""No secret of a connection is in the output, files or processes of a run.

The tests run a whole application (:mod:`integration.secret_run`) and the command line.  Their passwords, keys and
tokens exist nowhere else on this machine.
"""

from __future__ import annotations

import base64
import json
import os
import pickle
import shutil
import subprocess
import sys
import tempfile
import uuid
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import trustme
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)

from integration.cluster import committed, produce, reset
from integration.permissions import PERMISSIONS
from integration.secret_search import Leaks
from integration.token_server import TokenServer
from pyspark_kafka_group.cluster.properties.permissions import VARIABLE
from pyspark_kafka_group.testing import LocalKafka, TlsFiles
from pyspark_kafka_group.testing.ports import free_ports

USER = "alice"
RECORDS = 200
COMMANDS = (
    ("describe",),
    ("describe", "--json"),
    ("watch", "--count", "1", "--json"),
    ("coordinator",),
    ("coordinator", "--json"),
    ("history", "--json", "--all"),
    ("rewinds",),
    ("doctor",),
    ("doctor", "--json"),
    ("reset", "--to", "start", "--json"),
)


@pytest.fixture(scope="module")
def secrets() -> dict[str, str]:
    """Return new passwords, so that any copy of them comes from this run."""
    names = ("password", "wrong password", "key password", "client secret", "wrong client secret")
    return {name: f"Pa55-{uuid.uuid4().hex}" for name in names}


@pytest.fixture(scope="module")
def certificates(secrets: Mapping[str, str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with an authority, a broker's certificate, and a client's certificate with an encrypted key."""
    folder = tmp_path_factory.mktemp("certificates")
    authority = trustme.CA()
    authority.cert_pem.write_to_path(str(folder / "ca.pem"))
    encryption = {
        "broker": ("127.0.0.1", NoEncryption()),
        "client": ("alice@example.org", BestAvailableEncryption(secrets["key password"].encode())),
    }
    for name, (identity, how) in encryption.items():
        made = authority.issue_cert(identity)
        key = load_pem_private_key(made.private_key_pem.bytes(), None)
        pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, how)
        (folder / f"{name}.pem").write_bytes(pem + b"".join(blob.bytes() for blob in made.cert_chain_pems))
    return folder


@pytest.fixture(scope="module")
def tokens(secrets: Mapping[str, str]) -> Iterator[TokenServer]:
    with TokenServer("etl", secrets["client secret"]) as server:
        yield server


@pytest.fixture(scope="module")
def broker(secrets: Mapping[str, str], certificates: Path, tokens: TokenServer) -> Iterator[LocalKafka]:
    """Yield a broker that requires a client certificate, and a password or a token."""
    tls = TlsFiles(certificate=certificates / "broker.pem", authority=certificates / "ca.pem")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JAVA_TOOL_OPTIONS", tokens.java_options)
        kafka = tokens.broker({USER: secrets["password"]}, tls).start()
    with kafka:
        for name in ("orders", "copies"):
            kafka.create_topic(name, 2)
        produce(kafka.bootstrap_servers, "orders", {0: RECORDS, 1: RECORDS})
        reset(kafka.bootstrap_servers, "some-group", "orders", {0: 10})
        yield kafka


@pytest.fixture
def folder() -> Iterator[Path]:
    """Yield a folder with a short path, because paths of sockets must be short."""
    made = Path(tempfile.mkdtemp(prefix="secrets-"))
    yield made
    shutil.rmtree(made, ignore_errors=True)


def tls(broker: LocalKafka, certificates: Path, secrets: Mapping[str, str]) -> dict[str, str]:
    return {
        "kafka.bootstrap.servers": broker.secured_bootstrap_servers,
        "kafka.security.protocol": "SASL_SSL",
        "kafka.ssl.ca.location": str(certificates / "ca.pem"),
        "kafka.ssl.certificate.location": str(certificates / "client.pem"),
        "kafka.ssl.key.location": str(certificates / "client.pem"),
        "kafka.ssl.key.password": secrets["key password"],
    }


def with_password(password: str) -> dict[str, str]:
    return {"kafka.sasl.mechanism": "PLAIN", "kafka.sasl.username": USER, "kafka.sasl.password": password}


def with_jaas(password: str) -> dict[str, str]:
    module = "org.apache.kafka.common.security.plain.PlainLoginModule"
    line = f'{module} required username="{USER}" password="{password}";'
    return {"kafka.sasl.mechanism": "PLAIN", "kafka.sasl.jaas.config": line}


def with_oauth(tokens: TokenServer, secret: str) -> dict[str, str]:
    return {
        "kafka.sasl.mechanism": "OAUTHBEARER",
        "kafka.sasl.oauthbearer.method": "oidc",
        "kafka.sasl.oauthbearer.client.id": "etl",
        "kafka.sasl.oauthbearer.client.secret": secret,
        "kafka.sasl.oauthbearer.token.endpoint.url": tokens.token_url,
    }


def with_provider(tokens: TokenServer, secret: str) -> dict[str, str]:
    return {
        "kafka.sasl.oauthbearer.provider": "integration.token_providers:Vault.token",
        "kafka.sasl.oauthbearer.config": f"{tokens.token_url} etl {secret}",
    }


@pytest.mark.timeout(700)
def test_no_secret_is_in_anything_that_an_application_leaves(
    broker: LocalKafka, certificates: Path, tokens: TokenServer, secrets: dict[str, str], folder: Path
) -> None:
    base = tls(broker, certificates, secrets)
    (nobody,) = free_ports(1)
    debug = {"kafka.debug": "all"}
    (folder / "tmp").mkdir()
    config = {
        "folder": str(folder),
        "topic": "orders",
        "secrets": secrets,
        "works": {
            "password": {**base, **with_password(secrets["password"]), **debug},
            "jaas": {**base, **with_jaas(secrets["password"])},
            "reference": {**base, **with_password("${env:KAFKA_SECRET}")},
            "oauth": {**base, **with_oauth(tokens, secrets["client secret"]), **debug},
            "provider": {**base, **with_provider(tokens, secrets["client secret"]), **debug},
        },
        "fails": {
            "wrong-password": {**base, **with_password(secrets["wrong password"]), **debug},
            "wrong-jaas": {**base, **with_jaas(secrets["wrong password"])},
            "wrong-oauth": {**base, **with_oauth(tokens, secrets["wrong client secret"]), **debug},
            "wrong-provider": {**base, **with_provider(tokens, secrets["wrong client secret"]), **debug},
            "unreachable": {
                **base,
                **with_password(secrets["password"]),
                "kafka.bootstrap.servers": f"127.0.0.1:{nobody}",
                "kafkaConsumer.pollTimeoutMs": "3000",
            },
        },
    }
    output = folder / "output"
    root = Path(__file__).parents[1]
    with output.open("wb") as log:
        application = subprocess.run(
            [sys.executable, "-m", "integration.secret_run"],
            cwd=root,
            input=json.dumps(config).encode(),
            stdout=log,
            stderr=subprocess.STDOUT,
            # Spark's processes import the token provider from PYTHONPATH.
            env={
                **os.environ,
                "TMPDIR": str(folder / "tmp"),
                "KAFKA_SECRET": secrets["password"],
                VARIABLE: ",".join([*PERMISSIONS, "env:KAFKA_SECRET"]),
                "PYTHONPATH": str(root),
            },
            timeout=680,
            check=False,
        )
    shown = output.read_text(errors="replace")
    assert application.returncode == 0, shown[-5000:]
    assert "THE END" in shown
    leaks = Leaks({**secrets, **{f"token {n}": token for n, token in enumerate(tokens.issued)}})
    assert tokens.issued
    assert tokens.refused
    assert committed(broker.bootstrap_servers, "oauth", "orders", [0, 1]) == {0: RECORDS, 1: RECORDS}
    assert not [line for line in shown.splitlines() if line.startswith("LEAK")]
    assert not leaks.in_folder(folder)
    # All steps ran and logged, or the search for leaks would prove nothing.
    for name in ("password", "jaas", "reference", "oauth", "provider"):
        assert f"DONE {name} exactly-once" in shown
        assert f"DONE {name} show" in shown
    for name in ("password", "oauth", "provider"):
        assert f"DONE {name} at-least-once" in shown
    failed = {(name, part) for name in config["fails"] for part in ("batch", "sink", "stream")}
    failed -= {("unreachable", "stream")}  # a stream waits for its brokers
    lines = [line.replace(":", "").split() for line in shown.splitlines() if line.startswith("FAILED ")]
    assert {(line[1], line[2]) for line in lines} == failed


def test_no_secret_is_in_what_the_command_line_says(
    broker: LocalKafka, certificates: Path, tokens: TokenServer, secrets: dict[str, str], tmp_path: Path
) -> None:
    base = tls(broker, certificates, secrets)
    (nobody,) = free_ports(1)
    connections = {
        "works": {**base, **with_password(secrets["password"])},
        "jaas": {**base, **with_jaas(secrets["password"])},
        "wrong": {**base, **with_password(secrets["wrong password"])},
        "oauth": {**base, **with_oauth(tokens, secrets["client secret"])},
        "wrong-oauth": {**base, **with_oauth(tokens, secrets["wrong client secret"])},
        "provider": {**base, **with_provider(tokens, secrets["client secret"])},
        "wrong-provider": {**base, **with_provider(tokens, secrets["wrong client secret"])},
        "unreachable": {**base, **with_password(secrets["password"]), "kafka.bootstrap.servers": f"127.0.0.1:{nobody}"},
    }
    leaks = Leaks(secrets)

    def ask(name: str, command: tuple[str, ...]) -> subprocess.CompletedProcess[bytes]:
        arguments = [command[0], "some-group", *command[1:], "--config", str(tmp_path / f"{name}.properties")]
        return subprocess.run(
            [sys.executable, "-X", "dev", "-m", "pyspark_kafka_group.tools", *arguments],
            capture_output=True,
            timeout=120,
            check=False,
        )

    for name, properties in connections.items():
        lines = [f"{key.removeprefix('kafka.')}={value}" for key, value in properties.items()]
        (tmp_path / f"{name}.properties").write_text("\n".join(lines) + "\n")
    commands = {name: COMMANDS if name == "works" else COMMANDS[1:2] for name in connections}
    statuses: dict[str, set[int]] = {}
    said: list[bytes] = []
    # Three commands run at a time: those that cannot connect mostly wait.
    with ThreadPoolExecutor(3) as pool:
        runs = [(name, command, pool.submit(ask, name, command)) for name in connections for command in commands[name]]
    for name, command, running in runs:
        run = running.result()
        said.append(run.stdout + run.stderr)
        assert not leaks.in_bytes(said[-1], f"{name}: {command}")
        assert run.stdout + run.stderr
        statuses.setdefault(name, set()).add(run.returncode)
        assert name != "works" or run.returncode != 2, run.stderr
    assert all(statuses[name] <= {0, 1} for name in ("works", "jaas", "oauth", "provider")), "it could be found out"
    assert all(statuses[name] == {2} for name in ("wrong", "wrong-oauth", "wrong-provider", "unreachable"))
    assert not Leaks({f"token {n}": token for n, token in enumerate(tokens.issued)}).in_bytes(b"".join(said), "output")


def test_what_is_searched_with_finds_secrets(tmp_path: Path) -> None:
    secret = "Pa55-0123456789"
    leaks = Leaks({"it": secret})
    hidden = {
        "plain": f"password={secret}".encode(),
        "pickle": pickle.dumps({"sasl.password": secret}),
        "base64": base64.b64encode(f"alice:{secret} and more".encode()),
        "another base64": base64.b64encode(f"lice:{secret} and more".encode()),
        "one more base64": base64.b64encode(f"ice:{secret} and more".encode()),
        "hexadecimal": secret.encode().hex().encode(),
    }
    (tmp_path / "below").mkdir()
    for name, content in hidden.items():
        (tmp_path / "below" / name).write_bytes(content)
    found = leaks.in_folder(tmp_path)
    assert len(found) == len(hidden)
    assert not any(secret in leak for leak in found)
    assert Leaks({"another": "Pa55-9876543210"}).in_folder(tmp_path) == []
    assert len(leaks.in_what_is_new(tmp_path)) == len(hidden)
    assert leaks.in_what_is_new(tmp_path) == []
    log = tmp_path / "log"
    log.write_bytes(b"." * 10_000 + secret[:5].encode())
    assert leaks.in_what_is_new(tmp_path) == []
    with log.open("ab") as file:
        file.write(secret[5:].encode())
    assert len(leaks.in_what_is_new(tmp_path)) == 1, "it lies across what was there before"
    log.write_bytes(secret.encode() + b"." * 20_000)
    assert len(leaks.in_what_is_new(tmp_path)) == 1, "it is another file by now"
    # Wait for the program's first line: its command line is empty for a moment after Popen returns.
    program = "print(flush=True); input()"
    with subprocess.Popen(
        [sys.executable, "-c", program, secret], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline()
        assert leaks.in_command_lines()
        assert process.stdin is not None
        process.stdin.write(b"\n")
