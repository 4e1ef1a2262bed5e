"""The quick way to load offsets ends where the ordinary one does, whatever else is in the log."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import cycle
from types import SimpleNamespace
from typing import Any, cast
from uuid import UUID

from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.core.controller.image import MetadataImage
from ottla.core.groups.records import ClassicGroupRecord, GroupRecord, OffsetRecord
from ottla.core.groups.shard import GroupShard
from ottla.log.partition_log import PartitionLog
from ottla.model.configs.resolve import BrokerConfig
from ottla.model.ids import NO_OFFSET, ZERO_UUID
from ottla.runtime import group_codec
from ottla.runtime.coordinator_kinds import OFFSET_KEY
from ottla.runtime.coordinator_loading import ShardLoading
from ottla.runtime.offset_loading import OffsetLoading
from ottla.wire.batch import TRANSACTIONAL_BIT
from ottla.wire.batch import iterate as iterate_batches
from ottla.wire.records import Record, build_batch
from ottla.wire.transaction_marker import build_marker

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
        replaceable: bytes | None = OFFSET_KEY,
    ) -> None:
        log = cast(PartitionLog, SimpleNamespace(log_start_offset=0, log_end_offset=end_offset, tp="offsets-0"))
        super().__init__(shard, log, group_codec.decode, 1 << 20, replaceable, quick)
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
        records = [Record(offset + number, 1, *group_codec.encode(record), ()) for number, record in enumerate(what[0])]
        producer_id = what[1]
        attributes = TRANSACTIONAL_BIT if producer_id >= 0 else 0
        data += build_batch(records, producer_id=producer_id, producer_epoch=0, base_sequence=0, attributes=attributes)
        offset += len(records)
    return bytes(data), offset


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
group_ends = st.builds(lambda group: ClassicGroupRecord(group_id=group, gone=True), st.sampled_from("ab"))
runs = st.lists(st.one_of(offset_records, offset_records, offset_records, group_ends), min_size=1, max_size=12)
steps = st.one_of(
    st.tuples(st.just("records"), runs, st.just(-1)),
    st.tuples(st.just("records"), st.lists(offset_records, min_size=1, max_size=3), st.sampled_from([5, 6])),
    st.tuples(st.just("marker"), st.sampled_from([5, 6]), st.booleans()),
)


def state_of(shard: GroupShard) -> tuple[Any, ...]:
    store = shard.state.offsets
    places = [(group, topic, partition) for group in "ab" for topic in "tu" for partition in range(3)]
    found = {place: store.get(*place) for place in places}
    held = [place for place in places if place[2] in store.unstable(place[0]).get(place[1], ())]
    return found, held, store.count, sorted(shard.state.groups)


@settings(max_examples=300, deadline=None)
@given(st.lists(steps, max_size=8))
def test_the_quick_way_ends_where_the_ordinary_one_does(taken: list[tuple[Any, ...]]) -> None:
    data, end_offset = batches(taken)
    plain, quick = new_shard(), new_shard()
    for shard, way in ((plain, None), (quick, OffsetLoading(quick))):
        loading = LoadingFromBytes(shard, data, end_offset, way)
        while not loading.is_over:
            loading.replay_slice()
        assert loading.skipped == loading.faults == 0
    assert state_of(quick) == state_of(plain)


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
    whole = LoadingFromBytes(plain, bytes(data), offset, None, replaceable=None)
    sliced = LoadingFromBytes(quick, bytes(data), offset, OffsetLoading(quick), slice_bytes=slice_bytes)
    for loading in (whole, sliced):
        while not loading.is_over:
            before = loading.next_offset
            loading.replay_slice()
            assert loading.next_offset > before
        assert (loading.skipped, loading.faults, loading.next_offset) == (damaged, 0, offset)
    assert sliced.records == whole.records
    assert all_offsets(quick) == all_offsets(plain)


def all_offsets(shard: GroupShard) -> dict[Any, Any]:
    store = shard.state.offsets
    return {
        (group, topic, partition): store.packed.unpack(packed)
        for group in shard.state.groups
        for topic, partitions in store.topics(group).items()
        for partition, packed in partitions.items()
    }


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


def test_damaged_offsets_are_left_to_the_ordinary_way() -> None:
    shard = new_shard()
    key, value = group_codec.encode(offset_record("a", "t", 0, 1, "plain", TOPIC_IDS[0]))
    assert value is not None
    damaged = [(key[:5], value), (key, b"\xff" * len(value)), (b"\x00\x01\x00\x09", value), (None, value)]
    assert OffsetLoading(shard).replay(damaged) == damaged
    assert shard.state.offsets.count == 0
