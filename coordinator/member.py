"""One member of a consumer group, which never fetches.

A thin wrapper around the :class:`confluent_kafka.Consumer` of the group.  Only the group thread calls it: since 2.16
confluent-kafka lets one thread at a time use a consumer, without a queue, and a thread that polls starves the others.

The member acknowledges assignments with empty incremental calls. librdkafka keeps the assignment apart from what it
fetches.  So the membership is complete, but this consumer never fetches a record.  The executors read.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any

from pyspark_kafka_group.cluster.error_remedies import Remedy, explained, explanation, remedy_for
from pyspark_kafka_group.cluster.group_identity import group_identity, no_member
from pyspark_kafka_group.cluster.properties.client_config import client_properties, session_timeout_ms, value_of
from pyspark_kafka_group.cluster.properties.clients import ClientLog, client_text, create_client, needs_renewals
from pyspark_kafka_group.cluster.properties.kafka_properties import ClientKind, default_of
from pyspark_kafka_group.coordinator.settings import GroupSettings
from pyspark_kafka_group.offsets.errors import BrokerError, NotUpgradedError
from pyspark_kafka_group.offsets.types import TopicPartition
from pyspark_kafka_group.wire.deadline import Deadline

if TYPE_CHECKING:
    from confluent_kafka import Consumer, KafkaError
    from confluent_kafka import TopicPartition as KafkaPartition

_log = logging.getLogger(__name__)

# To send a request without waiting for the answer, which is not needed here.
_NO_WAIT_S = 0.0001

# How long to try to get back the place of a static member, beyond its session timeout.  Under KIP-848 the broker
# decides this timeout: 45 s unless configured otherwise, and at most 60 s.
_RELEASE_MARGIN_S = 30.0
_RELEASE_PAUSE_S = 1.0

# Deliberate: not 0.  librdkafka enforces max.poll.interval.ms inside poll(0) while a callback waits for a batch,
# and leaves the group; inside any longer poll it does not.
_POLL_S = 0.001

# librdkafka's default of retry.backoff.ms.
_RETRY_MS = 100


class Standing(Enum):
    """Whether a member is in its group."""

    WARMING = "warming"
    """It stays outside until its query is warm."""

    OUTSIDE = "outside"
    """It has not asked to join."""

    JOINING = "joining"
    """It has asked, and the group has not answered yet."""

    ADMITTED = "admitted"
    """It is in the group, which has not assigned anything yet, and may never do so (KIP-848)."""

    MEMBER = "member"
    """It has its assignment, which may be empty."""

    LOST = "lost"
    """The group has thrown it out, and it joins again."""

    @property
    def was_let_in(self) -> bool:
        """Whether the group has let this member in, now or before."""
        return self not in (Standing.WARMING, Standing.OUTSIDE, Standing.JOINING)

    @property
    def changes_soon(self) -> bool:
        """Whether this member waits for an answer of its group."""
        return self not in (Standing.WARMING, Standing.OUTSIDE, Standing.MEMBER)


Callback = Callable[[tuple[TopicPartition, ...]], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Callbacks:
    """The callbacks of a rebalance.  Called inside :meth:`Member.poll` and :meth:`Member.close`.

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
        The client id, which Kafka's tools show as CLIENT-ID.
    callbacks : Callbacks
        Called on a rebalance.

    Raises
    ------
    OptionError
        If librdkafka refuses a property.

    Attributes
    ----------
    standing : Standing
        Whether it is in the group, as far as it knows.  Written on the group thread, read on all.
    """

    def __init__(self, settings: GroupSettings, *, client_id: str, callbacks: Callbacks) -> None:
        from confluent_kafka import Consumer

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
            session_ms = session_timeout_ms(settings.properties)
            config.setdefault("session.timeout.ms", str(session_ms))
            config.setdefault("heartbeat.interval.ms", min(int(default_of("heartbeat.interval.ms")), session_ms // 3))
        else:
            config.pop("heartbeat.interval.ms", None)  # librdkafka refuses it
        ask_pause_ms = int(value_of("heartbeat.interval.ms", settings.properties))
        if not self._is_classic:
            # Deliberate: overrides the user's value.  Each question for changes puts off the next heartbeat by a pause
            # that doubles with each failed one (2.16, ``rd_kafka_cgrp_consumer_expedite_next_heartbeat``).  Until the
            # next question, which puts the heartbeat off again, it must be over, or none would ever be sent.
            longest_ms = max(1, ask_pause_ms // 2)
            config["retry.backoff.max.ms"] = str(longest_ms)
            config.setdefault("retry.backoff.ms", str(min(_RETRY_MS, longest_ms)))
        self._ask_pause_s = ask_pause_ms / 1000
        self._ask_at = Deadline.after(0)
        config["topic.metadata.refresh.interval.ms"] = str(round(settings.topics_refresh_s * 1000))
        self._config = config
        self._rebalanced = False
        self.standing = Standing.OUTSIDE
        self._topics: list[str] = []  # the subscription
        self._released_by: Deadline | None = None  # when a former process must have given back this member's place
        self._join_again_at: Deadline | None = None
        self._consumer: Consumer = create_client(Consumer, config, settings.properties)

    def subscribe(self, topics: Sequence[str]) -> None:
        """Join the group, or change the subscription of this member."""
        self._topics = list(topics)
        if self.standing is Standing.OUTSIDE:
            self.standing = Standing.JOINING
        if self._join_again_at is not None:
            return  # this client has stopped working and refuses the call; the next one subscribes
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
            If the group refuses this member permanently.
        """
        if self._join_again_at is not None:
            if not self._join_again_at.passed:
                return
            self._join_again()
        message = self._consumer.poll(_POLL_S)
        # Wakes librdkafka's main thread, which otherwise checks only every 500 ms whether a heartbeat is due.
        self._consumer.memberid()
        if self._rebalanced:
            self._rebalanced = False
            self._allow_join()
        if self.standing is Standing.JOINING and (self.generation() or 0) > 0:
            # The group does not notify a member that gets no partitions, but that member has an epoch.
            self.standing = Standing.ADMITTED
        if self.standing.was_let_in and not self._is_classic and self._ask_at.passed:
            self._ask_for_changes()
        error = None if message is None else message.error()
        if error is not None:
            self._raise_if_unknown(error)
            if self._is_to_be_released(error):
                return
            self._raise_if_final(error)
            _log.warning("group %s: %s", self._settings.group_id, client_text(error.str(), self._settings.properties))

    def _allow_join(self) -> None:
        """Let librdkafka answer the next rebalance at once.

        It sends at most one JoinGroup a second, and moving a partition takes two: one to revoke it from its owner,
        and one to assign it to the next owner.  Metadata from a broker lifts that limit (2.16,
        ``rd_kafka_parse_Metadata`` resets the interval).  So the member asks for some after each rebalance.
        """
        from confluent_kafka import KafkaException

        if self._is_classic:
            with contextlib.suppress(KafkaException):  # the timeout
                self._consumer.list_topics(self._topics[0], timeout=_NO_WAIT_S)

    def _ask_for_changes(self) -> None:
        """Send a heartbeat now: only its answer tells a member of KIP-848 what it gets and has to give back.

        The broker decides how often a member must send one: every 5 s by default, and a group cannot have less than the
        brokers' minimum, also 5 s.  So a partition would stand still for seconds after its release.  A member may send
        more.
        librdkafka does so at once with each subscription (2.15, ``rd_kafka_cgrp_consumer_apply_next_subscribe``), and
        the same subscription changes nothing in the group.
        """
        from confluent_kafka import KafkaException

        self._ask_at = Deadline.after(self._ask_pause_s)
        with contextlib.suppress(KafkaException):  # a client that has stopped working: the next poll returns the error
            self.subscribe(self._topics)

    def identity(self) -> str:
        """Return the member id; empty while the member has none."""
        return self._consumer.memberid() or ""

    def generation(self) -> int | None:
        """Return the current generation or member epoch; None if librdkafka has changed the format."""
        try:
            return group_identity(self.group_metadata()).generation
        except ValueError:
            return None

    def group_metadata(self) -> bytes:
        """Return the metadata that fences commits now: group, member id, and generation or member epoch."""
        metadata: bytes = self._consumer.consumer_group_metadata()
        return metadata

    def close(self) -> None:
        """Leave the group; a static member only stops.  Callbacks run inside, and must not block now."""
        try:
            if self._settings.leaves_with_a_request:
                # Deliberate: without assigned partitions, close() alone sends the group no request (librdkafka 2.16).
                # The group would wait for this member until its session times out, and then move partitions.
                self._consumer.unsubscribe()
        finally:
            self._consumer.close()

    # -- callbacks, on the group thread

    def _on_assign(self, consumer: Consumer, partitions: list[KafkaPartition]) -> None:
        try:
            self._callbacks.assigned(_plain(partitions))
        finally:
            self._rebalanced = True
            self.standing = Standing.MEMBER  # last: a thread that waits for it must not see it before the partitions
            self._released_by = None
            consumer.incremental_assign([])

    def _on_revoke(self, consumer: Consumer, partitions: list[KafkaPartition]) -> None:
        try:
            self._callbacks.revoked(_plain(partitions))
        finally:
            self._rebalanced = True
            # Without this call, librdkafka would send heartbeats for ever, and the partitions would not move.
            consumer.incremental_unassign([])

    def _on_lost(self, consumer: Consumer, partitions: list[KafkaPartition]) -> None:
        self.standing = Standing.LOST
        try:
            self._callbacks.lost(_plain(partitions))
        finally:
            consumer.incremental_unassign([])

    def _on_error(self, error: KafkaError) -> None:
        _log.debug("%s: %s", error.name(), client_text(error.str(), self._settings.properties))

    def _raise_if_unknown(self, error: KafkaError) -> None:
        """Raise if the coordinator does not know the group of this member.

        A client of the new protocol then stops working.  Its event may have the name that Kafka gives to the cause,
        and is not marked as fatal.  A client of the classic protocol joins again.
        """
        if "group id does not exist" not in error.str().lower() or self._is_classic:
            return
        text = client_text(error.str(), self._settings.properties)
        if not self.standing.was_let_in:
            raise NotUpgradedError(self._settings.group_id, text)
        raise BrokerError(
            f"The coordinator no longer knows the group {self._settings.group_id!r}, although this query was a member "
            f"({text}). The group was deleted, or the cluster has lost its state. Start the query again."
        )

    def _is_to_be_released(self, error: KafkaError) -> bool:
        """Return whether to join again, because a dead process may still have the place of this static member.

        Under KIP-848 the group keeps the place for a process that has crashed, until its session ends.  The same
        happens if the group has thrown this member out, and its first request to join again got no answer: the group
        may have let it in.  The client has stopped working, so a new client joins.
        """
        if not _is_unreleased(error) or self.standing is Standing.MEMBER:
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
        self._consumer = create_client(Consumer, self._config, self._settings.properties)
        self.subscribe(self._topics)

    def _raise_if_final(self, error: KafkaError) -> None:
        group_id = self._settings.group_id
        if error.name() == "_FATAL" and "instance" in error.str().lower():
            name = "UNRELEASED_INSTANCE_ID" if _is_unreleased(error) else "FENCED_INSTANCE_ID"
            raise explanation(name, error.str(), group_id=group_id, properties=self._settings.properties)
        if error.name() == "_AUTHENTICATION" and needs_renewals(self._config):
            # Deliberate: not final.  With each new token librdkafka (2.16) logs in again over all connections.  A
            # broker refuses that for a connection whose last login was less than a second ago.  librdkafka then opens
            # a new one.  Tokens that are refused for good end the query through the source's own connections.
            return
        # The event of a client that has stopped working is named _FATAL, but not marked as fatal.
        if error.fatal() or error.name() == "_FATAL" or remedy_for(error) is Remedy.FAIL:
            raise explained(error, group_id=group_id, properties=self._settings.properties)


