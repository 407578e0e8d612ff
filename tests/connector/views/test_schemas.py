"""Views have the columns that the command line prints."""

from __future__ import annotations

import pytest

from pyspark_kafka_group.offsets.errors import OptionError
from pyspark_kafka_group.views.reader import KafkaGroupViewReader
from pyspark_kafka_group.views.schemas import VIEWS, names, schema_of

GIVEN = {"kafka.bootstrap.servers": "x:1", "kafka.group.id": "g"}


@pytest.mark.parametrize("view", VIEWS)
def test_every_view_has_a_schema(view: str) -> None:
    found = ",".join(f"{field.name}{field.dataType.simpleString()}" for field in schema_of(view))
    assert found == VIEWS[view].lower().replace(" ", "")


def test_another_view() -> None:
    with pytest.raises(OptionError, match=r"'latency' is not a view\. Write lag, members, history, rewinds"):
        names("latency")


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({**GIVEN, "show": "lag", "subscribe": "t"}, "'subscribe': it changes nothing in a view"),
        ({"kafka.bootstrap.servers": "x:1", "show": "lag"}, "'kafka.group.id': it is missing"),
        ({"kafka.group.id": "g", "show": "lag"}, "'kafka.bootstrap.servers': it is missing"),
    ],
)
def test_what_is_refused(options: dict[str, str], expected: str) -> None:
    with pytest.raises(OptionError, match=expected):
        KafkaGroupViewReader(options)
