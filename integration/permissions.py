"""What the owner of the tests' processes allows.  See docs/permissions.md."""

from pyspark_kafka_group.testing.ports import free_ports

(TOKEN_PORT,) = free_ports(1)
"""The port of the token servers of this process, one at a time: Spark's processes know it before a server starts."""

PERMISSIONS = [
    f"url:http://127.0.0.1:{TOKEN_PORT}/token",
    *(f"function:integration.token_providers:{name}" for name in ("Vault.token", "amazon", "azure")),
]
