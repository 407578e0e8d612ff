"""The options of ``df.write`` and ``df.writeStream``: their table, and how it is parsed.

``docs/sink-options.md`` is generated from the table (a test compares).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from pyspark_kafka_group.offsets.errors import OptionError
from pyspark_kafka_group.options import parsers
from pyspark_kafka_group.options.option import Option, check_required, parse_options
from pyspark_kafka_group.options.parsers import Form, MalformedError
from pyspark_kafka_group.options.table import SERVERS
from pyspark_kafka_group.writing.producer_properties import (
    check_producer_properties,
    transaction_timeout_ms,
)


class Delivery(Enum):
    """The promise about each row."""

    AT_LEAST_ONCE = "at-least-once"
    EXACTLY_ONCE = "exactly-once"


@dataclass(frozen=True, slots=True, kw_only=True)
class WriterSettings:
    """All options of a write, parsed and checked.

    Attributes
    ----------
    properties : mapping of str to str
        The user's ``kafka.*`` properties, without the prefix.  Hidden from ``repr``, because they contain secrets.
    topic : str or None
        The option ``topic``; None if the column ``topic`` decides.
    delivery : Delivery
        The option ``delivery``.
    transactional_id_prefix : str
        The option ``transactionalIdPrefix``.
    accept_batch : int, FEWER_ROWS or None
        The option ``acceptBatch``.
    """

    properties: Mapping[str, str] = field(repr=False)
    topic: str | None
    delivery: Delivery
    transactional_id_prefix: str
    accept_batch: int | str | None

    @property
    def exactly_once(self) -> bool:
        """Whether rows are written in transactions."""
        return self.delivery is Delivery.EXACTLY_ONCE

    @property
    def transaction_timeout_s(self) -> float:
        """How long a transaction may stay open, in seconds."""
        return transaction_timeout_ms(self.properties) / 1000


FEWER_ROWS = "fewerRows"
"""A value of ``acceptBatch`` that is not a number."""


def _accepted(text: str) -> int | str:
    if text.strip().lower() == FEWER_ROWS.lower():
        return FEWER_ROWS
    try:
        return parsers.whole_number(text)
    except MalformedError:
        raise MalformedError(
            f"{text!r} is neither the number of a batch nor {FEWER_ROWS}.", "Write the number from the error message."
        ) from None


WRITE_OPTIONS: tuple[Option, ...] = (
    SERVERS,
    Option(
        name="topic",
        doc="The topic of all rows; the sink then ignores the column topic. Without this option, each row needs a "
        "topic in that column.",
    ),
    Option(
        name="delivery",
        form=parsers.choice(Delivery, "a kind of delivery", "at-least-once or exactly-once"),
        default=Delivery.AT_LEAST_ONCE.value,
        doc="at-least-once: if Spark repeats a task or a batch, its rows are written again, as with Spark's own sink. "
        "exactly-once: each task writes in a transaction, and the sink commits all transactions of a batch together, "
        "once. Consumers must then read with isolation.level=read_committed. See [sink.md](sink.md).",
    ),
    Option(
        name="transactionalIdPrefix",
        default="kafka-group-sink-",
        doc="With `delivery=exactly-once`: the beginning of the transactional ids, and of the group in which the sink "
        "stores the last written batch. Do not change it for an existing checkpoint: the sink would not know which "
        "batches are written.",
    ),
    Option(
        name="acceptBatch",
        form=Form("whole number, or fewerRows", _accepted),
        doc="With `delivery=exactly-once`: the number of a batch to accept as it is in Kafka, although its repetition "
        "has other rows. The error message contains this number. Other batches are not affected. fewerRows accepts "
        "each batch whose repetition has fewer rows. Use it for queries that share a group of this project's source.",
    ),
    Option(
        name="includeHeaders",
        form=parsers.BOOLEAN,
        default="false",
        doc="No effect, as in Spark's own sink: a column headers is always written. It is allowed so that source and "
        "sink can share options.",
    ),
)

_ONLY_EXACTLY_ONCE = ("transactionalIdPrefix", "acceptBatch")

# Spark passes these options of its own to the sink.
_OF_SPARK = frozenset(
    {"checkpointlocation", "queryname", "asyncprogresstrackingenabled", "asyncprogresstrackingcheckpointintervalms"}
)


def parse_write_options(options: Mapping[str, str]) -> WriterSettings:
    """Parse and check the options of a write.

    Parameters
    ----------
    options : mapping of str to str
        The options from Spark.  The case of keys does not matter.

    Raises
    ------
    OptionError
        If an option is missing, unknown, malformed or in conflict.  The error names the first one and the remedy.
    """
    parsed = parse_options(
        {key: text for key, text in options.items() if key.lower() not in _OF_SPARK}, WRITE_OPTIONS, of="sink"
    )
    check_required(parsed, WRITE_OPTIONS)
    delivery: Delivery = parsed["delivery"]
    for name in _ONLY_EXACTLY_ONCE:
        if name in parsed and delivery is not Delivery.EXACTLY_ONCE:
            raise OptionError(
                name, "it changes nothing without delivery=exactly-once.", "Set delivery=exactly-once, or remove it."
            )
    properties = {**parsed.properties, "bootstrap.servers": parsed["kafka.bootstrap.servers"]}
    check_producer_properties(properties, exactly_once=delivery is Delivery.EXACTLY_ONCE)
    return WriterSettings(
        properties=properties,
        topic=parsed["topic"],
        delivery=delivery,
        transactional_id_prefix=parsed["transactionalIdPrefix"],
        accept_batch=parsed["acceptBatch"],
    )
