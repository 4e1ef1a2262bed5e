"""The quick way to write and read offsets says what the declared messages say."""

from __future__ import annotations

import contextlib
import struct
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.core.groups.records import OffsetRecord
from ottla.model.errors import MalformedMessageError
from ottla.model.ids import ZERO_UUID
from ottla.runtime.coordinator_log import encode_first
from ottla.runtime.offset_codec import OFFSET_COMMIT, decode_offset, encode_offset, encode_plain_offset, offset_of
from ottla.wire.messages.group_records import OffsetCommitKey, OffsetCommitValue
from ottla.wire.schema import decode, encode

TOPIC_ID = UUID("01020304-0506-0708-090a-0b0c0d0e0f10")
KEY = bytes.fromhex("0001 0002 6731 0006 6f7264657273 00000003")
VALUE_1 = bytes.fromhex("0001 000000000000002a 0001 6d 0000018bcfe56800 0000018bcfe56801")
VALUE_3 = bytes.fromhex("0003 000000000000002a 00000007 0001 6d 0000018bcfe56800")
VALUE_4 = bytes.fromhex("0004 000000000000002a 00000007 02 6d 0000018bcfe56800 00")
VALUE_4_WITH_ID = VALUE_4[:-1] + bytes.fromhex("01 00 10 0102030405060708090a0b0c0d0e0f10")
RECORD = OffsetRecord("g1", "orders", 3, 42, 7, "m", 1_700_000_000_000)

int32s = st.integers(-(1 << 31), (1 << 31) - 1)
int64s = st.integers(-(1 << 63), (1 << 63) - 1)
names = st.text(max_size=20) | st.text("aé", min_size=100, max_size=300)
offsets = st.builds(
    OffsetRecord,
    names,
    names,
    int32s,
    st.integers(0, (1 << 63) - 1),
    int32s,
    names | st.text("a", min_size=124, max_size=130),
    int64s,
    st.just(-1),
    st.just(ZERO_UUID) | st.uuids(),
)


@pytest.mark.parametrize(
    ("record", "value"),
    [
        (RECORD, VALUE_4),
        (RECORD._replace(topic_id=TOPIC_ID), VALUE_4_WITH_ID),
        (RECORD._replace(expire_timestamp=1_700_000_000_001), VALUE_1),
        (RECORD._replace(offset=-1), None),
    ],
)
def test_what_is_written_is_what_kafka_writes(record: OffsetRecord, value: bytes | None) -> None:
    assert encode_offset(record) == (KEY, value)


@given(offsets)
def test_what_stands_alone_in_a_batch_is_the_same(record: OffsetRecord) -> None:
    is_plain = not record.metadata and record.topic_id != ZERO_UUID
    for _ in range(2):  # Made anew, then remembered.
        assert encode_plain_offset(record) == (encode_first(*encode_offset(record)) if is_plain else None)


def test_a_topic_that_was_created_again_has_another_id() -> None:
    first = OffsetRecord("g", "t", 0, 5, topic_id=TOPIC_ID)
    for record in (first, first._replace(topic_id=UUID(int=9)), first):
        assert encode_plain_offset(record) == encode_first(*encode_offset(record))
    assert encode_plain_offset(first._replace(offset=-1)) is None


@pytest.mark.parametrize(
    ("value", "record"),
    [
        (VALUE_3, RECORD),
        (VALUE_4, RECORD),
        (VALUE_4_WITH_ID, RECORD._replace(topic_id=TOPIC_ID)),
        (None, OffsetRecord("g1", "orders", 3, -1)),
        (VALUE_1, None),
    ],
)
def test_what_kafka_writes_often_is_read_by_hand(value: bytes | None, record: OffsetRecord | None) -> None:
    assert decode_offset(KEY, value) == record


@given(offsets)
def test_what_is_written_by_hand_is_what_the_messages_write(record: OffsetRecord) -> None:
    key = OffsetCommitKey(group=record.group_id, topic=record.topic, partition=record.partition)
    value = OffsetCommitValue(
        offset=record.offset,
        leader_epoch=record.leader_epoch,
        metadata=record.metadata,
        commit_timestamp=record.commit_timestamp,
        topic_id=record.topic_id,
    )
    assert encode_offset(record) == (encode(key, 0, b"\0\1"), encode(value, 4, b"\0\4"))


@given(offsets)
def test_version_3_is_read_by_hand_without_its_topic_id(record: OffsetRecord) -> None:
    value = OffsetCommitValue(
        offset=record.offset,
        leader_epoch=record.leader_epoch,
        metadata=record.metadata,
        commit_timestamp=record.commit_timestamp,
    )
    read = decode_offset(encode_offset(record)[0], encode(value, 3, b"\0\3"))
    assert read == record._replace(topic_id=ZERO_UUID)


@given(offsets)
def test_what_is_read_by_hand_is_what_was_written(record: OffsetRecord) -> None:
    assert decode_offset(*encode_offset(record)) == (record if len(record.metadata.encode()) < 127 else None)


@pytest.mark.fuzz
@given(offsets, st.data())
def test_what_is_damaged_is_read_as_the_messages_read_it(record: OffsetRecord, data: st.DataObject) -> None:
    key, value = map(bytearray, map(bytes, encode_offset(record)))  # type: ignore[arg-type]
    for damaged in (key, value):
        at = data.draw(st.integers(2, len(damaged)))
        damaged[at : at + data.draw(st.integers(0, 3))] = data.draw(st.binary(max_size=3))
    by_hand = by_messages = None
    with contextlib.suppress(struct.error, UnicodeDecodeError, IndexError):
        by_hand = decode_offset(bytes(key), bytes(value))
    with contextlib.suppress(MalformedMessageError):
        by_messages = offset_of(
            decode(OffsetCommitKey, bytes(key), 0, 2), decode(OffsetCommitValue, bytes(value), 4, 2)
        )
    assert by_hand in (None, by_messages)


@pytest.mark.parametrize("record", [RECORD._replace(group_id="g" * 32768), RECORD._replace(topic="ä" * 16384)])
def test_a_name_that_no_key_holds_is_refused(record: OffsetRecord) -> None:
    with pytest.raises(struct.error):
        encode_offset(record)


def test_the_type_of_the_key_is_kafkas() -> None:
    assert OffsetCommitKey.__schema__ is not None
    assert OffsetCommitKey.__schema__.api_key == OFFSET_COMMIT
