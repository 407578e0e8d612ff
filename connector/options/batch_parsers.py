"""From the text of an option to its value, for what only a batch read understands; see `parsers`."""

from __future__ import annotations

from pyspark_kafka_group.offsets.range_bounds import NotCommitted
from pyspark_kafka_group.offsets.start_inputs import StartingOffset
from pyspark_kafka_group.options.parsers import GivenOffsets, MalformedError, StartingOffsets, starting_offsets

COMMITTED = "committed"

_START_REMEDY = "Write earliest, committed, or JSON with offsets and -2 (earliest)."
_END_REMEDY = "Write latest, or JSON with offsets and -1 (latest)."


def batch_starting_offsets(text: str) -> StartingOffsets | str:
    """Return :data:`COMMITTED`, or what `parsers.starting_offsets` does."""
    return COMMITTED if text.strip().lower() == COMMITTED else starting_offsets(text)


def check_start(found: StartingOffsets) -> None:
    """Refuse ``latest``, which would leave nothing to read; raises :class:`MalformedError`."""
    _refuse(found, StartingOffset.LATEST, "starting", _START_REMEDY)


def check_end(found: StartingOffsets) -> None:
    """Refuse ``earliest``, which would leave nothing to read; raises :class:`MalformedError`."""
    _refuse(found, StartingOffset.EARLIEST, "ending", _END_REMEDY)


def not_committed(text: str) -> NotCommitted:
    """Return what to do with a partition without a committed offset."""
    try:
        return NotCommitted(text.strip().lower())
    except ValueError:
        raise MalformedError(f"{text!r} is not a policy.", "Write earliest, latest or fail.") from None


def _refuse(found: StartingOffsets, word: StartingOffset, which: str, remedy: str) -> None:
    if isinstance(found, GivenOffsets):
        where = [str(tp) for tp, offset in sorted(found.partitions.items()) if offset is word]
        where += [topic for topic, offset in sorted(found.topics.items()) if offset is word]
        if where:
            raise MalformedError(f"the {which} offset for {where[0]} can't be {word.value} in a batch read.", remedy)
    elif found is word:
        raise MalformedError(f"the {which} offset can't be {word.value} in a batch read.", remedy)
