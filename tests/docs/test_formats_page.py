"""The examples of docs/formats.md and docs/registry.md work without changes."""

from __future__ import annotations

import re

import pytest

from pyspark_kafka_group.options.batch_settings import parse_batch
from pyspark_kafka_group.options.format_settings import Format
from pyspark_kafka_group.options.settings import parse
from tests.docs.blocks import BLOCKS, SERVERS, Block, options_of

PAGES = ("docs/formats.md", "docs/registry.md")
EXAMPLES = [block for block in BLOCKS if block.page in PAGES and block.language == "python"]


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda block: block.name)
def test_an_example_is_accepted_by_stream_and_batch_read(example: Block) -> None:
    options = options_of(example)
    options.update({"kafka.bootstrap.servers": SERVERS, "subscribe": "orders"})
    assert parse_batch(options).formats == parse({**options, "kafka.group.id": "etl"}).formats


def test_there_is_an_example_of_each_format_with_a_schema() -> None:
    named = set(re.findall(r'"valueFormat", "(\w+)"', "".join(example.text for example in EXAMPLES)))
    assert named == {kind.value for kind in (Format.JSON, Format.AVRO, Format.PROTOBUF)}
