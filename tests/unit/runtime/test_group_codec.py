"""What is written into `__consumer_offsets` is what Kafka writes, comes back as it was, and damage harms nobody."""

from __future__ import annotations

from typing import Any, get_args
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.core.groups import records as core
from ottla.core.groups.records import GroupRecord, OffsetRecord
from ottla.model.errors import ApiError, ErrorCode
from ottla.runtime.coordinator_log import encode_first
from ottla.runtime.group_codec import decode, encode, encode_alone

TOPIC = UUID("01020304-0506-0708-090a-0b0c0d0e0f10")
NOW = 1_700_000_000_000

MEMBER = core.ClassicMemberRecord("a-1", "i", "a", "/127.0.0.1", 300_000, 45_000, b"\1\2", b"\3")
CONSUMER = core.ConsumerMemberRecord(
    group_id="g1",
    member_id="m1",
    instance_id="i",
    client_id="a",
    client_host="/h",
    subscribed_topic_names=("orders",),
    subscribed_topic_regex="o.*",
    rebalance_timeout_ms=300_000,
    server_assignor="uniform",
)
WITH_CLASSIC = core.ConsumerMemberRecord(
    group_id="g1",
    member_id="m1",
    instance_id="i",
    client_id="a",
    client_host="/h",
    subscribed_topic_names=("orders",),
    subscribed_topic_regex="o.*",
    rebalance_timeout_ms=300_000,
    server_assignor="uniform",
    classic=core.ClassicMemberMetadata(45_000, (core.ClassicProtocol("range", b"\1\2"),)),
)
WRITTEN_BY_KAFKA: list[tuple[GroupRecord, str, str]] = [
    (
        OffsetRecord("g1", "orders", 3, 42, 7, "m", NOW),
        "0001 0002 6731 0006 6f7264657273 00000003",
        "0004 000000000000002a 00000007 02 6d 0000018bcfe56800 00",
    ),
    (
        core.ClassicGroupRecord(
            group_id="g1",
            protocol_type="consumer",
            generation=5,
            protocol="range",
            leader="a-1",
            current_state_timestamp=NOW,
            members=(MEMBER,),
        ),
        "0002 0002 6731",
        "0003 0008 636f6e73756d6572 00000005 0005 72616e6765 0003 612d31 0000018bcfe56800 00000001 0003 612d31"
        "0001 69 0001 61 000a 2f3132372e302e302e31 000493e0 0000afc8 00000002 0102 00000001 03",
    ),
    (
        core.ClassicGroupRecord(group_id="g1", protocol_type="consumer", generation=6, current_state_timestamp=NOW),
        "0002 0002 6731",
        "0003 0008 636f6e73756d6572 00000006 ffff ffff 0000018bcfe56800 00000000",
    ),
    (
        core.ConsumerGroupRecord(group_id="g1", epoch=9, metadata_hash=-5),
        "0003 0002 6731",
        "0000 00000009 01 00 08 fffffffffffffffb",
    ),
    (
        CONSUMER,
        "0005 0002 6731 0002 6d31",
        "0000 02 69 00 02 61 03 2f68 02 07 6f7264657273 04 6f2e2a 000493e0 08 756e69666f726d 00",
    ),
    (
        WITH_CLASSIC,
        "0005 0002 6731 0002 6d31",
        "0000 02 69 00 02 61 03 2f68 02 07 6f7264657273 04 6f2e2a 000493e0 08 756e69666f726d"
        "01 00 11 01 0000afc8 02 06 72616e6765 03 0102 00 00",
    ),
    (
        core.TargetAssignmentRecord(group_id="g1", assignment_epoch=9, assignment_timestamp=NOW),
        "0006 0002 6731",
        "0000 00000009 01 00 08 0000018bcfe56800",
    ),
    (
        core.TargetMemberRecord(group_id="g1", member_id="m1", partitions=((TOPIC, (0, 1)),)),
        "0007 0002 6731 0002 6d31",
        "0000 02 0102030405060708090a0b0c0d0e0f10 03 00000000 00000001 00 00",
    ),
    (
        core.CurrentMemberRecord(
            group_id="g1",
            member_id="m1",
            member_epoch=9,
            previous_member_epoch=8,
            state=1,
            assigned=((TOPIC, (0,)),),
            pending_revocation=((TOPIC, (1,)),),
        ),
        "0008 0002 6731 0002 6d31",
        "0000 00000009 00000008 01 02 0102030405060708090a0b0c0d0e0f10 02 00000000 00"
        "02 0102030405060708090a0b0c0d0e0f10 02 00000001 00 00",
    ),
    (
        core.RegularExpressionRecord(
            group_id="g1", regular_expression="o.*", topics=("orders",), version=77, timestamp=NOW
        ),
        "0010 0002 6731 0003 6f2e2a",
        "0000 02 07 6f7264657273 000000000000004d 0000018bcfe56800 00",
    ),
]


