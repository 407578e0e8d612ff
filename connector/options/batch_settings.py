"""The parsed options of ``spark.read.format("kafka-group")``: :class:`BatchSettings`."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field

from pyspark_kafka_group.cluster.properties.client_config import value_of
from pyspark_kafka_group.offsets.errors import OptionError
from pyspark_kafka_group.offsets.range_bounds import AtCommitted, AtTime, Bounds, NamedBounds
from pyspark_kafka_group.offsets.start_inputs import NoMatch, StartingOffset
from pyspark_kafka_group.offsets.types import TopicPartition
from pyspark_kafka_group.options.option import ParsedOptions, Use, check_required
from pyspark_kafka_group.options.parsers import COMMITTED, GivenOffsets, StartingOffsets
from pyspark_kafka_group.options.settings import ReadSettings, Settings, parse, parse_read, read_settings
from pyspark_kafka_group.options.table import OPTIONS

_log = logging.getLogger(__name__)

_READER = "kafka-group-batch"
"""The default name of the readers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchSettings(ReadSettings):
    """All options of a batch read, parsed and checked.

    Attributes
    ----------
    properties : mapping of str to str
        The user's ``kafka.*`` properties, without the prefix.  Hidden from ``repr``, because they contain secrets.
    group_id : str or None
        The option ``kafka.group.id``.
    reader_name : str
        The name of the clients.  It comes from the group, from ``groupIdPrefix``, or is a default.
    topics : tuple of str
        The option ``subscribe``.
    pattern : str or None
        The option ``subscribePattern``.
    assigned : tuple of TopicPartition
        The option ``assign``.
    start, until : Bounds
        The bounds of the read.
    start_option, until_option : str
        The options that set these bounds, for errors.
    no_match : NoMatch
        The option ``startingOffsetsByTimestampStrategy``.
    fail_on_data_loss : bool
        The option ``failOnDataLoss``.
    fetch_attempts : int
        The option ``fetchOffset.numRetries``.
    fetch_pause_s : float
        The option ``fetchOffset.retryIntervalMs``, in seconds.
    read_committed : bool
        Whether the readers skip aborted transactions and wait for open ones.
    ignored : tuple of str
        The options of a stream that have no effect here.
    """

    properties: Mapping[str, str] = field(repr=False)
    group_id: str | None
    reader_name: str
    topics: tuple[str, ...]
    pattern: str | None
    assigned: tuple[TopicPartition, ...]
    start: Bounds
    until: Bounds
    start_option: str
    until_option: str
    no_match: NoMatch
    fail_on_data_loss: bool
    fetch_attempts: int
    fetch_pause_s: float
    read_committed: bool
    ignored: tuple[str, ...]

    def warn_of_ignored_options(self) -> None:
        """Log a warning for each option without effect."""
        for name in self.ignored:
            _log.warning("Option %r is ignored in batch reads: only a stream has it.", name)


def parse_batch(options: Mapping[str, str]) -> BatchSettings:
    """Parse and check the options of ``spark.read.format("kafka-group")``.

    Parameters
    ----------
    options : mapping of str to str
        The options from Spark.  The case of keys does not matter.

    Raises
    ------
    OptionError
        If an option is missing, unknown, malformed or in conflict.  The error names the first one and the remedy.
    """
    values = parse_read(options, batch=True)
    start_option, start = _start(values)
    until_option, until = _until(values)
    read = values.read
    check_required(values, OPTIONS)
    group_id: str | None = values["kafka.group.id"]
    _check_committed(start, group_id, values)
    _check_order(start_option, start, until_option, until)
    properties = values.properties
    return BatchSettings(
        **read_settings(values),
        properties=properties,
        group_id=group_id,
        reader_name=group_id or values["groupIdPrefix"] or _READER,
        topics=() if read.partitions else read.topics,
        pattern=read.pattern,
        assigned=read.partitions,
        start=start,
        until=until,
        start_option=start_option,
        until_option=until_option,
        no_match=values["startingOffsetsByTimestampStrategy"],
        fail_on_data_loss=values["failOnDataLoss"],
        fetch_attempts=values["fetchOffset.numRetries"],
        fetch_pause_s=values["fetchOffset.retryIntervalMs"] / 1000,
        read_committed=value_of("isolation.level", properties) == "read_committed",
        ignored=tuple(o.name for o in OPTIONS if o.batch is Use.IGNORED and o.name in values),
    )


def _start(values: ParsedOptions) -> tuple[str, Bounds]:
    """Return the option that decides the start, and its bounds.  The first one decides, as in Spark's own source."""
    times = _times(values, "startingTimestamp", "startingOffsetsByTimestamp")
    if times is not None:
        return times
    found = values["startingOffsets"]
    if found == COMMITTED:
        return "startingOffsets", AtCommitted(values["startingOffsetsIfNotCommitted"])
    return "startingOffsets", _bounds("startingOffsets", found, StartingOffset.LATEST, _START_REMEDY)


