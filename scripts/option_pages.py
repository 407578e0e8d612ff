"""Render docs/options.md and docs/sink-options.md: each option has a heading, so that links and the search find it."""

from __future__ import annotations

import textwrap
from collections.abc import Collection, Iterable, Sequence

from pyspark_kafka_group.cluster.properties.kafka_properties import (
    EVERY_CLIENT,
    PROPERTIES,
    ClientKind,
    KafkaProperty,
    OwnConnections,
)
from pyspark_kafka_group.options.option import Option, Use
from pyspark_kafka_group.options.table import OPTIONS
from pyspark_kafka_group.writing.options import WRITE_OPTIONS
from pyspark_kafka_group.writing.producer_properties import PROPERTIES as PRODUCER_PROPERTIES

_GROUPS = {
    "Cluster and group": "kafka.bootstrap.servers kafka.group.id groupIdPrefix",
    "What to read": "subscribe subscribePattern assign where columns includeHeaders",
    "Where to start": (
        "startingOffsets startingTimestamp startingOffsetsByTimestamp startingOffsetsByTimestampStrategy "
        "onOffsetRewind failOnDataLoss"
    ),
    "Size of a batch": (
        "maxOffsetsPerTrigger minOffsetsPerTrigger maxTriggerDelay minRecordsPerTask minPartitions "
        "maxRecordsPerPartition"
    ),
    "Hand-over and commits": "warmUp drainTimeoutMs checkpointLocation commitMode eventLog",
    "Typed keys and values": (
        "valueFormat valueSchema valueSchemaId valueSubject valueMessage keyFormat keySchema keySchemaId keySubject "
        "keyMessage malformedRecords deadLetterTopic"
    ),
    "Batch reads": "endingOffsets endingTimestamp endingOffsetsByTimestamp startingOffsetsIfNotCommitted show",
}
_INTRODUCTIONS = {
    "Where to start": "Other clients call this the offset reset, `auto.offset.reset`.",
    "Size of a batch": "In use: [small files](small-files.md), [slow work for each record](slow-records.md).",
    "Hand-over and commits": "In a rebalance, these decide how long partitions stand still.",
}
_REGISTRY, _OTHER = "Schema registry", "Timeouts and retries"

_HEAD = """\
# Options

Three are required: `kafka.bootstrap.servers`, `kafka.group.id`, and one of `subscribe`, `subscribePattern` and
`assign`.

- Names are matched without case. An option that is not on this page, and does not begin with `kafka.`, is an error.
- A duration is a number with a unit: `500ms`, `30s`, `15m`, `1h30m`, `2 days`. A number alone is in milliseconds.
- Properties that begin with `kafka.` take only numbers, in the unit of Kafka: `kafka.session.timeout.ms=45000`.
- *Streams* are `spark.readStream`, *batch reads* are `spark.read` ([batch reads](batch.md)). Elsewhere an option is an
  error. If Spark's own source ignores it there, this one ignores it with a warning.

"""

_PROPERTIES = """
## Kafka properties

Everything that begins with `kafka.` goes to
[librdkafka](https://github.com/confluentinc/librdkafka/blob/master/CONFIGURATION.md) without the prefix: security,
timeouts, `client.rack`, and so on. A property that librdkafka does not know is an error. [Security](security.md) says
how to connect, which of Java's settings work, and how to write values as `${file:/path:key}` and `${env:NAME}`.
"""

_REFUSED = """
## Properties that are errors

They would break what the source promises, or the source cannot do what they say. A name with a star covers all names
that begin like that and are neither on this page nor among [Java's settings](java-settings.md).

"""

_CONNECTION = """
## Properties of the source's own connections

The source has its own connections, for reading and for questions to the cluster. These properties say how they connect.
librdkafka's clients get them as well:

"""

_TUNING = """
The source's own connections ignore any other property. For example, these tune how librdkafka waits, retries, buffers
and logs:

"""

_SET = """
## Properties that the source sets

A default gives way to your value. The clients are the member of the group, the readers in the executors, and the
producer that commits in transactions. Under `kafka.group.protocol=consumer`, the member's `retry.backoff.max.ms` is
half of `kafka.heartbeat.interval.ms`, whatever you set.

"""

_MADE = "\n<!-- Rendered by scripts/render_docs.py from the tables in the code. -->\n"


def options_page() -> str:
    """Return docs/options.md."""
    grouped = _grouped()
    overview = [(f"[{title}](#{_anchor(title)})", ", ".join(map(_link, options))) for title, options in grouped.items()]
    text = _HEAD + table(["group", "options"], overview)
    for title, options in grouped.items():
        introduction = f"\n{_INTRODUCTIONS[title]}\n" if title in _INTRODUCTIONS else ""
        text += f"\n## {title}\n{introduction}" + "".join(map(_entry, options))
    text += _PROPERTIES + "".join(
        _section(f"kafka.{row.key}", [f"default {f'`{row.default}`' if row.default else row.default_text}"], row.doc)
        if row.default or row.default_text
        else _section(f"kafka.{row.key}", [], row.doc)
        for row in PROPERTIES
        if row.doc
    )
    refused = [
        (f"`kafka.{row.key}`{_allowed(row.refusal.allowed)}", row.refusal.why, row.refusal.instead)
        for row in PROPERTIES
        if row.refusal
    ]
    by_source = [(f"`kafka.{row.key}`", _set_to(row)) for row in PROPERTIES if row.sent_to or row.forced]
    return (
        f"{text}{_REFUSED}{_by_reason(refused)}{_CONNECTION}{_names_of(OwnConnections.USED)}"
        f"{_TUNING}{_names_of(OwnConnections.IGNORED)}{_SET}{table(['property', 'set to'], by_source)}{_MADE}"
    )


