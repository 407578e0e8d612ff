"""A fake group and fake logs that the test controls, in place of a membership and a watch."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from types import SimpleNamespace

from pyspark_kafka_group.coordinator.handover.inputs import LogChange, PlannedRange
from pyspark_kafka_group.coordinator.handover.state import Batch, Partition, State
from pyspark_kafka_group.coordinator.handover.transitions import Phase
from pyspark_kafka_group.offsets.batch_offset import BatchOffset
from pyspark_kafka_group.offsets.start_inputs import StartingOffset, StartPolicy
from pyspark_kafka_group.offsets.types import Offset, OwnershipEpoch, TopicPartition
from pyspark_kafka_group.query.log_watch import Changes

A, B = TopicPartition("orders", 0), TopicPartition("orders", 1)
END = BatchOffset("q")
POLICY = StartPolicy(group_id="etl", default=StartingOffset.EARLIEST, explicit={}, fail_on_data_loss=True)


class FakeGroup:
    """A membership whose state the test sets.  Time passes only where the query waits."""

    def __init__(self, now: SimpleNamespace) -> None:
        self.now = now
        self.client_id = "etl-1"
        self.state = State(policy=POLICY, query_id="q")
        self.settled = True
        self.has_topics = True
        self.under_kip_848 = False
        self.partitions_at_start = [A, B]
        self.answers = True
        self.assigned_later: list[dict[TopicPartition, int]] = []
        self.assigned_while_asked: dict[TopicPartition, int] | None = None
        self.assigned_while_committing: dict[TopicPartition, int] | None = None
        self.assigned_while_planning: dict[TopicPartition, int] | None = None
        self.asked_settled: list[set[TopicPartition]] = []
        self.planned: list[dict[TopicPartition, str]] = []
        self.changed: list[tuple[set[TopicPartition], LogChange]] = []
        self.reported: list[dict[TopicPartition, str]] = []
        self.held_back: dict[TopicPartition, str] = {}

    def own(self, positions: Mapping[TopicPartition, int]) -> None:
        owned = {
            tp: Partition(Phase.ACTIVE, OwnershipEpoch(1), Offset(at), finished=Offset(at), committed=Offset(at))
            for tp, at in positions.items()
        }
        self.state = replace(self.state, owned=owned, last_epoch=OwnershipEpoch(self.state.last_epoch + 1))

    def wait_for_assignment(self, timeout_s: float) -> bool:
        if not self.answers:
            self.now.s += timeout_s
        return self.answers

    def wait_until(self, condition: Callable[[State], bool], timeout_s: float) -> bool:
        if condition(self.state):
            return True
        self.now.s += timeout_s
        if self.state.uncommitted and self.assigned_while_committing is not None:
            self.own(self.assigned_while_committing)
            if not self.assigned_while_committing:  # a member that only loses partitions gets no new epoch
                self.state = replace(self.state, last_epoch=OwnershipEpoch(self.state.last_epoch - 1))
            return condition(self.state)
        if self.assigned_later:
            self.own(self.assigned_later.pop(0))
        return condition(self.state)

    def is_stable(self, owned: Collection[TopicPartition], partitions: Collection[TopicPartition]) -> bool:
        """Answer as the group does: for the partitions that this member owns when the answer arrives."""
        self.asked_settled.append(set(partitions))
        if self.assigned_while_asked is not None:
            self.own(self.assigned_while_asked)
            self.assigned_while_asked = None
        return self.settled and not self.assigned_later and set(owned) == self.state.owned.keys()

    def plan(self, ranges: Mapping[TopicPartition, PlannedRange], *, always: bool) -> BatchOffset | None:
        if self.assigned_while_planning is not None:
            self.own(self.assigned_while_planning)
            self.assigned_while_planning = None
            return None
        self.planned.append({tp: str(planned.range) for tp, planned in ranges.items()})
        self.state = replace(self.state, batch=Batch(end=END, running={}, epochs={}))
        return END

    def report_logs(
        self, changed: Mapping[LogChange, Collection[TopicPartition]], reasons: Mapping[TopicPartition, str]
    ) -> None:
        """Decide at once: start new logs at their beginning, and remove deleted ones from the state."""
        self.reported.append({**reasons})
        for change, partitions in changed.items():
            self.changed.append((set(partitions), change))
            kept = {tp: p.position or 0 for tp, p in self.state.owned.items() if tp not in partitions}
            self.own(kept if change is LogChange.DELETED else kept | dict.fromkeys(partitions, 0))


class FakeWatch:
    """Logs with ends that the test sets.  Reports each change once."""

    def __init__(self) -> None:
        self.ends: dict[TopicPartition, Offset] = {}
        self.version = 1
        self.inspected = 0
        self.changes: list[Changes] = []
        self.leader_epochs: dict[TopicPartition, int] = {}
        self.known_ends: Mapping[TopicPartition, Offset] = {}

    def list_ends(self, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, Offset]:
        self.known_ends = {tp: end for tp, end in self.ends.items() if tp in partitions}
        return {tp: end for tp, end in self.ends.items() if tp in partitions}

    only_with_news = True

    def check(self, plannable: Collection[TopicPartition], *, news: bool) -> Changes:
        assert news or not self.only_with_news, "the end of a run is as final as a batch"
        self.inspected += 1
        changes = self.changes.pop(0) if self.changes else Changes()
        silent = {tp: "it has no leader" for tp in plannable if tp not in self.ends}
        return replace(changes, reasons=silent | dict.fromkeys(changes.unsure, ""))

    def close(self) -> None: ...
