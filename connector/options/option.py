"""How options are defined, parsed and refused: the one way for a stream, a batch read and a write.

Spark passes keys in lower case.  They are matched without case, and errors name them as users write them.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

from pyspark_kafka_group.cluster.properties.kafka_properties import is_in_table
from pyspark_kafka_group.offsets.errors import OptionError
from pyspark_kafka_group.options.parsers import MalformedError


class Use(Enum):
    """What becomes of an option in one way of reading."""

    YES = "yes"
    IGNORED = "ignored"  # with a warning, as in Spark's own source
    NO = "refused"  # because silence would mislead


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """One option.

    Attributes
    ----------
    name : str
        As users write it.
    kind : str
        Type and unit, for the docs.
    default : str or None
        As text, for the docs and for parsing; None if the option is required or off.
    parse : callable
        Turns the text into the value; raises :class:`~pyspark_kafka_group.options.parsers.MalformedError`.
    doc : str
        What it means.
    required : bool
        Whether the query cannot start without it.
    stream, batch : Use
        What becomes of it in ``readStream``, and in ``read``.
    batch_default, batch_parse
        The same as ``default`` and ``parse`` for ``read``, where they differ.
    """

    name: str
    kind: str
    default: str | None
    parse: Callable[[str], Any]
    doc: str
    required: bool = False
    stream: Use = Use.YES
    batch: Use = Use.YES
    batch_default: str | None = None
    batch_parse: Callable[[str], Any] | None = None

    @property
    def reads(self) -> str:
        """Where it holds, for the docs."""
        if self.stream is self.batch:
            return "both"
        return "stream" if self.stream is Use.YES else "batch"

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
            return (self.batch_parse if batch and self.batch_parse else self.parse)(text)
        except MalformedError as malformed:
            raise OptionError(self.name, str(malformed), malformed.remedy) from None


@dataclass(frozen=True, slots=True)
class ParsedOptions:
    """The options of one ``load()`` or ``save()``.

    Attributes
    ----------
    given : mapping of str to str
        The texts that the user gives, by their names in lower case.
    values : mapping of str to value
        The values of all options of the table, by their names.
    """

    given: Mapping[str, str]
    values: Mapping[str, Any]

    def __getitem__(self, name: str) -> Any:
        return self.values[name]

    def __contains__(self, name: str) -> bool:
        """Tell whether the user has given an option."""
        return name.lower() in self.given

    @property
    def properties(self) -> dict[str, str]:
        """The user's ``kafka.*`` properties, without the prefix."""
        return kafka_properties(self.given)


def kafka_properties(given: Mapping[str, str]) -> dict[str, str]:
    """Return the ``kafka.*`` properties of options, without the prefix."""
    return {key.removeprefix("kafka."): value for key, value in given.items() if key.startswith("kafka.")}


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
        As Spark hands them over.
    table : sequence of Option
        The options that there are.
    of : str
        What has them: ``source`` or ``sink``.
    batch : bool
        Whether they are those of ``spark.read``.
    impossible : mapping, optional
        What cannot be an option, by its name in lower case: name, reason and remedy.

    Raises
    ------
    OptionError
        For the first option that is unknown or malformed, or that does not belong to this way of reading.
    """
    given = {key.lower(): value for key, value in options.items()}
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


def check_required(parsed: ParsedOptions, table: Sequence[Option]) -> None:
    """Refuse options that lack a required one.  Call it after the others were checked.

    Raises
    ------
    OptionError
        Naming the first one that is missing.
    """
    for option in table:
        if option.required and option.name not in parsed:
            raise OptionError(option.name, "it is missing.", f"Add .option({option.name!r}, ...). {option.doc}")


_STREAM_ONLY = ("only a stream has it.", "Remove it, or use spark.readStream.")
_BATCH_ONLY = (
    "it is not supported with streaming: a stream has no end.",
    "Remove it; .trigger(availableNow=True) reads what there is and ends.",
)


def _check_known(key: str, table: Sequence[Option], of: str) -> None:
    names = {option.name.lower(): option.name for option in table}
    if key in names or key.startswith("kafka."):
        return
    if is_in_table(key):
        hint = f"Write kafka.{key} for a Kafka property."
    else:
        near = difflib.get_close_matches(key, names, n=1)
        hint = f"Did you mean {names[near[0]]!r}?" if near else "Kafka properties are written kafka.<name>."
    raise OptionError(key, f"it is not an option of this {of}.", hint)
