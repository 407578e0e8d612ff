"""A Kerberos KDC for tests: MIT Kerberos, from Debian's packages krb5-kdc and krb5-admin-server."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import time
from pathlib import Path
from typing import Self

from pyspark_kafka_group.testing import LocalKafka
from pyspark_kafka_group.testing.ports import free_ports

REALM = "EXAMPLE.TEST"
BROKER = "kafka/127.0.0.1"
_PROGRAMS = {
    name: shutil.which(name, path=f"{os.environ['PATH']}:/usr/sbin")
    for name in ("kdb5_util", "kadmin.local", "krb5kdc")
}
_PATIENCE_S = 20


def missing() -> str:
    """Return the programs and packages for a KDC and its clients that this machine lacks; empty if it has all."""
    lacking = [name for name, path in _PROGRAMS.items() if path is None]
    try:
        import gssapi  # noqa: F401
    except ImportError:
        lacking.append("the package gssapi")
    return ", ".join(lacking)


class Kdc:
    """A KDC that listens on the loopback interface inside a ``with`` block.

    Parameters
    ----------
    folder : Path
        The folder for its database, settings and key tabs.
    ticket_life_s : int
        The lifetime of tickets, in seconds.
    """

    def __init__(self, folder: Path, ticket_life_s: int = 36000) -> None:
        self._folder = folder
        (port,) = free_ports(1)
        self._port = port
        life = f"{ticket_life_s}s"
        (folder / "krb5.conf").write_text(
            f"[libdefaults]\ndefault_realm = {REALM}\ndns_lookup_kdc = false\ndns_lookup_realm = false\n"
            f"dns_canonicalize_hostname = false\nrdns = false\nudp_preference_limit = 1\nticket_lifetime = {life}\n"
            f"[realms]\n{REALM} = {{\n kdc = 127.0.0.1:{port}\n}}\n"
        )
        (folder / "kdc.conf").write_text(
            f"[kdcdefaults]\nkdc_listen = 127.0.0.1:{port}\nkdc_tcp_listen = 127.0.0.1:{port}\n"
            f"[realms]\n{REALM} = {{\n database_name = {folder}/principals\n key_stash_file = {folder}/stash\n"
            f" max_life = {life}\n}}\n[logging]\nkdc = FILE:{folder}/kdc.log\n"
        )
        self.environment = {"KRB5_CONFIG": str(folder / "krb5.conf"), "KRB5CCNAME": f"FILE:{folder}/tickets"}
        self._server: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        self._run("kdb5_util", "create", "-s", "-r", REALM, "-P", "of the tests")
        self._server = subprocess.Popen([str(_PROGRAMS["krb5kdc"]), "-n"], env=self._env)
        deadline = time.monotonic() + _PATIENCE_S
        while True:
            try:
                socket.create_connection(("127.0.0.1", self._port), 1).close()
            except OSError:
                if time.monotonic() > deadline or self._server.poll() is not None:
                    raise
                time.sleep(0.05)
            else:
                return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        """Stop the server.  Clients can still use the tickets that they have."""
        if self._server is not None:
            self._server.terminate()
            self._server.wait()

    def keytab(self, principal: str) -> Path:
        """Add a principal with a random key, and return a file with the key."""
        file = self._folder / f"{principal.replace('/', '-')}.keytab"
        self._run("kadmin.local", "addprinc", "-randkey", principal)
        self._run("kadmin.local", "ktadd", "-k", str(file), principal)
        return file

    @property
    def java_options(self) -> str:
        """The options that a broker's JVM needs."""
        return f"-Djava.security.krb5.conf={self._folder}/krb5.conf"

    def broker(self, **properties: str) -> LocalKafka:
        """Return a broker whose secured listener accepts tickets.  Its environment must contain ``java_options``."""
        listener = "listener.name.secured"
        jaas = (
            "com.sun.security.auth.module.Krb5LoginModule required useKeyTab=true storeKey=true "
            f'keyTab="{self.keytab(BROKER)}" principal="{BROKER}@{REALM}";'
        )
        return LocalKafka(
            sasl_users={"unused": "unused"},
            properties={
                f"{listener}.sasl.enabled.mechanisms": "GSSAPI",
                f"{listener}.gssapi.sasl.jaas.config": jaas,
                f"{listener}.sasl.kerberos.service.name": "kafka",
                **properties,
            },
        )

    @property
    def _env(self) -> dict[str, str]:
        return {**os.environ, **self.environment, "KRB5_KDC_PROFILE": str(self._folder / "kdc.conf")}

    def _run(self, program: str, *arguments: str) -> None:
        done = subprocess.run([str(_PROGRAMS[program]), *arguments], env=self._env, capture_output=True, check=False)
        if done.returncode:
            raise RuntimeError(f"{program} {arguments}: {done.stderr.decode()}")
