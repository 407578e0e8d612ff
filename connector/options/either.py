"""Options before it is known whether they are those of a stream or of a batch read."""

from __future__ import annotations

from collections.abc import Mapping

from pyspark_kafka_group.offsets.errors import OptionError
from pyspark_kafka_group.options.batch_settings import BatchSettings, parse_batch
from pyspark_kafka_group.options.option import Use
from pyspark_kafka_group.options.settings import Settings, parse
from pyspark_kafka_group.options.table import OPTIONS

_NAMES_GROUP = {"kafka.group.id", "groupidprefix"}


def check_either(options: Mapping[str, str]) -> Settings | BatchSettings:
    """Return what the options say, if they are those of a stream or of a batch read.

    Deliberate: a stream with a group, or with an option that only a stream has, is told what is wrong with it although
    a batch read would take it; most who name a group mean a stream.  What this lets pass the reader refuses.

    Raises
    ------
    OptionError
        If they can be neither.
    """
    given = {key.lower(): value for key, value in options.items()}
    of_batch = any(option.stream is Use.NO and option.name.lower() in given for option in OPTIONS)
    of_batch = of_batch or given.get("startingoffsets", "").strip().lower() == "committed"
    of_stream = any(option.batch is Use.NO and option.name.lower() in given for option in OPTIONS)
    try:
        return parse(options)
    except OptionError as problem:
        if not of_batch and (of_stream or _NAMES_GROUP & given.keys()):
            raise
        of_a_stream = problem
    try:
        return parse_batch(options)
    except OptionError as problem:
        if of_batch or not _lacks_only_a_group(options):
            raise
        raise OptionError.told(f"{problem} In a stream: {of_a_stream}", option=problem.option) from None


def _lacks_only_a_group(options: Mapping[str, str]) -> bool:
    """Whether these would be the options of a stream if they named a group."""
    try:
        parse({**options, "kafka.group.id": "g"})
    except OptionError:
        return False
    return True
