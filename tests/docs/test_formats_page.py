"""The examples of docs/formats.md can be used as they stand."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from pyspark_kafka_group.options.batch_settings import parse_batch
from pyspark_kafka_group.options.format_settings import Format
from pyspark_kafka_group.options.settings import parse

PAGE = (Path(__file__).parents[2] / "docs" / "formats.md").read_text(encoding="utf-8")
EXAMPLES = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)


class Options(dict[str, str]):
    """What the examples call."""

    def option(self, name: str, value: str) -> Options:
        self[name] = value
        return self


@pytest.mark.parametrize("example", EXAMPLES)
def test_an_example_is_accepted_by_stream_and_batch_read(example: str) -> None:
    options: Options = eval(f"(Options()\n{example})", {"Options": Options})
    options.update({"kafka.bootstrap.servers": "b:9092", "subscribe": "orders"})
    assert parse_batch(options).formats == parse({**options, "kafka.group.id": "etl"}).formats


def test_there_is_an_example_of_each_format_with_a_schema() -> None:
    named = set(re.findall(r'"valueFormat", "(\w+)"', "".join(EXAMPLES)))
    assert named == {kind.value for kind in (Format.JSON, Format.AVRO, Format.PROTOBUF)}
