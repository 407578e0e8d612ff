"""Defines and parses options, for streams, batch reads and writes.

The case of keys does not matter, because Spark passes them in lower case.  Errors contain the documented names.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, NamedTuple

from pyspark_kafka_group.cluster.properties.kafka_properties import is_in_table
from pyspark_kafka_group.offsets.errors import OptionError
from pyspark_kafka_group.offsets.types import TopicPartition, is_name
from pyspark_kafka_group.options.parsers import TEXT, Form, MalformedError

_CREDENTIAL = {
    "databricks.servicecredential": ("kafka.sasl.oauthbearer.provider", "databricks:"),
    "databricks.servicecredential.scope": ("kafka.sasl.oauthbearer.config", "scope="),
}
"""Databricks' own options, the properties that mean the same, and what their values begin with."""


class Use(Enum):
    """Whether an option is allowed in a stream or in a batch read."""

    YES = "yes"
    IGNORED = "ignored"  # with a warning, as in Spark's own source
    NO = "refused"  # because ignoring it would mislead users


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """One option.

    Attributes
    ----------
    name : str
        The documented name.
    doc : str
        The meaning, for the docs.
    form : Form
        What the text looks like.
    default : str or None
        The default as text.  None if the option is required or off.
    required : bool
        Whether the query cannot start without the option.
    stream, batch : Use
        Whether ``readStream`` and ``read`` allow it.
    batch_default, batch_parse
        ``default`` and the parser for ``read``, if they differ.
    """

    name: str
    doc: str
    form: Form = TEXT
    default: str | None = None
    required: bool = False
    stream: Use = Use.YES
    batch: Use = Use.YES
    batch_default: str | None = None
    batch_parse: Callable[[str], Any] | None = None

    def value(self, text: str | None, *, batch: bool = False) -> Any:
        """Return the value of a text, or of the default if it is None.

        Raises
        ------
        OptionError
            If the text is malformed.
        """
        if text is None:
            text = (self.batch_default if batch else None) or self.default
        if text is None:
            return None
        try:
            return (self.batch_parse if batch and self.batch_parse else self.form.parse)(text)
        except MalformedError as malformed:
            raise OptionError(self.name, str(malformed), malformed.remedy) from None


class Strategy(NamedTuple):
    """The topics or partitions to read.

    Attributes
    ----------
    topics : tuple of str
        The topics of ``subscribe`` or ``assign``; empty with a pattern.
    pattern : str or None
        The option ``subscribePattern``.
    partitions : tuple of TopicPartition
        The partitions of ``assign``; otherwise empty.
    """

    topics: tuple[str, ...]
    pattern: str | None
    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True)
class ParsedOptions:
    """The options of one ``load()`` or ``save()``.

    Attributes
    ----------
    given : mapping of str to str
        The user's texts, by names in lower case.
    values : mapping of str to value
        The values of all options of the table, by documented names.
    """

    given: Mapping[str, str] = field(repr=False)  # may contain secrets, also the values
    values: Mapping[str, Any] = field(repr=False)

    def __getitem__(self, name: str) -> Any:
        return self.values[name]

    def __contains__(self, name: str) -> bool:
        """Return whether the user has set an option."""
        return name.lower() in self.given

    @property
    def properties(self) -> dict[str, str]:
        """The user's ``kafka.*`` properties, without the prefix."""
        return {key.removeprefix("kafka."): value for key, value in self.given.items() if key.startswith("kafka.")}

    @property
    def read(self) -> Strategy:
        """The topics or partitions to read.  Raises :class:`OptionError` unless exactly one option names them."""
        given = [name for name in ("subscribe", "subscribePattern", "assign") if self[name] is not None]
        if not given:
            raise OptionError(
                "subscribe", "it is missing.", "Add .option('subscribe', ...), subscribePattern or assign."
            )
        if len(given) > 1:
            raise OptionError(given[1], f"it is given together with {given[0]}.", "Remove one of the two.")
        partitions: tuple[TopicPartition, ...] = self["assign"] or ()
        topics = self["subscribe"] or tuple(sorted({tp.topic for tp in partitions}))
        return Strategy(topics, self["subscribePattern"], partitions)


def parse_options(
    options: Mapping[str, str],
    table: Sequence[Option],
    *,
    of: str = "source",
    batch: bool = False,
    impossible: Mapping[str, tuple[str, str, str]] | None = None,
) -> ParsedOptions:
    """Parse options by a table.

    Parameters
    ----------
    options : mapping of str to str
        The options from Spark.
    table : sequence of Option
        The known options.
    of : str
        Their owner, ``source`` or ``sink``, for errors.
    batch : bool
        Whether these are options of ``spark.read``.
    impossible : mapping, optional
        Name, reason and remedy of options that this source cannot have, by the name in lower case.

    Raises
    ------
    OptionError
        If an option is unknown or malformed, or not allowed in this kind of read.  The error names the first one.
    """
    given = by_name(options)
    for key in given:
        if impossible is not None and key in impossible:
            raise OptionError(*impossible[key])
        _check_known(key, table, of)
    parsed = ParsedOptions(
        given, {option.name: option.value(given.get(option.name.lower()), batch=batch) for option in table}
    )
    for option in table:
        if (option.batch if batch else option.stream) is Use.NO and option.name in parsed:
            raise OptionError(option.name, *(_STREAM_ONLY if batch else _BATCH_ONLY))
    return parsed


def by_name(options: Mapping[str, str]) -> dict[str, str]:
    """Return options by names in lower case, with this source's names for Databricks' own options.

    Raises
    ------
    OptionError
        If an option has two different values, or is no text.
    """
    given: dict[str, str] = {}
    for key, value in options.items():
        if not is_name(key + value):
            raise OptionError(key, "it contains half of a surrogate pair, which is no character.", "Correct its text.")
        if given.setdefault(key.lower(), value) != value:
            raise OptionError(key, "it is given twice, with different values.", "Remove one.")
    return _with_databricks(given)


def _with_databricks(given: Mapping[str, str]) -> dict[str, str]:
    """Return options with the token provider that Databricks' own option for a service credential means."""
    for name, (meant, _) in _CREDENTIAL.items():
        if name in given and meant in given:
            raise OptionError(name, f"it is given together with {meant}.", "Remove one.")
    meanings = {name: _CREDENTIAL.get(name, (name, "")) for name in given}
    return {meanings[name][0]: meanings[name][1] + value for name, value in given.items()}


def check_required(parsed: ParsedOptions, table: Sequence[Option]) -> None:
    """Refuse options without a required one.  Call this after the other checks.

    Raises
    ------
    OptionError
        If a required option is missing.  The error names the first one.
    """
    for option in table:
        if option.required and option.name not in parsed:
            raise OptionError(option.name, "it is missing.", f"Add .option({option.name!r}, ...). {option.doc}")


_STREAM_ONLY = ("only a stream has it.", "Remove it, or use spark.readStream.")
_BATCH_ONLY = (
    "it is not supported with streaming: a stream has no end.",
    "Remove it. To read up to the current log ends and then stop, use .trigger(availableNow=True).",
)


def _check_known(key: str, table: Sequence[Option], of: str) -> None:
    names = {option.name.lower(): option.name for option in table}
    if key in names or key.startswith("kafka."):
        return
    if is_in_table(key):
        hint = f"Write kafka.{key} for a Kafka property."
    else:
        import difflib  # only here: each process of Spark imports this module

        near = difflib.get_close_matches(key, names, n=1)
        hint = f"Did you mean {names[near[0]]!r}?" if near else "Kafka properties are written kafka.<name>."
    raise OptionError(key, f"it is not an option of this {of}.", hint)
