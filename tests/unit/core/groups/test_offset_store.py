"""What offset records and markers come to."""

from __future__ import annotations

from ottla.core.groups.offset_store import OffsetStore
from ottla.core.groups.records import OffsetRecord
from tests.measured import kept_bytes, least
from tests.unit.core.groups.offset_coordinator import TOPIC_ID


def write(store: OffsetStore, offset: int, producer_id: int = -1, partition: int = 0, topic: str = "t") -> None:
    store.replay(OffsetRecord("g", topic, partition, offset, topic_id=TOPIC_ID), producer_id)


def offset_of(store: OffsetStore, partition: int = 0) -> int | None:
    found = store.get("g", "t", partition)
    return None if found is None else found.offset


def test_the_last_offset_counts_and_a_tombstone_ends_it() -> None:
    store = OffsetStore()
    write(store, 5)
    write(store, 3)
    assert offset_of(store) == 3
    assert store.count == 1
    write(store, -1)
    assert offset_of(store) is None
    assert store.count == 0
    assert not store.has_any("g")
    assert store.topics("g") == {}


def test_a_transaction_takes_effect_as_a_whole() -> None:
    store = OffsetStore()
    write(store, 5, 9, partition=0)
    write(store, 6, 9, partition=1)
    assert [offset_of(store, index) for index in range(2)] == [None, None]
    assert store.has("g", "t", 0)
    assert 0 in store.unstable("g")["t"]
    store.replay_marker(9, committed=True)
    assert [offset_of(store, index) for index in range(2)] == [5, 6]
    assert store.count == 2
    assert not store.unstable("g")
    store.replay_marker(9, committed=True)


def test_an_aborted_transaction_leaves_nothing() -> None:
    store = OffsetStore()
    write(store, 5, 9)
    store.replay_marker(9, committed=False)
    assert not store.has_any("g")
    store.replay_marker(9, committed=True)
    assert not store.has_any("g")


def test_a_later_commit_wins_over_a_transaction_that_ends_after_it() -> None:
    store = OffsetStore()
    write(store, 5, 9)
    write(store, 20)
    assert 0 in store.unstable("g")["t"]
    store.replay_marker(9, committed=True)
    assert offset_of(store) == 20


def test_a_transaction_that_wrote_later_wins() -> None:
    store = OffsetStore()
    write(store, 20)
    write(store, 5, 9)
    store.replay_marker(9, committed=True)
    assert offset_of(store) == 5


def test_a_transaction_may_write_again_after_it_was_superseded() -> None:
    store = OffsetStore()
    write(store, 5, 9)
    write(store, 20)
    write(store, 30, 9)
    store.replay_marker(9, committed=True)
    assert offset_of(store) == 30


def test_of_two_transactions_the_one_that_wrote_later_wins_in_any_order_of_ends() -> None:
    for first, second in ((1, 2), (2, 1)):
        store = OffsetStore()
        write(store, 10, 1)
        write(store, 20, 2)
        store.replay_marker(first, committed=True)
        store.replay_marker(second, committed=True)
        assert offset_of(store) == 20


def test_a_superseded_offset_stays_so_when_the_later_transaction_aborts_only_then() -> None:
    store = OffsetStore()
    write(store, 10, 1)
    write(store, 20, 2)
    store.replay_marker(2, committed=False)
    store.replay_marker(1, committed=True)
    assert offset_of(store) == 10


def test_a_tombstone_forgets_what_transactions_hold() -> None:
    store = OffsetStore()
    write(store, 1)
    write(store, 5, 9)
    write(store, 6, 9, partition=1)
    write(store, -1)
    assert store.partitions("g", "t") == [1]
    store.replay_marker(9, committed=True)
    assert offset_of(store) is None
    assert offset_of(store, 1) == 6


def test_no_offset_in_a_transaction_waits_for_the_marker_too() -> None:
    for committed, expected in ((True, None), (False, 5)):
        store = OffsetStore()
        write(store, 5)
        write(store, -1, 9)
        assert offset_of(store) == 5
        store.replay_marker(9, committed=committed)
        assert offset_of(store) == expected


def test_what_a_group_has() -> None:
    store = OffsetStore()
    write(store, 1, partition=3)
    write(store, 2, 9, partition=4)
    write(store, 2, 9, partition=3)
    write(store, 2, 9, topic="u")
    assert store.has_topic("g", "u")
    assert not store.has_topic("h", "u")
    assert store.partitions("g", "t") == [3, 4]
    assert store.has("g", "u", 0)
    assert not store.has("g", "u", 1)
    assert [list(store.topic_ids("g", "t", index)) for index in (3, 4, 5)] == [[TOPIC_ID], [TOPIC_ID], []]


def test_an_offset_costs_little_memory() -> None:
    records = [
        OffsetRecord(f"g{group}", "t", partition, 10**6, 3, "", 1_700_000_000_000 + partition, -1, TOPIC_ID)
        for group in range(100)
        for partition in range(100)
    ]

    def store_all() -> OffsetStore:
        store = OffsetStore()
        for record in records:
            store.replay(record, -1)
        return store

    assert store_all().count == len(records)
    assert least(lambda: kept_bytes(store_all) / len(records), 130) < 130
