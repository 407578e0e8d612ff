"""The examples of docs/security.md can be used as they stand."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from pyspark_kafka_group.options.batch_settings import parse_batch
from pyspark_kafka_group.options.settings import parse
from pyspark_kafka_group.writing.options import parse_write_options

PAGE = (Path(__file__).parents[2] / "docs" / "security.md").read_text(encoding="utf-8")
EXAMPLES = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)


class Options(dict[str, str]):
    """What the examples call."""

    def option(self, name: str, value: str) -> Options:
        self[name] = value
        return self


def test_there_are_examples_of_each_way() -> None:
    text = "".join(EXAMPLES)
    for word in ("ca.location", "certificate.location", "keystore", "SCRAM", "jaas", "OAUTHBEARER", "kerberos"):
        assert word in text


@pytest.mark.parametrize("example", EXAMPLES)
def test_an_example_is_accepted_by_source_and_sink(example: str) -> None:
    options: Options = eval(f"(Options()\n{example})", {"Options": Options})
    options["kafka.bootstrap.servers"] = "b:9092"
    parse_write_options(options)
    options["subscribe"] = "orders"
    parse_batch(options)
    parse({**options, "kafka.group.id": "etl"})