def _is_unreleased(error: KafkaError) -> bool:
    """Return whether the group keeps the place of a static member for another process.

    The event of a client that has stopped working is named _FATAL.  Then only its text says why.
    """
    return error.name() == "UNRELEASED_INSTANCE_ID" or "instance id is still used" in error.str().lower()


def _plain(partitions: Sequence[KafkaPartition]) -> tuple[TopicPartition, ...]:
    return tuple(sorted(TopicPartition(part.topic, part.partition) for part in partitions))


class FixedMember:
    """A stand-in for :class:`Member`, for ``assign``: it gets its partitions once, and keeps them.

    The state machine, completion and commits work as for a member.  It joins no group and sends no requests.  Its
    commits carry no member id, so a group accepts them only while it has no members.

    Parameters
    ----------
    settings : GroupSettings
        The group and its partitions.
    callbacks : Callbacks
        Called when the partitions are assigned.

    Attributes
    ----------
    standing : Standing
        Whether it has its partitions.
    """

    def __init__(self, settings: GroupSettings, *, callbacks: Callbacks) -> None:
        self._settings = settings
        self._callbacks = callbacks
        self.standing = Standing.OUTSIDE

    def subscribe(self, topics: Sequence[str]) -> None:
        """Begin; the partitions are fixed."""
        self.standing = Standing.JOINING

    def poll(self) -> None:
        """Assign the partitions, once."""
        if self.standing is Standing.JOINING:
            self._callbacks.assigned(self._settings.partitions)
            self.standing = Standing.MEMBER

    def identity(self) -> str:
        """Return the empty text: there is no member id."""
        return ""

    def generation(self) -> None:
        """Return None: there is no generation."""

    def group_metadata(self) -> bytes:
        """Return the group metadata of a client that is no member."""
        return no_member(self._settings.group_id)

    def close(self) -> None:
        """Do nothing: there is no group to leave."""