def _grouped() -> dict[str, list[Option]]:
    """Return the options under the headings of the page.  One without a place is under the last heading."""
    places = {name: title for title, names in _GROUPS.items() for name in names.split()}
    found: dict[str, list[Option]] = {title: [] for title in (*_GROUPS, _REGISTRY, _OTHER)}
    for option in OPTIONS:
        place = _REGISTRY if option.name.startswith("schema.registry.") else places.get(option.name, _OTHER)
        found[place].append(option)
    return found


def _link(option: Option) -> str:
    return f"[`{option.name}`](#{_anchor(option.name)})"


def _anchor(title: str) -> str:
    """Return the anchor of a heading, on the site and on hosts of repositories."""
    return "".join(letter for letter in title.lower().replace(" ", "-") if letter.isalnum() or letter in "-_")


def _entry(option: Option) -> str:
    where = "streams" if option.stream is Use.YES else "batch reads"
    if option.stream is option.batch:
        where = "streams and batch reads"
    ignored = "; ignored in batch reads" if option.batch is Use.IGNORED else ""
    return _section(option.name, [option.form.text, _defaults(option), where + ignored], option.doc)


def _section(name: str, facts: Sequence[str], doc: str) -> str:
    line = f"*{' · '.join(facts)}*\n\n" if facts else ""
    return f"\n### `{name}`\n\n{line}{doc}\n"


def _defaults(option: Option) -> str:
    """Return the default of an option, and the default of batch reads if it differs."""
    usual = _default(option.default, required=option.required)
    return usual if option.batch_default is None else f"{usual} (batch reads: `{option.batch_default}`)"


def _default(text: str | None, *, required: bool) -> str:
    if required:
        return "required"
    return "no default" if text is None else f"default `{text}`"


def _by_reason(refused: Iterable[tuple[str, str, str]]) -> str:
    """Return a table of what is refused.  Names with the same reason share a row."""
    rows: dict[tuple[str, str], list[str]] = {}
    for name, why, instead in refused:
        rows.setdefault((why, instead), []).append(name)
    lines = [(", ".join(names), f"{why[:1].upper()}{why[1:]} {instead}") for (why, instead), names in rows.items()]
    return table(["property", "why, and what to do"], lines)


def _names_of(what: OwnConnections) -> str:
    names = sorted(row.key for row in PROPERTIES if row.own_connections is what and row.applies_to == EVERY_CLIENT)
    text = ", ".join(f"`{name}`" for name in names) + "."
    return textwrap.fill(text, 118, break_on_hyphens=False, break_long_words=False) + "\n"


def _set_to(row: KafkaProperty) -> str:
    values = [] if not row.sent_to else [f"`{row.default}` by default: {_names(row.sent_to)}"]
    for value in dict.fromkeys(row.forced.values()):
        values.append(f"`{value}`: {_names({client for client in row.forced if row.forced[client] == value})}")
    return "; ".join(values) + (" (classic protocol)" if row.classic_only else "")


def _names(clients: Collection[ClientKind]) -> str:
    return "all" if len(clients) == len(ClientKind) else ", ".join(c.value for c in ClientKind if c in clients)


def _allowed(values: tuple[str, ...]) -> str:
    return "".join(f" (except `{value}`)" for value in values)


_SINK = """\
# Options of the sink

[Writing to Kafka](sink.md) explains them. Names are matched without case. An option that is not on this page, and does
not begin with `kafka.`, is an error.
"""

_PRODUCER = """
## Kafka properties

The names are those of [librdkafka](https://github.com/confluentinc/librdkafka/blob/master/CONFIGURATION.md). A property
that librdkafka does not know is an error. Java's security settings, and values by reference: [security](security.md).

The sink has two producers. The direct one writes over connections of this project. It supports all properties for
connections and logins, those of the next section, and these: `kafka.batch.size`, `kafka.compression.type`,
`kafka.compression.level`, `kafka.request.timeout.ms`, `kafka.socket.timeout.ms`, `kafka.retry.backoff.ms`,
`kafka.retry.backoff.max.ms`, `kafka.topic.metadata.refresh.interval.ms`, `kafka.metadata.max.age.ms`,
`kafka.allow.auto.create.topics` (librdkafka's producer has no such property). It ignores
`kafka.max.in.flight.requests.per.connection`, `kafka.queue.buffering.max.messages`, and what tunes librdkafka's
connections, such as `kafka.socket.keepalive.enable`.

With any other property, another partitioner or `kafka.acks=0`, librdkafka's producer writes, which is slower. The log
of the executor then has a WARNING.
"""

_REFUSED_BY_SINK = """
## Properties that are errors

"""


def sink_options_page() -> str:
    """Return docs/sink-options.md."""
    text = _SINK
    for option in WRITE_OPTIONS:
        facts = [option.form.text, _default(option.default, required=option.required)]
        text += _section(option.name, facts, option.doc).replace("### ", "## ", 1)
    text += _PRODUCER
    for row in PRODUCER_PROPERTIES:
        if row.usual is not None:
            called = [f"librdkafka's name: `{row.called}`"] if row.called else []
            text += _section(f"kafka.{row.key}", [f"default `{row.usual}`", *called], row.doc)
    refused = [
        (f"`kafka.{row.key}`{_allowed(row.refusal.allowed)}", row.refusal.why, row.refusal.instead)
        for row in PRODUCER_PROPERTIES
        if row.refusal
    ]
    return text + _REFUSED_BY_SINK + _by_reason(refused) + _MADE


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table in Markdown."""
    lines = "".join(f"| {' | '.join(cells)} |\n" for cells in rows)
    return f"| {' | '.join(head)} |\n|{'---|' * len(head)}\n{lines}"