@pytest.mark.parametrize(("record", "key", "value"), WRITTEN_BY_KAFKA, ids=lambda value: type(value).__name__)
def test_the_bytes_are_those_that_kafka_writes(record: GroupRecord, key: str, value: str) -> None:
    assert encode(record) == (bytes.fromhex(key), bytes.fromhex(value))
    assert decode(bytes.fromhex(key), bytes.fromhex(value)) == record


def test_every_kind_of_record_was_compared() -> None:
    assert {type(record) for record, _, _ in WRITTEN_BY_KAFKA} == set(get_args(GroupRecord))


# What older and newer brokers wrote.


def test_the_epochs_of_partitions_are_passed_over_and_partitions_are_sorted() -> None:
    value = (
        "0000 00000009 00000008 00 02 0102030405060708090a0b0c0d0e0f10 03 00000001 00000000"
        "01 00 09 03 00000009 00000005 01 00"
    )
    record = decode(bytes.fromhex("0008 0002 6731 0002 6d31"), bytes.fromhex(value))
    assert record == core.CurrentMemberRecord(
        group_id="g1", member_id="m1", member_epoch=9, previous_member_epoch=8, assigned=((TOPIC, (0, 1)),)
    )


@pytest.mark.parametrize("kind", ["0000", "0001"])
@pytest.mark.parametrize(
    ("value", "offset"),
    [
        ("0000 000000000000002a 0001 6d 0000018bcfe56800", OffsetRecord("g1", "orders", 3, 42, -1, "m", NOW)),
        (None, OffsetRecord("g1", "orders", 3, -1)),
    ],
)
def test_the_oldest_offsets_are_read(kind: str, value: str | None, offset: OffsetRecord) -> None:
    key = bytes.fromhex(kind + "0002 6731 0006 6f7264657273 00000003")
    assert decode(key, None if value is None else bytes.fromhex(value)) == offset


@pytest.mark.parametrize(
    ("value", "offset"),
    [
        (
            "0001 000000000000002a 0001 6d 0000018bcfe56800 0000018bcfe56801",
            OffsetRecord("g1", "orders", 3, 42, -1, "m", NOW, NOW + 1),
        ),
        ("0002 000000000000002a 0001 6d 0000018bcfe56800", OffsetRecord("g1", "orders", 3, 42, -1, "m", NOW)),
        (
            "0003 000000000000002a 00000007 0001 6d 0000018bcfe56800",
            OffsetRecord("g1", "orders", 3, 42, 7, "m", NOW),
        ),
        (
            "0004 000000000000002a 00000007 02 6d 0000018bcfe56800 01 63 02 0102",
            OffsetRecord("g1", "orders", 3, 42, 7, "m", NOW),
        ),
    ],
    ids=["when to forget it", "no leader epoch", "no tags", "a tag from the future"],
)
def test_offsets_of_every_version_are_read(value: str, offset: OffsetRecord) -> None:
    assert decode(bytes.fromhex("0001 0002 6731 0006 6f7264657273 00000003"), bytes.fromhex(value)) == offset


def test_a_member_without_a_rebalance_timeout_has_that_of_its_session() -> None:
    value = (
        "0000 0008 636f6e73756d6572 00000005 0005 72616e6765 0003 612d31 00000001 0003 612d31"
        "0001 61 000a 2f3132372e302e302e31 0000afc8 00000002 0102 00000001 03"
    )
    group = decode(bytes.fromhex("0002 0002 6731"), bytes.fromhex(value))
    assert isinstance(group, core.ClassicGroupRecord)
    assert group.members == (MEMBER._replace(group_instance_id=None, rebalance_timeout_ms=45_000),)


# Anything goes in and comes back.

int8s = st.integers(-128, 127)
int32s = st.integers(-(1 << 31), (1 << 31) - 1)
int64s = st.integers(-(1 << 63), (1 << 63) - 1)
names = st.text(max_size=20)
optional_names = st.none() | names
blobs = st.binary(max_size=20)
name_lists = st.lists(names, max_size=3).map(tuple)
partitions = st.dictionaries(
    st.uuids(), st.sets(st.integers(0, 1 << 20), max_size=4).map(lambda found: tuple(sorted(found))), max_size=3
).map(lambda topics: tuple(sorted(topics.items())))
classic_members = st.builds(
    core.ClassicMemberRecord,
    names,
    optional_names,
    names,
    names,
    st.integers(0, 1 << 30),
    int32s,
    blobs,
    blobs,
)
classic_metadata = st.builds(
    core.ClassicMemberMetadata,
    int32s,
    st.lists(st.builds(core.ClassicProtocol, names, blobs), max_size=3).map(tuple),
)
group_records: st.SearchStrategy[GroupRecord] = st.one_of(
    st.builds(
        OffsetRecord, names, names, int32s, st.integers(0, 1 << 62), int32s, names, int64s, st.just(-1), st.uuids()
    ),
    st.builds(
        core.ClassicGroupRecord,
        group_id=names,
        protocol_type=names,
        generation=int32s,
        protocol=optional_names,
        leader=optional_names,
        current_state_timestamp=int64s,
        members=st.lists(classic_members, max_size=3).map(tuple),
    ),
    st.builds(core.ConsumerGroupRecord, group_id=names, epoch=int32s, metadata_hash=int64s),
    st.builds(
        core.ConsumerMemberRecord,
        group_id=names,
        member_id=names,
        instance_id=optional_names,
        rack_id=optional_names,
        client_id=names,
        client_host=names,
        subscribed_topic_names=name_lists,
        subscribed_topic_regex=optional_names,
        rebalance_timeout_ms=int32s,
        server_assignor=optional_names,
        classic=st.none() | classic_metadata,
    ),
    st.builds(core.TargetAssignmentRecord, group_id=names, assignment_epoch=int32s, assignment_timestamp=int64s),
    st.builds(core.TargetMemberRecord, group_id=names, member_id=names, partitions=partitions),
    st.builds(
        core.CurrentMemberRecord,
        group_id=names,
        member_id=names,
        member_epoch=int32s,
        previous_member_epoch=int32s,
        state=int8s,
        assigned=partitions,
        pending_revocation=partitions,
    ),
    st.builds(
        core.RegularExpressionRecord,
        group_id=names,
        regular_expression=names,
        topics=name_lists,
        version=int64s,
        timestamp=int64s,
    ),
)


