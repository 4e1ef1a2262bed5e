"""The quick way to load offsets ends where the ordinary one does, whatever else is in the log."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import cycle
from types import SimpleNamespace
from typing import Any, cast
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.core.controller.image import MetadataImage
from ottla.core.groups.records import ClassicGroupRecord, GroupRecord, OffsetRecord
from ottla.core.groups.shard import GroupShard
from ottla.log.partition_log import PartitionLog
from ottla.model.configs.resolve import BrokerConfig
from ottla.model.ids import NO_OFFSET, ZERO_UUID
from ottla.runtime import group_codec
from ottla.runtime.coordinator_loading import ShardLoading
from ottla.runtime.offset_loading import OffsetLoading
from ottla.wire.batch import TRANSACTIONAL_BIT
from ottla.wire.batch import iterate as iterate_batches
from ottla.wire.record_entries import Entry
from ottla.wire.records import Record, build_batch
from ottla.wire.transaction_marker import build_marker
from tests.unit.core.groups.offset_coordinator import dump, held

Pair = tuple[bytes | None, bytes | None]

TOPIC_IDS = (UUID(int=7), UUID(int=8))


def new_shard() -> GroupShard:
    config, image = BrokerConfig.from_properties({}), MetadataImage()
    return GroupShard(lambda: config, lambda: image, lambda: UUID(int=1))


class LoadingFromBytes(ShardLoading[GroupRecord]):
    """A load whose log is a piece of memory, read in slices of `slice_bytes` in turn: as many, or one whole batch."""

    def __init__(
        self,
        shard: GroupShard,
        data: bytes,
        end_offset: int,
        quick: OffsetLoading | None,
        *,
        slice_bytes: Sequence[int] = (1 << 20,),
    ) -> None:
        log = cast(PartitionLog, SimpleNamespace(log_start_offset=0, log_end_offset=end_offset, tp="offsets-0"))
        super().__init__(shard, log, group_codec.decode, 1 << 20, None, quick)
        self.data = data
        self._slice_bytes = cycle(slice_bytes)

    def _read(self) -> bytes:
        for position, header in iterate_batches(self.data):
            if header.last_offset >= self.next_offset:
                return self.data[position : position + max(header.size, next(self._slice_bytes))]
        return b""


def batches(steps: Sequence[tuple[Any, ...]]) -> tuple[bytes, int]:
    """The log that the steps make, and where it ends."""
    data, offset = bytearray(), 0
    for kind, *what in steps:
        if kind == "marker":
            batch = build_marker(what[0], 0, 0, committed=what[1], timestamp=1)
            batch[0:8] = offset.to_bytes(8)
            data += batch
            offset += 1
            continue
        records, producer_id = what
        for together in [[record] for record in records] if kind == "lone" else [records]:
            batch = _batch(together, producer_id, offset)
            if kind == "damaged":
                batch[-1] ^= 1
            data += batch
            offset += len(together)
    return bytes(data), offset


def _batch(records: Sequence[GroupRecord | Pair], producer_id: int, offset: int) -> bytearray:
    """Pairs are written as they are."""
    pairs: list[Pair] = [
        cast(Pair, record) if type(record) is tuple else group_codec.encode(cast(GroupRecord, record))
        for record in records
    ]
    written = [Record(offset + number, 1, key, value) for number, (key, value) in enumerate(pairs)]
    attributes = TRANSACTIONAL_BIT if producer_id >= 0 else 0
    return build_batch(
        written, base_offset=offset, producer_id=producer_id, producer_epoch=0, base_sequence=0, attributes=attributes
    )


def offset_record(group: str, topic: str, partition: int, offset: int, kind: str, topic_id: UUID) -> OffsetRecord:
    if kind == "tombstone":
        return OffsetRecord(group, topic, partition, NO_OFFSET)
    metadata = "note" if kind == "metadata" else ""
    expires = 99 if kind == "expires" else -1
    chosen = ZERO_UUID if kind in ("no id", "expires") else topic_id
    return OffsetRecord(group, topic, partition, offset, 3, metadata, 1_000 + offset, expires, chosen)


offset_records = st.builds(
    offset_record,
    st.sampled_from("ab"),
    st.sampled_from(["t", "u"]),
    st.integers(0, 2),
    st.integers(0, 1 << 40),
    st.sampled_from(["plain"] * 6 + ["tombstone", "metadata", "expires", "no id"]),
    st.sampled_from(TOPIC_IDS),
)
plain_records = st.builds(
    offset_record,
    st.sampled_from("ab"),
    st.sampled_from(["t", "u"]),
    st.integers(0, 2),
    st.integers(0, 1 << 40),
    st.just("plain"),
    st.sampled_from(TOPIC_IDS),
)
group_ends = st.builds(lambda group: ClassicGroupRecord(group_id=group, gone=True), st.sampled_from("ab"))


def odd_pair(record: OffsetRecord, in_key: bool, at: int, byte: int) -> Pair:
    """An offset of which one byte is another one, or the key or the value is missing."""
    parts = list(group_codec.encode(record))
    part = parts[0 if in_key else 1]
    if part is None or byte == 0:
        parts[0 if in_key else 1] = None
    else:
        changed = bytearray(part)
        changed[at % len(part)] ^= byte
        parts[0 if in_key else 1] = bytes(changed)
    return parts[0], parts[1]


odd_pairs = st.builds(odd_pair, offset_records, st.booleans(), st.integers(0, 60), st.integers(0, 255))
anything = st.one_of(offset_records, offset_records, offset_records, group_ends, odd_pairs)
runs = st.lists(anything, min_size=1, max_size=12)
plain_runs = st.lists(plain_records, min_size=1, max_size=30)
steps = st.one_of(
    st.tuples(st.just("records"), st.one_of(runs, plain_runs), st.just(-1)),
    st.tuples(st.just("lone"), st.one_of(runs, plain_runs), st.just(-1)),
    st.tuples(st.just("damaged"), runs, st.just(-1)),
    st.tuples(st.just("records"), st.lists(anything, min_size=1, max_size=3), st.sampled_from([5, 6])),
    st.tuples(st.just("marker"), st.sampled_from([5, 6]), st.booleans()),
)


def state_of(shard: GroupShard) -> tuple[Any, ...]:
    store = shard.state.offsets
    return dump(store), held(store), store.count, sorted(shard.state.groups)


@settings(max_examples=400, deadline=None)
@given(st.lists(steps, max_size=8), st.lists(st.integers(1, 5000), min_size=1, max_size=3))
def test_the_quick_way_ends_where_the_ordinary_one_does(taken: list[tuple[Any, ...]], slice_bytes: list[int]) -> None:
    """The ordinary one is that every record is decoded and replayed in its turn."""
    data, end_offset = batches(taken)
    plain, quick = new_shard(), new_shard()
    passed_over = []
    for shard, way in ((plain, None), (quick, OffsetLoading(quick))):
        loading = LoadingFromBytes(shard, data, end_offset, way, slice_bytes=slice_bytes)
        while not loading.is_over:
            loading.replay_slice()
        passed_over.append((loading.records, loading.skipped, loading.faults))
    assert state_of(quick) == state_of(plain)
    assert passed_over[0] == passed_over[1]
    assert quick.state.offsets.count == len(dump(quick.state.offsets))


commits = st.lists(
    st.tuples(st.sampled_from([1, 1, 1, 2, 20]), st.sampled_from([0, 0, 0, 0, 4, 3]), st.sampled_from([0] * 8 + [1])),
    min_size=1,
    max_size=25,
)


@settings(max_examples=200, deadline=None)
@given(commits, st.lists(st.integers(1, 3000), min_size=1, max_size=5), st.booleans())
def test_a_log_in_slices_is_the_log(
    taken: list[tuple[int, int, int]], slice_bytes: list[int], has_markers: bool
) -> None:
    """Commits of one offset each and of several, compressed or not, some damaged: read in any slices they come to what
    they come to when every record is replayed in its turn."""
    data, offset, damaged = bytearray(), 0, 0
    for number, (count, codec, fate) in enumerate(taken):
        group, base_offset = "ab"[number % 2], offset
        records = [
            Record(base_offset + delta, 1, *group_codec.encode(offset_record(
                group, "t" * (number % 3 + 1), (number + delta) % 3, number, "plain", TOPIC_IDS[0]
            )))
            for delta in range(count)
        ]  # fmt: skip
        batch = build_batch(records, base_offset=base_offset, codec=codec)
        if fate:
            batch[-1] ^= 1
            damaged += 1
        data += batch
        offset += count
        if has_markers and number % 5 == 4:
            marker = build_marker(7, 0, 0, committed=True, timestamp=1)
            marker[0:8] = offset.to_bytes(8)
            data += marker
            offset += 1
    plain, quick = new_shard(), new_shard()
    whole = LoadingFromBytes(plain, bytes(data), offset, None)
    sliced = LoadingFromBytes(quick, bytes(data), offset, OffsetLoading(quick), slice_bytes=slice_bytes)
    for loading in (whole, sliced):
        while not loading.is_over:
            before = loading.next_offset
            loading.replay_slice()
            assert loading.next_offset > before
        assert (loading.skipped, loading.faults, loading.next_offset) == (damaged, 0, offset)
    assert sliced.records == whole.records
    assert dump(quick.state.offsets) == dump(plain.state.offsets)


def test_a_tombstone_between_offsets_leaves_no_offset_in_a_place_that_is_gone() -> None:
    def put(partition: int, offset: int) -> OffsetRecord:
        return offset_record("a", "t", partition, offset, "plain", TOPIC_IDS[0])

    shard = new_shard()
    way = OffsetLoading(shard)
    end = ClassicGroupRecord(group_id="other", gone=True)
    data, end_offset = batches(
        [
            ("records", [put(0, 1), put(1, 2), end], -1),
            ("records", [OffsetRecord("a", "t", 0, NO_OFFSET), OffsetRecord("a", "t", 1, NO_OFFSET), end], -1),
            ("records", [put(0, 5)], -1),
        ]
    )
    LoadingFromBytes(shard, data, end_offset, way).replay_slice()
    committed = shard.state.offsets.get("a", "t", 0)
    assert committed is not None
    assert committed.offset == 5
    assert shard.state.offsets.count == 1


def test_an_offset_makes_its_group_anew_after_a_tombstone_of_another() -> None:
    shard = new_shard()
    records = [
        offset_record("a", "t", 0, 1, "plain", TOPIC_IDS[0]),
        ClassicGroupRecord(group_id="a", gone=True),
        OffsetRecord("a", "t", 1, NO_OFFSET),
        offset_record("a", "t", 0, 2, "plain", TOPIC_IDS[0]),
    ]
    data, end_offset = batches([("records", records, -1)])
    LoadingFromBytes(shard, data, end_offset, OffsetLoading(shard)).replay_slice()
    assert list(shard.state.groups) == ["a"]


def plain_pair(partition: int, offset: int, group: str = "a") -> Pair:
    return group_codec.encode(offset_record(group, "t", partition, offset, "plain", TOPIC_IDS[0]))


def entry(pair: Pair) -> Entry:
    """As a reader gives it."""
    key, value = pair
    if key is None or len(key) < 4:
        return key, None, value
    return key[:-4], int.from_bytes(key[-4:], signed=True), value


def test_a_plain_offset_is_kept_as_it_is() -> None:
    shard = new_shard()
    pairs = [plain_pair(partition, partition + 5) for partition in range(20)]
    assert OffsetLoading(shard).replay([entry(pair) for pair in pairs], 0) == 20
    places = shard.state.offsets.topics("a")["t"]
    assert [places[partition] for partition in range(1, 20)] == [value for _, value in pairs[1:]]
    assert shard.state.offsets.get("a", "t", 7) == (12, 3, "", 1_012, -1, TOPIC_IDS[0])
    assert shard.state.offsets.count == 20


def test_what_is_no_offset_is_left_to_the_ordinary_way() -> None:
    key, value = plain_pair(0, 1)
    assert key is not None
    assert value is not None
    for damaged in [
        (key[:3], value),
        (key[:5], value),
        (key, b"\xff" * len(value)),
        (b"\x00\x01\x00\x09", value),
        (None, value),
    ]:
        for before in (0, 3, 20):
            shard = new_shard()
            pairs = [plain_pair(number, 1) for number in range(before)] + [damaged, plain_pair(0, 9)]
            entries, way = [entry(pair) for pair in pairs], OffsetLoading(shard)
            assert way.replay(entries, 0) == before
            assert way.replay(entries, before + 1) == before + 2
            assert shard.state.offsets.count == max(before, 1)


def test_a_record_on_which_the_shard_fails_costs_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    shard = new_shard()
    replay = GroupShard.replay

    def fail_at_b(self: GroupShard, record: GroupRecord, producer_id: int) -> None:
        if isinstance(record, OffsetRecord) and record.group_id == "b":
            raise KeyError("b")
        replay(self, record, producer_id)

    monkeypatch.setattr(GroupShard, "replay", fail_at_b)
    pairs = [plain_pair(number % 3, number, "b" if number in (4, 15) else "a") for number in range(20)]
    data = bytes(_batch(pairs, -1, 0))
    loading = LoadingFromBytes(shard, data, 20, OffsetLoading(shard))
    loading.replay_slice()
    assert (loading.records, loading.skipped, loading.faults) == (20, 0, 2)
    assert [offset.offset for offset in dump(shard.state.offsets).values()] == [18, 19, 17]
    assert shard.state.offsets.count == 3


def test_a_full_memory_of_places_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ottla.runtime.offset_loading.PLACES_MAX", 1)
    shard = new_shard()
    pairs = [plain_pair(number % 3, number, "ab"[number % 2]) for number in range(30)]
    assert OffsetLoading(shard).replay([entry(pair) for pair in pairs], 0) == 30
    found = {place: offset.offset for place, offset in dump(shard.state.offsets).items()}
    assert found == {("ab"[number % 2], "t", number % 3): number for number in range(24, 30)}
    assert shard.state.offsets.count == 6
