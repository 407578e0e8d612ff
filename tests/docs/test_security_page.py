"""The examples of docs/security.md work without changes."""

from __future__ import annotations

import pytest

from pyspark_kafka_group.options.batch_settings import parse_batch
from pyspark_kafka_group.options.settings import parse
from pyspark_kafka_group.writing.options import parse_write_options
from tests.docs.blocks import BLOCKS, SERVERS, Block, options_of

EXAMPLES = [block for block in BLOCKS if block.page == "docs/security.md" and block.is_options]


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