@given(group_records)
def test_a_record_comes_back_as_it_went_in(record: GroupRecord) -> None:
    assert decode(*encode(record)) == record
    assert encode_alone(record) == encode_first(*encode(record))


TOMBSTONES: list[GroupRecord] = [
    OffsetRecord("g1", "orders", 3, -1),
    core.ClassicGroupRecord(group_id="g1", gone=True),
    core.ConsumerGroupRecord(group_id="g1", gone=True),
    core.ConsumerMemberRecord(group_id="g1", member_id="m1", gone=True),
    core.TargetAssignmentRecord(group_id="g1", gone=True),
    core.TargetMemberRecord(group_id="g1", member_id="m1", gone=True),
    core.CurrentMemberRecord(group_id="g1", member_id="m1", gone=True),
    core.RegularExpressionRecord(group_id="g1", regular_expression="o.*", gone=True),
]


@pytest.mark.parametrize("record", TOMBSTONES, ids=lambda record: type(record).__name__)
def test_a_tombstone_has_no_value_and_the_key_of_what_it_buries(record: GroupRecord) -> None:
    key, value = encode(record)
    assert value is None
    assert key in {bytes.fromhex(written) for kept, written, _ in WRITTEN_BY_KAFKA if type(kept) is type(record)}
    assert decode(key, None) == record


# What is no record.


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (b"", None),
        (b"\0", b""),
        (b"\0\1", b"\0\4"),
        (bytes.fromhex("0004 0002 6731"), b"\0\0\1\0"),
        (bytes.fromhex("7fff 0002 6731"), None),
        (bytes.fromhex("ffff 0002 6731"), None),
        (bytes.fromhex("0003 0002 6731 00"), None),
        (bytes.fromhex("0003 0002 6731"), b""),
        (bytes.fromhex("0003 0002 6731"), bytes.fromhex("0001 00000009 00")),
        (bytes.fromhex("0001 0002 6731 0006 6f7264657273 00000003"), bytes.fromhex("0005 00")),
        (bytes.fromhex("0001 0002 6731 0006 6f7264657273 00000003"), b""),
        (bytes.fromhex("0001 0002 ff31 0006 6f7264657273 00000003"), None),
        (bytes.fromhex("0001 ffff 0006 6f7264657273 00000003"), None),
    ],
)
def test_what_nobody_knows_is_no_record(key: bytes, value: bytes | None) -> None:
    assert decode(key, value) is None


@pytest.mark.fuzz
@given(st.sampled_from([*range(10), 16]), st.binary(max_size=60), st.none() | st.binary(max_size=80))
def test_garbage_is_a_record_or_none(kind: int, key: bytes, value: bytes | None) -> None:
    record: Any = decode(kind.to_bytes(2, "big") + key, value)
    assert record is None or isinstance(record, get_args(GroupRecord))


@pytest.mark.fuzz
@given(group_records, st.data())
def test_damage_is_a_record_or_none(record: GroupRecord, data: st.DataObject) -> None:
    key, value = encode(record)
    assert value is not None
    damaged = [bytearray(key), bytearray(value)]
    for half in damaged:
        at = data.draw(st.integers(0, len(half)))
        half[at : at + data.draw(st.integers(0, 3))] = data.draw(st.binary(max_size=3))
    read: Any = decode(bytes(damaged[0]), bytes(damaged[1]))
    assert read is None or isinstance(read, get_args(GroupRecord))


@pytest.mark.parametrize(
    "record",
    [OffsetRecord("g" * 32768, "orders", 0, 1, topic_id=UUID(int=1)), core.ConsumerGroupRecord(group_id="g" * 32768)],
    ids=lambda record: type(record).__name__,
)
def test_a_name_that_no_key_holds_is_the_clients_mistake(record: GroupRecord) -> None:
    for write in (encode, encode_alone):
        with pytest.raises(ApiError) as raised:
            write(record)
        assert raised.value.code is ErrorCode.INVALID_REQUEST
