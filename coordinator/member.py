"""One member of a consumer group, which never fetches.

A thin wrapper around the :class:`confluent_kafka.Consumer` of the group.  All its calls belong to the group
thread: since 2.16 confluent-kafka lets one thread at a time use a consumer, without a queue, and a thread that
polls starves all others.

The member acknowledges assignments with empty incremental calls.  librdkafka keeps what the group has assigned
apart from what is fetched, so the membership is complete and no record is ever fetched by it; the executors read.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark_kafka_group.cluster.error_remedies import Remedy, explained, explanation, remedy_for
from pyspark_kafka_group.cluster.group_identity import group_identity
from pyspark_kafka_group.cluster.properties.client_config import client_error, client_properties, value_of
from pyspark_kafka_group.cluster.properties.kafka_properties import ClientKind, default_of
from pyspark_kafka_group.coordinator.settings import GroupSettings
from pyspark_kafka_group.offsets.client_log import ClientLog
from pyspark_kafka_group.offsets.errors import BrokerError, NotUpgradedError
from pyspark_kafka_group.offsets.redaction import redact
from pyspark_kafka_group.offsets.types import TopicPartition
from pyspark_kafka_group.wire.deadline import Deadline

if TYPE_CHECKING:
    from confluent_kafka import Consumer, KafkaError
    from confluent_kafka import TopicPartition as KafkaPartition

_log = logging.getLogger(__name__)

# To send a request without waiting for the answer, which comes to nothing here.
_NO_WAIT_S = 0.0001

# How much longer than a session lasts to try to get back the place of a static member.  Under KIP-848 the broker
# decides how long a session lasts: 45 s unless it was told otherwise, and at most 60 s.
_RELEASE_MARGIN_S = 30.0
_RELEASE_PAUSE_S = 1.0

# Deliberate: not 0.  librdkafka enforces max.poll.interval.ms inside poll(0) while a callback waits for a batch,
# and leaves the group; inside any longer poll it does not.
_POLL_S = 0.001

Callback = Callable[[tuple[TopicPartition, ...]], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Callbacks:
    """What the group tells the member.  Called inside :meth:`Member.poll` and :meth:`Member.close`.

    ``revoked`` may block: the group waits until it returns.
    """

    assigned: Callback
    revoked: Callback
    lost: Callback


class Member:
    """A group member.  All methods belong to one thread.

    Parameters
    ----------
    settings : GroupSettings
        The group, the topics, and the user's properties.
    client_id : str
        What Kafka's tools show as CLIENT-ID.
    callbacks : Callbacks
        What to call on a rebalance.

    Raises
    ------
    OptionError
        If librdkafka refuses a property.
    """

    def __init__(self, settings: GroupSettings, *, client_id: str, callbacks: Callbacks) -> None:
        from confluent_kafka import Consumer, KafkaException

        self._settings = settings
        self._callbacks = callbacks
        config: dict[str, Any] = {
            **client_properties(ClientKind.MEMBER, settings.properties),
            "client.id": client_id,
            "group.id": settings.group_id,
            "error_cb": self._on_error,
            "logger": ClientLog(_log, settings.properties),
        }
        self._is_classic = config["group.protocol"] == "classic"
        if self._is_classic:
            session_ms = int(value_of("session.timeout.ms", settings.properties))
            config.setdefault("heartbeat.interval.ms", min(int(default_of("heartbeat.interval.ms")), session_ms // 3))
        config["topic.metadata.refresh.interval.ms"] = str(round(settings.topics_refresh_s * 1000))
        self._config = config
        self._rebalanced = False
        self._was_let_in = False
        self._has_place = False  # as far as it knows: it was let in, and has not been thrown out since
        self._topics: list[str] = []  # that it is subscribed to
        self._released_by: Deadline | None = None  # of the place that a former process has not given back
        self._join_again_at: Deadline | None = None
        try:
            self._consumer: Consumer = Consumer(config)
        except (KafkaException, ValueError, TypeError) as problem:
            raise client_error(problem, settings.properties) from None

    def subscribe(self, topics: Sequence[str]) -> None:
        """Join the group, or change what this member is subscribed to."""
        self._topics = list(topics)
        if self._join_again_at is not None:
            return  # this client is at its end and refuses it; the next one subscribes
        self._consumer.subscribe(
            self._topics,
            on_assign=self._on_assign,
            on_revoke=self._on_revoke,
            on_lost=self._on_lost,
        )

    def poll(self) -> None:
        """Serve callbacks, for about a millisecond, or as long as a callback takes.

        Raises
        ------
        KafkaGroupError
            If the group refuses this member for good.
        """
        if self._join_again_at is not None:
            if not self._join_again_at.passed:
                return
            self._join_again()
        message = self._consumer.poll(_POLL_S)
        # Wakes librdkafka's main thread, which otherwise looks only every 500 ms whether a heartbeat is due.
        self._consumer.memberid()
        if self._rebalanced:
            self._rebalanced = False
            self._allow_join()
        if not self._was_let_in:
            # A member that is given nothing is told nothing, but it has an epoch.
            self._was_let_in = (self.generation() or 0) > 0
        error = None if message is None else message.error()
        if error is not None:
            self._raise_if_unknown(error)
            if self._is_to_be_released(error):
                return
            self._raise_if_final(error)
            _log.warning("group %s: %s", self._settings.group_id, redact(error.str(), self._settings.properties))

    def _allow_join(self) -> None:
        """Let librdkafka answer the next rebalance at once.

        It sends one JoinGroup a second at most, and moving a partition takes two: one by which its owner learns that
        it has to go, one by which the next owner gets it.  Metadata from a broker lifts that limit (2.16,
        ``rd_kafka_parse_Metadata`` resets the interval), so we ask for some after each rebalance.
        """
        from confluent_kafka import KafkaException

        if self._is_classic:
            with contextlib.suppress(KafkaException):  # of not having waited
                self._consumer.list_topics(self._topics[0], timeout=_NO_WAIT_S)

    def identity(self) -> str:
        """Return the member id; empty while the member has none."""
        return self._consumer.memberid() or ""

    def generation(self) -> int | None:
        """Return the generation, or member epoch, as of now; None if librdkafka has changed its form."""
        try:
            return group_identity(self.group_metadata()).generation
        except ValueError:
            return None

    def group_metadata(self) -> bytes:
        """Return what fences a commit: group, member id, and generation or member epoch, as of now."""
        metadata: bytes = self._consumer.consumer_group_metadata()
        return metadata

    def close(self) -> None:
        """Leave the group (static members only stop).  Callbacks run inside; they must not block any more."""
        try:
            if self._settings.leaves_with_a_request:
                # Deliberate: close() alone tells the group nothing where no partition is assigned (librdkafka 2.16).
                # The group would wait for this member until its session times out, and then move partitions.
                self._consumer.unsubscribe()
        finally:
            self._consumer.close()

    # -- callbacks, on the group thread

    def _on_assign(self, consumer: Consumer, partitions: list[KafkaPartition]) -> None:
        try:
            self._callbacks.assigned(_plain(partitions))
        finally:
            self._rebalanced = self._was_let_in = self._has_place = True
            self._released_by = None
            consumer.incremental_assign([])

    def _on_revoke(self, consumer: Consumer, partitions: list[KafkaPartition]) -> None:
        try:
            self._callbacks.revoked(_plain(partitions))
        finally:
            self._rebalanced = True
            # Without this call librdkafka waits for it for ever, heartbeating, and nothing moves.
            consumer.incremental_unassign([])

    def _on_lost(self, consumer: Consumer, partitions: list[KafkaPartition]) -> None:
        try:
            self._callbacks.lost(_plain(partitions))
        finally:
            self._has_place = False
            consumer.incremental_unassign([])

    def _on_error(self, error: KafkaError) -> None:
        _log.debug("%s: %s", error.name(), redact(error.str(), self._settings.properties))

    def _raise_if_unknown(self, error: KafkaError) -> None:
        """Raise if the coordinator does not know the group that this member is in, or is to be let in to.

        Then a client of the new protocol is at its end, though its event may be named as Kafka names the cause, and is
        not marked as fatal.  One of the classic protocol joins again.
        """
        if "group id does not exist" not in error.str().lower() or self._is_classic:
            return
        text = redact(error.str(), self._settings.properties)
        if not self._was_let_in:
            raise NotUpgradedError(self._settings.group_id, text)
        raise BrokerError(
            f"The coordinator of the group {self._settings.group_id!r} does not know it any more, though this query "
            f"was a member ({text}): the group was deleted, or what the cluster knew of it was lost. Start the query "
            f"again."
        )

    def _is_to_be_released(self, error: KafkaError) -> bool:
        """Tell whether to join again, because the place of this static member may be that of a dead process.

        Under KIP-848 the group gives the place to nobody else until the session of a process that has crashed ends.
        The same happens to a member that was thrown out and whose first request to join again got no answer: the
        group may have let it in.  The client is at its end, so another one joins.
        """
        if not _is_unreleased(error) or self._has_place:
            return False
        if self._released_by is None:
            patience_s = self._settings.session_timeout_s + _RELEASE_MARGIN_S
            self._released_by = Deadline.after(patience_s)
            _log.warning(
                "group %s: the kafka.group.instance.id %r is in use. If the former process of this query has crashed, "
                "its session ends soon. The query tries to join for up to %.0f s.",
                self._settings.group_id,
                self._settings.properties.get("group.instance.id"),
                patience_s,
            )
        self._join_again_at = Deadline.after(_RELEASE_PAUSE_S)
        return not self._released_by.passed

    def _join_again(self) -> None:
        from confluent_kafka import Consumer

        self._join_again_at = None
        self._consumer.close()
        self._consumer = Consumer(self._config)
        self.subscribe(self._topics)

    def _raise_if_final(self, error: KafkaError) -> None:
        group_id = self._settings.group_id
        if error.name() == "_FATAL" and "instance" in error.str().lower():
            name = "UNRELEASED_INSTANCE_ID" if _is_unreleased(error) else "FENCED_INSTANCE_ID"
            raise explanation(name, error.str(), group_id=group_id, properties=self._settings.properties)
        # An event of a client that is at its end is named _FATAL and not marked as fatal.
        if error.fatal() or error.name() == "_FATAL" or remedy_for(error) is Remedy.FAIL:
            raise explained(error, group_id=group_id, properties=self._settings.properties)


def _is_unreleased(error: KafkaError) -> bool:
    """Tell whether the group keeps the place of a static member for another process.

    An event of a client that is at its end is named _FATAL; only its text tells.
    """
    return error.name() == "UNRELEASED_INSTANCE_ID" or "instance id is still used" in error.str().lower()


def _plain(partitions: Sequence[KafkaPartition]) -> tuple[TopicPartition, ...]:
    return tuple(sorted(TopicPartition(part.topic, part.partition) for part in partitions))
