"""From the options of a query to their values, whichever way it reads: what streams and batch reads share."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping
from typing import Any

from pyspark_kafka_group.offsets.errors import OptionError
from pyspark_kafka_group.offsets.kafka_properties import is_in_table
from pyspark_kafka_group.options.option import Option
from pyspark_kafka_group.options.parsers import MalformedError
from pyspark_kafka_group.options.table import OPTIONS


def given_options(options: Mapping[str, str]) -> dict[str, str]:
    """Return the options by their names in lower case; raise :class:`OptionError` if there is no such option."""
    given = {key.lower(): value for key, value in options.items()}
    if added := sorted(_OF_A_TABLE & given.keys()):
        raise OptionError(added[0], *_NO_TABLE)
    for key in given:
        _check_known(key)
    return given


def value_of_option(
    option: Option, given: Mapping[str, str], *, parse: Callable[[str], Any] | None = None, default: str | None = None
) -> Any:
    """Return the value of an option.

    Parameters
    ----------
    option : Option
        Its row.
    given : mapping of str to str
        The options that are given, by their names in lower case.
    parse, default
        In place of those of the row.

    Raises
    ------
    OptionError
        If it is malformed.
    """
    text = given.get(option.name.lower(), default or option.default)
    if text is None:
        return None
    try:
        return (parse or option.parse)(text)
    except MalformedError as malformed:
        raise OptionError(option.name, str(malformed), malformed.remedy) from None


def check_required(given: Mapping[str, str]) -> None:
    """Refuse options without one that is required; to be asked after what is wrong with those that are given.

    Raises
    ------
    OptionError
        Naming the first one that is missing.
    """
    for option in OPTIONS:
        if option.required and option.name.lower() not in given:
            raise OptionError(option.name, "it is missing.", f"Add .option({option.name!r}, ...). {option.doc}")


def columns_of(values: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the columns of the rows."""
    columns: tuple[str, ...] = values["columns"]
    return (*columns, "headers") if values["includeHeaders"] and "headers" not in columns else columns


def min_records_per_task(values: Mapping[str, Any], given: Mapping[str, str]) -> int:
    """Return ``minRecordsPerTask``; who says how to split says nothing of sharing."""
    splits = values["minPartitions"] is not None or values["maxRecordsPerPartition"] is not None
    return 1 if splits and "minrecordspertask" not in given else int(values["minRecordsPerTask"])


# What other sources of Spark have and this one cannot have: by name in lower case, the name, the reason and the remedy.
_CANNOT_BE = {
    "maxbytespertrigger": (
        "maxBytesPerTrigger",
        "there is no limit in bytes. Where a batch ends is decided before it is read, and an offset does not tell how "
        "large its record is.",
        "Use maxOffsetsPerTrigger, with the bytes that you want divided by the size of your records.",
    ),
}


_OF_A_TABLE = frozenset({"owner", "provider"})
"""What Spark adds to the options where a table of its catalog is made."""

_NO_TABLE = (
    "Spark adds it for CREATE TABLE. It keeps the options of a table, and gives a source written in Python none of "
    "them when the table is read.",
    "Use CREATE TEMPORARY VIEW ... USING; or name the columns in CREATE TABLE, and the options in each query, as in "
    "SELECT ... FROM orders WITH ('subscribe' = 'orders', ...).",
)


def _check_known(key: str) -> None:
    names = {option.name.lower(): option.name for option in OPTIONS}
    if key in names or key.startswith("kafka."):
        return
    if is_in_table(key):
        raise OptionError(key, "it is not an option of this source.", f"Write kafka.{key} for a Kafka property.")
    if key in _CANNOT_BE:
        raise OptionError(*_CANNOT_BE[key])
    near = difflib.get_close_matches(key, names, n=1)
    hint = f"Did you mean {names[near[0]]!r}?" if near else "Kafka properties are written kafka.<name>."
    raise OptionError(key, "it is not an option of this source.", hint)
