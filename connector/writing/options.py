"""The options of ``df.write`` and ``df.writeStream``: one table, and what becomes of it.

``docs/sink-options.md`` is rendered from it (a test compares).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from pyspark_kafka_group.options import parsers
from pyspark_kafka_group.options.option import Option, check_required, parse_options
from pyspark_kafka_group.options.parsers import MalformedError
from pyspark_kafka_group.writing.producer_properties import check_producer_properties, transaction_timeout_ms


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
        The user's ``kafka.*`` properties, without the prefix.  Hidden from ``repr``: there are secrets in it.
    topic : str or None
        ``topic``; None if rows say where they go.
    delivery : Delivery
        ``delivery``.
    transactional_id_prefix : str
        ``transactionalIdPrefix``.
    accept_batch : int, FEWER_ROWS or None
        ``acceptBatch``.
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
        """How long a transaction may stay open."""
        return transaction_timeout_ms(self.properties) / 1000


FEWER_ROWS = "fewerRows"
"""A value of ``acceptBatch``, in place of a number."""


def _accepted(text: str) -> int | str:
    if text.strip().lower() == FEWER_ROWS.lower():
        return FEWER_ROWS
    try:
        return parsers.whole_number(text)
    except MalformedError:
        raise MalformedError(
            f"{text!r} is neither the number of a batch nor {FEWER_ROWS}.", "Write the number that the error names."
        ) from None


WRITE_OPTIONS: tuple[Option, ...] = (
    Option(
        name="kafka.bootstrap.servers",
        kind="text: host:port,...",
        default=None,
        parse=parsers.not_blank,
        required=True,
        doc="Where the cluster is.",
    ),
    Option(
        name="topic",
        kind="text",
        default=None,
        parse=parsers.not_blank,
        doc="Where all rows go, whatever the column topic says. Without it each row needs a topic.",
    ),
    Option(
        name="delivery",
        kind="at-least-once or exactly-once",
        default=Delivery.AT_LEAST_ONCE.value,
        parse=parsers.choice(Delivery, "a kind of delivery", "at-least-once or exactly-once"),
        doc="at-least-once: a task or batch that Spark runs again writes its rows again, as with Spark's own sink. "
        "exactly-once: each task writes in a transaction, and all of a batch's are committed together, once; for "
        "consumers that read with isolation.level=read_committed. See [sink.md](sink.md).",
    ),
    Option(
        name="transactionalIdPrefix",
        kind="text",
        default="kafka-group-sink-",
        parse=parsers.not_blank,
        doc="With `delivery=exactly-once`: what the transactional ids begin with, and the group that keeps which batch "
        "was written. Do not change it for a checkpoint that is in use: the sink would not find what was written.",
    ),
    Option(
        name="acceptBatch",
        kind="whole number, or fewerRows",
        default=None,
        parse=_accepted,
        doc="With `delivery=exactly-once`: the number of a batch to take as written, as it is in Kafka, though it has "
        "other rows now. An error names the number. It does nothing to other batches. fewerRows takes each batch as "
        "written that has fewer rows now: for queries that share a group of this project's source.",
    ),
    Option(
        name="includeHeaders",
        kind="true or false",
        default="false",
        parse=parsers.boolean,
        doc="Nothing: where there is a column headers, it is written. As with Spark's own sink, so that source and "
        "sink may share options.",
    ),
)

# What Spark passes on of its own options of a write.
_OF_SPARK = frozenset(
    {"checkpointlocation", "queryname", "asyncprogresstrackingenabled", "asyncprogresstrackingcheckpointintervalms"}
)


def parse_write_options(options: Mapping[str, str]) -> WriterSettings:
    """Parse and check the options of a write.

    Parameters
    ----------
    options : mapping of str to str
        As Spark hands them over; case does not matter for keys.

    Raises
    ------
    OptionError
        For the first option that is missing, unknown, malformed or in conflict; it names the option and the remedy.
    """
    parsed = parse_options(
        {key: text for key, text in options.items() if key.lower() not in _OF_SPARK}, WRITE_OPTIONS, of="sink"
    )
    check_required(parsed, WRITE_OPTIONS)
    delivery: Delivery = parsed["delivery"]
    properties = {**parsed.properties, "bootstrap.servers": parsed["kafka.bootstrap.servers"]}
    check_producer_properties(properties, exactly_once=delivery is Delivery.EXACTLY_ONCE)
    return WriterSettings(
        properties=properties,
        topic=parsed["topic"],
        delivery=delivery,
        transactional_id_prefix=parsed["transactionalIdPrefix"],
        accept_batch=parsed["acceptBatch"],
    )
