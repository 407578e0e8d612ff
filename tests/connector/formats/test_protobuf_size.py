"""What the parts of a record of Protobuf cost, before Google's library makes objects of them."""

from __future__ import annotations

import pytest

from pyspark_kafka_group.formats import protobuf_size
from pyspark_kafka_group.formats.protobuf_size import MessageCost, check_size

SIZE, VALUE, INNER, PACKED = 100, 128, 200, 64
COST = MessageCost(SIZE, {2: MessageCost(INNER, packed={1: 0})}, packed={3: 0, 4: 8})
NUMBER, GROUP, END = b"\x08\x01", b"\x7b", b"\x7c"


class Spent:
    """Counts instead of a budget."""

    total = 0

    def begin(self, size: int) -> None:
        Spent.total = 0

    def spend_bytes(self, size: int) -> None:
        Spent.total += size


@pytest.mark.parametrize(
    ("record", "cost"),
    [
        (b"", 0),
        (NUMBER, VALUE),
        (NUMBER * 3, 3 * VALUE),
        (b"\x09" + bytes(8) + NUMBER, 2 * VALUE),
        (b"\x0d" + bytes(4) + NUMBER, 2 * VALUE),
        (b"\x7a\x03abc" + NUMBER, 2 * VALUE),  # a text that the schema does not have
        (b"\x12\x00", VALUE + INNER),
        (b"\x12\x02" + NUMBER + NUMBER, 3 * VALUE + INNER),  # the second number is behind the message
        (b"\x12\x05\x0a\x03\x01\x02\x03", 2 * VALUE + INNER + 3 * PACKED),
        (b"\x1a\x04\x01\x80\x01\x02", VALUE + 3 * PACKED),  # three numbers, one of them of two bytes
        (b"\x22\x10" + bytes(16), VALUE + 2 * PACKED),
        (GROUP + NUMBER + END, 3 * VALUE + VALUE),
        (b"\x13" + NUMBER + b"\x14" + NUMBER, 4 * VALUE + INNER),  # a group that the schema has as a message
        (b"\x13\x14\x12\x00", 3 * VALUE + 2 * INNER),  # behind the group, fields are those of the message again
        (b"\x12\x05\x08", VALUE),  # cut off
        (b"\x08", VALUE),
        (b"\x09\x00", VALUE),
        (b"\x80", 0),  # regression: the walk began again at the beginning, until the budget was spent
        (GROUP * 500, 101 * (VALUE + VALUE)),  # deeper than the library goes
        (GROUP * 100 + END * 100 + NUMBER, 301 * VALUE),  # regression: the walk ended one group too early
        (NUMBER + b"\x0f" + NUMBER, 2 * VALUE),  # no such kind of value
    ],
)
def test_each_part_has_its_price(monkeypatch: pytest.MonkeyPatch, record: bytes, cost: int) -> None:
    monkeypatch.setattr(protobuf_size, "Budget", Spent)
    check_size(b"??" + record, 2, COST)
    assert Spent.total == SIZE + cost
