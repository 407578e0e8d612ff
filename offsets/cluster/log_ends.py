"""Where the logs end, asked again and again, and whether they are still the same logs."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING

from pyspark_kafka_group.offsets.cluster.error_remedies import TryAgainError
from pyspark_kafka_group.offsets.cluster.topic_ids import topic_id_text
from pyspark_kafka_group.offsets.cluster.unjoined_consumer import REQUEST_TIMEOUT_S, UnjoinedConsumer, in_pieces
from pyspark_kafka_group.offsets.kafka_errors import Consequence, has
from pyspark_kafka_group.offsets.properties.client_config import Properties
from pyspark_kafka_group.offsets.types import Offset, TopicPartition
from pyspark_kafka_group.wire.deadline import Deadline

if TYPE_CHECKING:
    from concurrent.futures import Future

    from confluent_kafka import KafkaError
    from confluent_kafka import TopicPartition as KafkaPartition
    from confluent_kafka.admin import TopicDescription

# The offset that ListOffsets understands as "the log end".  Consumer.offsets_for_times sends one request per broker
# for many partitions, where get_watermark_offsets sends one per partition.
_LOG_END = -1

# How long to leave a partition alone whose broker did not answer, and how long to wait for it then.  Meanwhile the
# others go on: a broker that hangs would otherwise cost them REQUEST_TIMEOUT_S with each request.
_SILENT_PAUSE_S = 5.0
_SILENT_TIMEOUT_S = 1.0


class LogEnds(UnjoinedConsumer):
    """Lists log ends under the readers' isolation level, for planning.  Belongs to one thread."""

    def __init__(self, properties: Properties, *, group_id: str, read_committed: bool) -> None:
        super().__init__(
            properties,
            group_id=group_id,
            isolation="read_committed" if read_committed else "read_uncommitted",
        )
        self._read_committed = read_committed
        self._silent: dict[TopicPartition, float] = {}  # when to ask again
        # The last question and its answer: the same partitions are asked for again and again, and most often nothing
        # is new.
        self._asked: list[TopicPartition] = []
        self._pieces: list[list[KafkaPartition]] = []
        self._offsets: list[int] = []
        self._ends: dict[TopicPartition, Offset] = {}
        self._known: set[str] = set()  # topics whose leaders the client has heard of

    def ends(self, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, Offset]:
        """Return the log end of each partition; those whose leader does not answer are left out.

        If nothing is new it is the very mapping that was returned before, which makes comparing cheap and means no
        more; it is never changed.

        Raises
        ------
        TryAgainError
            If no broker answers.
        """
        from confluent_kafka.admin import OffsetSpec

        now = time.monotonic()
        lively = [tp for tp in partitions if tp not in self._silent] if self._silent else [*partitions]
        due = [tp for tp in partitions if self._silent.get(tp, now + 1) <= now] if self._silent else []
        try:
            ends = self._lively_ends(lively)
        except TryAgainError as problem:
            ends = self.list_offsets(lively, OffsetSpec.latest(), read_committed=self._read_committed).found
            if not ends:
                raise TryAgainError(str(problem)) from None
            self._silent.update({tp: now + _SILENT_PAUSE_S for tp in lively if tp not in ends})
        if not due:
            return ends
        try:
            answers = self._ask_ends(_question(due), _SILENT_TIMEOUT_S)
        except TryAgainError:
            answers = []
        again = {tp: Offset(part.offset) for tp, part in zip(due, answers, strict=False) if part.offset >= 0}
        self._refuse_final(answers)
        self._silent.update({tp: time.monotonic() + _SILENT_PAUSE_S for tp in due})
        for tp in again:
            del self._silent[tp]
        return {**ends, **again}

    def ask_topic_ids(self, topics: Collection[str]) -> TopicIds:
        """Ask for the id of each topic, and return at once."""
        from confluent_kafka import TopicCollection

        admin = self.admin_client()
        wanted = TopicCollection(sorted(topics))
        return TopicIds(
            self.ask(lambda: admin.describe_topics(wanted, request_timeout=REQUEST_TIMEOUT_S)), self.raise_if_final
        )

    def _lively_ends(self, partitions: list[TopicPartition]) -> dict[TopicPartition, Offset]:
        if partitions != self._asked:
            # A client that does not know the leaders asks for them, but in 3 of 100 cases misses the answer, and asks
            # again 0.7 s later (librdkafka 2.16.1).
            for topic in {tp.topic for tp in partitions} - self._known:
                self.partition_count(topic)
                self._known.add(topic)
            self._asked, self._pieces, self._offsets, self._ends = partitions, _question(partitions), [], {}
        answers = self._ask_ends(self._pieces, REQUEST_TIMEOUT_S)
        offsets = [part.offset for part in answers]
        if offsets != self._offsets:
            # librdkafka answers in the order of the question.  A partition with an error has no offset, so it is below.
            self._ends = {tp: Offset(offset) for tp, offset in zip(partitions, offsets, strict=True) if offset >= 0}
            self._offsets = offsets
            self._refuse_final(answers)
        return self._ends

    def _ask_ends(self, pieces: Iterable[list[KafkaPartition]], timeout_s: float) -> list[KafkaPartition]:
        """Ask for log ends with one request per piece and broker; raises if a broker does not answer."""
        deadline = Deadline.after(timeout_s)
        answers: list[KafkaPartition] = []
        for piece in pieces:
            left_s = max(0.1, deadline.left_s)
            answers += self.ask(partial(self._consumer.offsets_for_times, piece, timeout=left_s))
        return answers

    def _refuse_final(self, answers: Iterable[KafkaPartition]) -> None:
        for part in answers:
            if part.offset < 0 and part.error is not None:
                self.raise_if_final(part.error, f"topic {part.topic!r}")


class TopicIds:
    """The ids of some topics, on their way; any thread may wait for them.

    A topic that is deleted and created again gets another one (KIP-516).

    Parameters
    ----------
    asked : mapping of str to Future
        The answer for each topic.
    refuse : callable
        Raises what ends the query.
    """

    def __init__(self, asked: Mapping[str, Future[TopicDescription]], refuse: Callable[[KafkaError], None]) -> None:
        self._asked = asked
        self._refuse = refuse

    @property
    def here(self) -> bool:
        """Whether all answers have arrived."""
        return all(future.done() for future in self._asked.values())

    def of(self, topics: Collection[str]) -> bool:
        """Tell whether these topics were asked for."""
        return self._asked.keys() >= set(topics)

    def wait(self, timeout_s: float) -> dict[str, str | None]:
        """Return the id of each topic that exists; None where the broker has no ids.

        Raises
        ------
        TryAgainError
            If the broker that is asked cannot tell just now.
        TimeoutError
            If it takes longer than ``timeout_s``.
        """
        from confluent_kafka import KafkaException

        found = {}
        for topic, future in self._asked.items():
            try:
                topic_id = future.result(timeout_s).topic_id
            except KafkaException as problem:
                error = problem.args[0]
                self._refuse(error)
                if not has(error.name(), Consequence.NO_TOPIC):
                    raise TryAgainError(f"topic {topic!r}: {error.name()}") from None
            else:
                found[topic] = topic_id_text(topic_id)
        return found


def _question(partitions: Iterable[TopicPartition]) -> list[list[KafkaPartition]]:
    """Return the question for the log ends of ``partitions``, piece by piece."""
    from confluent_kafka import TopicPartition as KafkaPartition

    return [[KafkaPartition(tp.topic, tp.partition, _LOG_END) for tp in piece] for piece in in_pieces(partitions)]
