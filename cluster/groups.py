"""Questions about groups and their committed offsets, and plain commits; coordinators answer them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import NoReturn, TypeVar

from pyspark_kafka_group.cluster.channel import TIMEOUT_S, Channel
from pyspark_kafka_group.cluster.cluster_answers import Answers, CommittedOffset, GroupCoordinator
from pyspark_kafka_group.cluster.error_remedies import TryAgainError
from pyspark_kafka_group.cluster.group_description import DEAD, GroupDescription, GroupMember, GroupProtocol
from pyspark_kafka_group.cluster.properties.client_config import Properties
from pyspark_kafka_group.cluster.request_errors import CommitUnclearError
from pyspark_kafka_group.offsets.commit_metadata import differ
from pyspark_kafka_group.offsets.errors import OffsetFormatError
from pyspark_kafka_group.offsets.kafka_errors import Consequence, has
from pyspark_kafka_group.offsets.notes import BookmarkNote, read
from pyspark_kafka_group.offsets.types import Offset, TopicPartition, printable
from pyspark_kafka_group.wire.deadline import Deadline
from pyspark_kafka_group.wire.describe_requests import (
    CONSUMER_GROUP_HEARTBEAT,
    ConsumerGroupDescribe,
    DescribedGroup,
    DescribeGroups,
    ListGroups,
)
from pyspark_kafka_group.wire.error_codes import NONE, error_name
from pyspark_kafka_group.wire.group_requests import (
    FindCoordinator,
    LastingOffsetCommit,
    OffsetCommit,
    OffsetFetch,
    OffsetToCommit,
)
from pyspark_kafka_group.wire.requests import Request
from pyspark_kafka_group.wire.security import Security
from pyspark_kafka_group.wire.types import Address, ProtocolError, RefusedCredentialsError, UnsupportedVersionError

T = TypeVar("T")

# Most partitions of one request.  The coordinator writes them as one batch, which must not be larger than its
# max.message.bytes of 1 MB, and refuses more with UNKNOWN_SERVER_ERROR; one partition takes up to some 400 bytes.
_REQUEST_PARTITIONS = 1000

_COORDINATOR_AGE_S = 60.0
"""How long to believe who coordinates a group.  A former one that is cut off from the others keeps answering."""


class Groups(Channel):
    """Asks coordinators of groups.  Raises the errors of :class:`~pyspark_kafka_group.cluster.cluster.Cluster`."""

    def __init__(self, servers: list[Address], security: Security, *, client_id: str, properties: Properties) -> None:
        super().__init__(servers, security, client_id=client_id, properties=properties)
        self._coordinators: dict[str, tuple[Address, Deadline]] = {}  # and until when to believe it

    def committed(
        self,
        group_id: str,
        partitions: Collection[TopicPartition],
        *,
        require_stable: bool,
        timeout_s: float = TIMEOUT_S,
    ) -> Answers[CommittedOffset]:
        """Return committed offsets.

        Parameters
        ----------
        group_id : str
            The group.  It need not exist.
        partitions : collection of TopicPartition
            The partitions.
        require_stable : bool
            Whether a partition in an open transaction fails with UNSTABLE_OFFSET_COMMIT (KIP-447).  The answer has the
            other partitions.
        timeout_s : float
            How long it may take.
        """
        if not partitions:
            return Answers({}, {})
        return self._fetch(OffsetFetch(group_id, frozenset(partitions), require_stable), timeout_s)

    def all_committed(
        self, group_id: str, *, require_stable: bool = False, timeout_s: float = TIMEOUT_S
    ) -> Answers[CommittedOffset]:
        """Return all offsets that a group has committed; none if the group does not exist.

        Parameters
        ----------
        group_id : str
            The group.
        require_stable : bool
            As in :meth:`committed`.
        timeout_s : float
            How long it may take.
        """
        return self._fetch(OffsetFetch(group_id, None, require_stable), timeout_s)

    def _fetch(self, request: OffsetFetch, timeout_s: float) -> Answers[CommittedOffset]:
        group_id = request.group_id

        def ask(deadline: Deadline) -> Answers[CommittedOffset]:
            fetched = self._ask_coordinator(group_id, request, deadline)
            name = error_name(fetched.error)
            if name == "GROUP_ID_NOT_FOUND":
                return Answers({}, {})
            if name != NONE:
                self._refuse_group(name, "", group_id)
            answers: Answers[CommittedOffset] = Answers({}, {})
            wanted = fetched.partitions if request.partitions is None else request.partitions
            for tp in (TopicPartition(*found) for found in wanted):
                answer = fetched.partitions.get(tp)
                name = error_name(answer.error) if answer else "no answer"
                if answer is None or name != NONE:
                    self._errors.raise_if_final(name, f"committed offset of {tp}", group_id=group_id)
                    answers.failed[tp] = name
                    if has(name, Consequence.OTHER_COORDINATOR):
                        self._coordinators.pop(group_id, None)
                elif answer.offset >= 0:
                    # The binding of librdkafka 2.16.1 counts the zero byte that ends a text in C as a part of it.
                    metadata = answer.metadata.rstrip("\0")
                    epoch = (
                        answer.leader_epoch if answer.leader_epoch >= 0 else self._epoch_of_bookmark(metadata, deadline)
                    )
                    answers.found[tp] = CommittedOffset(Offset(answer.offset), epoch, metadata)
            return answers

        return self._at_coordinator(group_id, ask, timeout_s)

    def _epoch_of_bookmark(self, metadata: str, deadline: Deadline) -> int | None:
        """Return the leader epoch that a bookmark has noted; the version of its requests has no field for it."""
        try:
            note = read(metadata)
        except OffsetFormatError:
            return None  # the callers that need the note read it again
        if not isinstance(note, BookmarkNote):
            return None
        if note.cluster_id is not None and self._cluster_id is None:
            self._metadata((), deadline)
        return None if differ(note.cluster_id, self._cluster_id) else note.leader_epoch

    def describe_group(self, group_id: str, *, timeout_s: float = TIMEOUT_S) -> GroupDescription:
        """Return a group and its members.  A group that does not exist is Dead and empty."""
        found, protocol = self._described(group_id, timeout_s, operations=False)
        return _description(found, protocol)

    def group_ids(self, *, timeout_s: float = TIMEOUT_S) -> list[str]:
        """Return the ids of all groups of consumers that the user may describe, sorted."""
        deadline = Deadline.after(timeout_s)
        found: set[str] = set()
        for broker in self._metadata((), deadline).brokers.values():
            with self._errors.translated(f"the broker {broker}"):
                error, groups = self._connections.ask(broker, ListGroups(), deadline)
            if error_name(error) != NONE:
                self._errors.refuse(error_name(error), f"the groups of {broker}")
            found |= {group.group_id for group in groups if group.is_of_consumers}
        return sorted(found)

    def describe_fully(self, group_id: str, *, timeout_s: float = TIMEOUT_S) -> tuple[DescribedGroup, GroupProtocol]:
        """Return a group with all details from its coordinator, and the user's rights on it."""
        return self._described(group_id, timeout_s, operations=True)

    def coordinator(self, group_id: str, *, timeout_s: float = TIMEOUT_S) -> GroupCoordinator:
        """Return the broker that coordinates a group, which need not exist."""
        deadline = Deadline.after(timeout_s)
        address = self._at_coordinator(group_id, lambda _: self._coordinator(group_id, deadline), timeout_s)
        brokers = self._metadata((), deadline).brokers
        return GroupCoordinator(next((node for node, at in brokers.items() if at == address), None), address)

    def has_consumer_protocol(self, group_id: str, *, timeout_s: float = TIMEOUT_S) -> bool:
        """Return whether the coordinator of a group supports members of KIP-848.

        Kafka 3.7 to 3.9 list these requests, but refuse them unless KIP-848 is switched on.  librdkafka then retries
        for ever and reports nothing (seen with Kafka 3.9.1 and librdkafka 2.16.1).
        """

        def ask(deadline: Deadline) -> bool:
            offered = self._connections.to(self._coordinator(group_id, deadline), deadline).offered
            if CONSUMER_GROUP_HEARTBEAT not in offered:
                return False
            try:
                described = self._ask_coordinator(group_id, ConsumerGroupDescribe(group_id), deadline)
            except UnsupportedVersionError:
                return True  # there is no way to ask
            return error_name(described.error) != "UNSUPPORTED_VERSION"

        return self._at_coordinator(group_id, ask, timeout_s)

    def _described(self, group_id: str, timeout_s: float, *, operations: bool) -> tuple[DescribedGroup, GroupProtocol]:
        def ask(deadline: Deadline) -> tuple[DescribedGroup, GroupProtocol]:
            self._coordinator(
                group_id, deadline
            )  # first: a broker too old for that must not count as one without KIP-848
            # Deliberate: KIP-848 first and last.  A group may be upgraded between the first two questions, and would
            # then seem not to exist.
            message: str | None = None
            for modern in (True, False, True):
                kind = ConsumerGroupDescribe if modern else DescribeGroups
                try:
                    described = self._ask_coordinator(group_id, kind(group_id, operations), deadline)
                except UnsupportedVersionError:
                    continue
                message = described.message
                name = error_name(described.error)
                if name == "GROUP_ID_NOT_FOUND" or (modern and name == "UNSUPPORTED_VERSION"):
                    continue
                if name != NONE:
                    self._refuse_group(name, described.message, group_id)
                if described.state != DEAD:
                    return described, GroupProtocol.CONSUMER if modern else GroupProtocol.CLASSIC
            if message is None:  # librdkafka's mock cluster
                raise TryAgainError(f"group {group_id!r}: the brokers cannot describe groups")
            return DescribedGroup(0, message, DEAD, None, ()), GroupProtocol.CLASSIC

        return self._at_coordinator(group_id, ask, timeout_s)

    def commit(
        self,
        group_id: str,
        member_id: str,
        generation: int,
        instance_id: str | None,
        offsets: Mapping[TopicPartition, tuple[Offset, int | None, str]],
        *,
        lasting: bool = False,
        timeout_s: float = TIMEOUT_S,
    ) -> dict[TopicPartition, str]:
        """Commit offsets; nothing is sent twice.

        Parameters
        ----------
        group_id : str
            The group.
        member_id : str
            The member that commits.  Empty for a client that is no member; only a group without members accepts it.
        generation : int
            The generation, or the member epoch (KIP-848).  It is -1 for a client that is no member.
        instance_id : str or None
            The ``group.instance.id`` of a static member.
        offsets : mapping
            The offset of each partition.  The leader epoch is that of the record before it, or None.  The text is its
            metadata.
        lasting : bool
            Whether the offsets never expire.  Then nothing is kept of leader epochs.
        timeout_s : float
            How long it may take.

        Returns
        -------
        dict
            Kafka's name of the error for each partition that was not committed, as ILLEGAL_GENERATION,
            UNKNOWN_MEMBER_ID, STALE_MEMBER_EPOCH, REBALANCE_IN_PROGRESS; empty if all were.

        Raises
        ------
        TryAgainError
            If nothing was committed, except for earlier requests, of 1000 partitions each.
        CommitUnclearError
            If some of it may have been committed.
        KafkaGroupError
            If no retry cures the error of a partition.  Other partitions may have been committed.
        """
        deadline = Deadline.after(timeout_s)
        refused: dict[TopicPartition, str] = {}
        for piece in commit_requests([*offsets.items()]):
            wanted = {
                tp: OffsetToCommit(offset, -1 if epoch is None else epoch, metadata)
                for tp, (offset, epoch, metadata) in piece
            }
            kind = LastingOffsetCommit if lasting else OffsetCommit
            request = kind(group_id, member_id, generation, instance_id, wanted)
            refused |= self._commit(request, deadline)
        return refused

    def _commit(self, request: OffsetCommit, deadline: Deadline) -> dict[TopicPartition, str]:
        group_id = request.group_id
        with self._errors.translated(f"group {group_id!r}"):
            address = self._coordinator(group_id, deadline)
            try:
                self._connections.to(address, deadline)
            except (OSError, ProtocolError):
                self._coordinators.pop(group_id, None)
                raise
            try:
                answer = self._connections.ask(address, request, deadline)
            except UnsupportedVersionError:
                raise  # nothing was sent
            except (OSError, ProtocolError) as problem:
                self._coordinators.pop(group_id, None)
                text = self._errors.text(f"group {group_id!r}: a commit was not answered", problem)
                raise CommitUnclearError(text) from None
        names = {tp: error_name(answer[tp]) if tp in answer else "REQUEST_TIMED_OUT" for tp in request.offsets}
        for tp, name in names.items():
            self._errors.raise_if_final(name, f"group {group_id!r}, offset of {tp}", group_id=group_id)
        if any(has(name, Consequence.OTHER_COORDINATOR) for name in names.values()):
            self._coordinators.pop(group_id, None)
        for name in names.values():
            if has(name, Consequence.NOT_TRIED):
                raise TryAgainError(f"group {group_id!r}: {name}")
            if has(name, Consequence.UNCLEAR):
                raise CommitUnclearError(f"group {group_id!r}: a commit was answered with {name}")
        return {tp: name for tp, name in names.items() if name != NONE}

    # -- coordinators

    def _at_coordinator(self, group_id: str, ask: Callable[[Deadline], T], timeout_s: float) -> T:
        """Ask the coordinator; ask again once if a remembered coordinator has moved."""
        deadline = Deadline.after(timeout_s)
        known = group_id in self._coordinators
        with self._errors.translated(f"group {group_id!r}"):
            try:
                return ask(deadline)
            except RefusedCredentialsError:
                raise  # a second attempt may lock the account
            except (TryAgainError, OSError, ProtocolError):
                if not known or group_id in self._coordinators or deadline.passed:
                    raise
            return ask(deadline)

    def _ask_coordinator(self, group_id: str, request: Request[T], deadline: Deadline) -> T:
        address = self._coordinator(group_id, deadline)
        try:
            return self._connections.ask(address, request, deadline)
        except UnsupportedVersionError:
            raise
        except (OSError, ProtocolError):
            self._coordinators.pop(group_id, None)
            raise

    def _coordinator(self, group_id: str, deadline: Deadline) -> Address:
        known = self._coordinators.get(group_id)
        if known is not None and not known[1].passed:
            return known[0]
        found = self._connections.ask_any(FindCoordinator(group_id), deadline)
        name = error_name(found.error)
        if name != NONE:
            self._errors.refuse(name, f"the coordinator of group {group_id!r}", group_id=group_id)
        self._coordinators[group_id] = found.address, Deadline.after(_COORDINATOR_AGE_S)
        return found.address

    def _refuse_group(self, name: str, message: str, group_id: str) -> NoReturn:
        if has(name, Consequence.OTHER_COORDINATOR):
            self._coordinators.pop(group_id, None)
        what = f"group {group_id!r}: {message}" if message else f"group {group_id!r}"
        self._errors.refuse(name, what, group_id=group_id)


def _description(found: DescribedGroup, protocol: GroupProtocol) -> GroupDescription:
    members = tuple(
        GroupMember(
            member_id=member.member_id,
            instance_id=member.instance_id,
            # Each client chooses its own id, and logs and errors show it.
            client_id=printable(member.client_id),
            host=member.host,
            assignment=member.assignment,
            target=member.target,
            member_epoch=member.member_epoch,
            subscription=member.subscription,
        )
        for member in found.members
    )
    return GroupDescription(
        state=found.state,
        protocol=protocol,
        members=members,
        epoch=found.epoch,
        assignor=found.assignor if protocol is GroupProtocol.CLASSIC else "",
        is_other_kind=found.is_other_kind,
    )


def commit_requests(parts: list[T]) -> list[list[T]]:
    """Cut the offsets of a commit into the parts that one request may carry."""
    return [parts[at : at + _REQUEST_PARTITIONS] for at in range(0, len(parts), _REQUEST_PARTITIONS)]
