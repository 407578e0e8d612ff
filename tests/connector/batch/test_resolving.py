"""How bounds become offsets of a log."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import pytest

from pyspark_kafka_group.batch.resolving import Offsets, Policy, resolve
from pyspark_kafka_group.cluster.cluster_answers import CommittedOffset, TopicInfo
from pyspark_kafka_group.offsets.errors import ConfigurationError, DataLossError, NoOffsetAtTimeError, OptionError
from pyspark_kafka_group.offsets.range_bounds import AtCommitted, AtTime, Bound, NotCommitted, Span
from pyspark_kafka_group.offsets.start_inputs import NoMatch, StartingOffset
from pyspark_kafka_group.offsets.types import Offset, TopicPartition

TP, OTHER = TopicPartition("orders", 0), TopicPartition("orders", 1)
EARLIEST, LATEST = StartingOffset.EARLIEST, StartingOffset.LATEST


class Log:
    """One partition with the records 10 to 19, at intervals of 100 ms from 1000 on.  Remembers the requests."""

    def __init__(
        self,
        *,
        committed: int | None = None,
        start: int = 10,
        end: int = 20,
        later_end: int | None = None,
        top: int | None = None,
        epoch_end: int | None = None,
    ) -> None:
        self._committed, self._start, self._end, self._epoch_end = committed, start, end, epoch_end
        self._later_end = end if later_end is None else later_end
        self._top = end if top is None else top
        self.asked: list[str] = []

    def log_starts(self, partitions: Collection[TopicPartition]) -> Offsets:
        return self._of("starts", partitions, self._start)

    def log_ends(self, partitions: Collection[TopicPartition]) -> Offsets:
        return self._of("ends", partitions, self._end)

    def log_ends_reaching(self, wanted: Offsets, *, open_transactions: bool) -> Offsets:
        if open_transactions:
            return self._of("tops", wanted, self._top)
        return self._of("later ends", wanted, self._later_end)

    def committed(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, CommittedOffset]:
        assert [*partitions] == [TP, OTHER], "of the whole topic"
        self.asked.append("committed")
        found = {OTHER: Offset(3)} if self._committed is None else {TP: Offset(self._committed)}
        return {tp: CommittedOffset(offset, None if self._epoch_end is None else 7, "") for tp, offset in found.items()}

    def epoch_ends(self, epochs: Mapping[TopicPartition, int]) -> Offsets:
        assert {*epochs.values()} <= {7}
        return self._of("epochs", epochs, self._epoch_end or 0)

    def offsets_at(self, times_ms: Mapping[TopicPartition, int]) -> Offsets:
        if times_ms:
            self.asked.append("times")
        found = {tp: max(10, 10 - (1000 - ms) // 100) for tp, ms in times_ms.items()}
        return {tp: Offset(offset) for tp, offset in found.items() if offset < 20}

    def _of(self, what: str, partitions: Collection[TopicPartition], offset: int) -> Offsets:
        if partitions:
            self.asked.append(what)
        return {tp: Offset(offset) for tp in partitions}


def resolved(
    start: Bound,
    until: Bound,
    log: Log | None = None,
    *,
    no_match: NoMatch = NoMatch.ERROR,
    fail_on_data_loss: bool = True,
) -> tuple[int, int]:
    policy = Policy(group_id="g", no_match=no_match, fail_on_data_loss=fail_on_data_loss)
    topics = {"orders": TopicInfo(None, {0: 0, 1: 0})}
    return resolve({TP: Span(start, until)}, topics, log or Log(), policy)[TP]


def at(time_ms: int) -> AtTime:
    return AtTime(time_ms, "startingTimestamp")


@pytest.mark.parametrize(
    ("start", "until", "expected"),
    [
        (EARLIEST, LATEST, (10, 20)),
        (Offset(12), Offset(15), (12, 15)),
        (Offset(5), LATEST, (5, 20)),  # the reader reports the lost records
        (at(0), LATEST, (10, 20)),
        (at(1200), at(1500), (12, 15)),
        (at(1201), LATEST, (13, 20)),
        (EARLIEST, at(1500), (10, 15)),
        (EARLIEST, at(9999), (10, 20)),
        (Offset(20), LATEST, (20, 20)),
    ],
)
def test_bounds_without_a_group(start: Bound, until: Bound, expected: tuple[int, int]) -> None:
    assert resolved(start, until) == expected


def test_only_what_matters_is_asked() -> None:
    log = Log()
    resolved(Offset(12), Offset(15), log)
    assert log.asked == ["ends"]
    resolved(EARLIEST, Offset(15), log)
    assert log.asked == ["ends", "starts", "ends"]


@pytest.mark.parametrize(("start", "clipped"), [(12, (12, 20)), (25, (25, 25))])
def test_a_range_that_ends_behind_the_log(start: int, clipped: tuple[int, int]) -> None:
    with pytest.raises(OptionError, match="'endingOffsets': 99 is behind the end of orders-0, 20"):
        resolved(Offset(start), Offset(99))
    assert resolved(Offset(start), Offset(99), fail_on_data_loss=False) == clipped


@pytest.mark.parametrize("fail_on_data_loss", [True, False])
def test_a_log_end_that_goes_back_for_a_moment(fail_on_data_loss: bool) -> None:
    """Regression: Spark plans a bookmark's ranges anew.  It left out these records, and the bookmark committed them."""
    log = Log(end=15, later_end=20)
    assert resolved(Offset(12), Offset(20), log, fail_on_data_loss=fail_on_data_loss) == (12, 20)


