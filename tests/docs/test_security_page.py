"""The examples of the pages about security work without changes."""

from __future__ import annotations

import pytest

from pyspark_kafka_group.cluster.properties.permissions import TABLE, VARIABLE, Kind
from pyspark_kafka_group.options.batch_settings import parse_batch
from pyspark_kafka_group.options.settings import parse
from pyspark_kafka_group.writing.options import parse_write_options
from tests.docs.blocks import BLOCKS, ROOT, SERVERS, Block, options_of

PAGES = ("docs/security.md", "docs/tokens.md")
EXAMPLES = [block for block in BLOCKS if block.page in PAGES and block.is_options]


def test_there_are_examples_of_each_way() -> None:
    text = "".join(example.text for example in EXAMPLES)
    passwords = ("ca.location", "certificate.location", "keystore", "SCRAM", "jaas", "OAUTHBEARER", "kerberos")
    tokens = ("AWS_MSK_IAM", "OAuthBearerLoginCallbackHandler", "GcpLoginCallbackHandler", "serviceCredential")
    for word in (*passwords, *tokens):
        assert word in text


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda block: block.name)
def test_an_example_is_accepted_by_source_and_sink(example: Block) -> None:
    options = options_of(example)
    options["kafka.bootstrap.servers"] = SERVERS
    parse_write_options(options)
    options["subscribe"] = "orders"
    parse_batch(options)
    parse({**options, "kafka.group.id": "etl"})


def test_the_page_says_what_each_option_may_do() -> None:
    """Each property of the table is allowed, needs an entry, or is refused: the page names it, or its family."""
    page = (ROOT / "docs" / "permissions.md").read_text(encoding="utf-8")
    section, _, _ = page.partition("\n## ")
    for key in TABLE:
        family = (
            "ssl.*.location" if key.startswith("ssl.") and key.endswith(".location") else f"{key.rpartition('.')[0]}.*"
        )
        names = f"kafka.{key}", f"kafka.{family}", key.removeprefix("sasl.oauthbearer")
        assert any(f"`{name}`" in section for name in names), key
    assert VARIABLE in section
    for kind in (Kind.FILE, Kind.VARIABLE, Kind.URL, Kind.FUNCTION, Kind.COMMAND):
        assert f"| `{kind.value}:" in section
