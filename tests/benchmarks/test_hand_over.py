from benchmarks.hand_over import Move, moves


def event(time: float, member: str, name: str, **fields: object) -> dict[str, object]:
    return {"time": time, "member": member, "event": name, **fields}


def test_a_partition_stands_still_from_its_revocation_until_the_new_owner_has_started() -> None:
    events = [
        event(1.0, "a-1", "started", positions={"t-0": 0, "t-1": 0}),
        event(5.0, "a-1", "draining", partitions=["t-0"]),
        event(5.2, "a-1", "released", partitions=["t-0"]),
        event(5.5, "b-1", "started", positions={"t-0": 7}),
    ]

    assert moves(reversed(events), {}) == [Move(5.0, 5.5)]


def test_a_partition_that_comes_back_to_its_owner_has_not_moved() -> None:
    events = [
        event(1.0, "a-1", "started", positions={"t-0": 0}),
        event(2.0, "a-1", "lost", partitions=["t-0"]),
        event(3.0, "a-1", "started", positions={"t-0": 0}),
        event(4.0, "a-1", "released", partitions=["t-0"]),
        event(6.0, "b-1", "started", positions={"t-0": 0}),
    ]

    assert moves(events, {}) == [Move(4.0, 6.0)]


def test_the_partitions_of_a_killed_member_stand_still_from_the_kill() -> None:
    events = [
        event(1.0, "a-1", "started", positions={"t-0": 0}),
        event(1.0, "aa-1", "started", positions={"t-1": 0}),
        event(9.0, "b-1", "started", positions={"t-0": 3, "t-1": 0}),
    ]

    assert moves(events, {"a": 2.0}) == [Move(2.0, 9.0)]