def test_records_of_an_open_transaction_do_not_count_for_times() -> None:
    """An open transaction contains the records from 15 on.  For a reader of committed records, the log ends there."""
    log = Log(end=15)
    assert resolved(EARLIEST, at(1700), log) == (10, 15)
    assert resolved(at(1700), LATEST, log, no_match=NoMatch.LATEST) == (15, 15)
    with pytest.raises(NoOffsetAtTimeError):
        resolved(at(1700), LATEST, log)


class Growing(Log):
    """A log that gets five records with a high timestamp after each question about a time."""

    def offsets_at(self, times_ms: Mapping[TopicPartition, int]) -> Offsets:
        found = {tp: Offset(20) for tp in times_ms if self._end > 20}
        if times_ms:
            self._end += 5
        return found


def test_records_that_come_while_times_are_asked() -> None:
    """Regression: a read with an ending time got records of that time or later.

    If it also had a starting time, it began above the first new record, where it ended, and failed.
    """
    assert resolved(EARLIEST, at(4000), Growing()) == (10, 20)
    assert resolved(at(3000), at(4000), Growing(), no_match=NoMatch.LATEST) == (20, 20)


def test_no_record_of_the_starting_time() -> None:
    with pytest.raises(NoOffsetAtTimeError, match=r"orders-0 has no record of the time 9999 \(startingTimestamp"):
        resolved(at(9999), LATEST)
    assert resolved(at(9999), LATEST, no_match=NoMatch.LATEST) == (20, 20)


@pytest.mark.parametrize(
    ("start", "until", "option"),
    [
        (Offset(21), LATEST, "startingOffsets"),
        (Offset(12), at(1100), "startingOffsets"),
        (at(1500), at(1200), "startingTimestamp"),
        (EARLIEST, Offset(5), "startingOffsets"),
    ],
)
def test_a_range_that_begins_above_its_end(start: Bound, until: Bound, option: str) -> None:
    with pytest.raises(OptionError, match=f"'{option}': the resolved start offset .* of orders-0 is greater than"):
        resolved(start, until)


COMMITTED = AtCommitted(None)


def test_a_committed_offset() -> None:
    assert resolved(COMMITTED, LATEST, Log(committed=17)) == (17, 20)
    assert resolved(COMMITTED, Offset(15), Log(committed=17)) == (17, 17)  # the group has read this range before


def test_no_committed_offset_but_of_another_partition() -> None:
    assert resolved(AtCommitted(NotCommitted.LATEST), LATEST) == (10, 20)
    with pytest.raises(ConfigurationError, match="'g' has no committed offset for orders-0"):
        resolved(COMMITTED, LATEST)


@pytest.mark.parametrize("until", [LATEST, at(1500), at(9999), Offset(15), Offset(20), Offset(22), Offset(99)])
def test_a_log_that_ends_below_the_committed_offset(until: Bound) -> None:
    """Regression: a job with ``endingTimestamp`` waited at its offset, and skipped the new records below it."""
    with pytest.raises(DataLossError, match=r"offsets \[20, 25\) are beyond the end of the log"):
        resolved(COMMITTED, until, Log(committed=25))
    assert resolved(COMMITTED, until, Log(committed=25), fail_on_data_loss=False) == (20, 20)


@pytest.mark.parametrize("until", [LATEST, at(1500), Offset(12), Offset(20)])
def test_a_log_that_was_truncated_and_has_grown_past_the_committed_offset(until: Bound) -> None:
    """Regression: the new records below the committed offset were never read."""
    log = Log(committed=17, epoch_end=14)
    with pytest.raises(DataLossError, match=r"offsets \[14, 17\) were truncated"):
        resolved(COMMITTED, until, log)
    start, _ = resolved(COMMITTED, until, log, fail_on_data_loss=False)
    assert start == 14
    assert resolved(COMMITTED, until, Log(committed=17, epoch_end=17))[0] == 17


def test_a_log_that_was_truncated_by_one_record() -> None:
    for log, lost in (
        (Log(committed=17, epoch_end=16), r"\[16, 17\) were truncated"),
        (Log(committed=21), r"\[20, 21\)"),
    ):
        with pytest.raises(DataLossError, match=lost):
            resolved(COMMITTED, LATEST, log)


def test_a_truncated_log_whose_new_records_are_in_an_open_transaction() -> None:
    log = Log(committed=17, end=12, top=20, epoch_end=14)
    assert resolved(COMMITTED, LATEST, log, fail_on_data_loss=False) == (12, 12)


def test_a_committed_offset_behind_an_open_transaction() -> None:
    """Kafka's consumers read uncommitted records by default.  The group has read these records, so nothing is lost."""
    log = Log(committed=18, end=15, top=20)
    assert resolved(COMMITTED, LATEST, log) == (18, 18)
    assert log.asked == ["committed", "ends", "tops"]
    assert resolved(COMMITTED, LATEST, log, fail_on_data_loss=False) == (18, 18)
    assert resolved(COMMITTED, at(1600), log) == (18, 18)
    with pytest.raises(DataLossError, match=r"offsets \[20, 25\) are beyond the end of the log"):
        resolved(COMMITTED, LATEST, Log(committed=25, end=15, top=20))