def _until(values: ParsedOptions) -> tuple[str, Bounds]:
    times = _times(values, "endingTimestamp", "endingOffsetsByTimestamp")
    if times is not None:
        return times
    return "endingOffsets", _bounds("endingOffsets", values["endingOffsets"], StartingOffset.EARLIEST, _END_REMEDY)


def _check_committed(start: Bounds, group_id: str | None, values: ParsedOptions) -> None:
    """Refuse a start at committed offsets without a group, and ``startingOffsetsIfNotCommitted`` without that start."""
    if not isinstance(start, AtCommitted):
        if "startingOffsetsIfNotCommitted" in values:
            raise OptionError(
                "startingOffsetsIfNotCommitted",
                "it changes nothing without startingOffsets=committed.",
                "Add .option('startingOffsets', 'committed'), or remove it.",
            )
        return
    if group_id is None:
        raise OptionError(
            "startingOffsets",
            "it is committed, but there is no group.",
            "Add .option('kafka.group.id', ...): the read starts at the committed offsets of this group.",
        )


def _times(values: ParsedOptions, of_all: str, of_each: str) -> tuple[str, Bounds] | None:
    if values[of_all] is not None:
        return of_all, AtTime(values[of_all], of_all)
    if values[of_each] is not None:
        return of_each, NamedBounds({tp: AtTime(ms, of_each) for tp, ms in values[of_each].items()}, {})
    return None


_START_REMEDY = "Write earliest, committed, or JSON with offsets and -2 (earliest)."
_END_REMEDY = "Write latest, or JSON with offsets and -1 (latest)."


def _bounds(option: str, found: StartingOffsets, refused: StartingOffset, remedy: str) -> Bounds:
    """Return the bounds; refuse the word ``refused``, with which there would be nothing to read.

    Deliberate: check only the deciding option.  If a time takes precedence, the offsets may have any value, as in
    Spark's own source.
    """
    where: str | None = None
    if not isinstance(found, GivenOffsets):
        where = "" if found is refused else None
    else:
        named = [str(tp) for tp, offset in sorted(found.partitions.items()) if offset is refused]
        named += [topic for topic, offset in sorted(found.topics.items()) if offset is refused]
        where = f" for {named[0]}" if named else None
    if where is not None:
        which = option.removesuffix("Offsets")
        raise OptionError(option, f"the {which} offset{where} can't be {refused.value} in a batch read.", remedy)
    return NamedBounds(*found) if isinstance(found, GivenOffsets) else found


def _check_order(start_option: str, start: Bounds, until_option: str, until: Bounds) -> None:
    """Refuse bounds that are wrong for any log: other partitions at the start than at the end, or a lower end."""
    if not isinstance(start, NamedBounds) or not isinstance(until, NamedBounds):
        return
    if start.topics or until.topics or start_option.endswith("ByTimestamp") != until_option.endswith("ByTimestamp"):
        return  # an offset and a time cannot be compared
    if start.partitions.keys() != until.partitions.keys():
        only = sorted(start.partitions.keys() ^ until.partitions.keys())
        raise OptionError(
            until_option,
            f"it names other topic-partitions than {start_option}: {', '.join(map(str, only))}.",
            "Name the same topic-partitions in both.",
        )
    for tp, low in start.partitions.items():
        high = until.partitions[tp]
        if isinstance(low, AtTime) and isinstance(high, AtTime) and low.time_ms > high.time_ms:
            what = f"the start {low.time_ms} of {tp} is greater than its end {high.time_ms}."
        elif isinstance(low, int) and isinstance(high, int) and low > high:
            what = f"the start offset {low} of {tp} is greater than its end offset {high}."
        else:
            continue
        raise OptionError(start_option, what, "Start lower, or end higher.")


_NAMES_GROUP = {"kafka.group.id", "groupidprefix"}


def parse_either(options: Mapping[str, str]) -> Settings | BatchSettings:
    """Parse the options of a ``load()`` before Spark has decided between a stream and a batch read.

    Deliberate: options with a group, or with an option that only a stream has, are checked as options of a stream,
    although they may be valid for a batch read.  Most users who name a group want a stream.  The reader checks again.

    Raises
    ------
    OptionError
        If the options are valid for neither.
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
        raise OptionError.with_message(f"{problem} In a stream: {of_a_stream}", option=problem.option) from None


def _lacks_only_a_group(options: Mapping[str, str]) -> bool:
    """Return whether these would be valid options of a stream if they named a group."""
    try:
        parse({**options, "kafka.group.id": "g"})
    except OptionError:
        return False
    return True
