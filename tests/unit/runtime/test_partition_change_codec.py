"""The short way writes and reads what the declared message does, byte for byte, and leaves to it what it cannot do."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from hypothesis import example, given
from hypothesis import strategies as st

from ottla.core.controller.records import PartitionChangeRecord
from ottla.runtime import metadata_codec
from ottla.runtime.metadata_codec import decode_record, encode_record
from ottla.runtime.partition_change_codec import decode_partition_change, encode_partition_change
from ottla.wire.schema import encode

members = st.none() | st.lists(st.integers(0, 2**31 - 1), max_size=9).map(tuple)
CHANGES = st.builds(
    PartitionChangeRecord,
    partition_id=st.integers(0, 2**31 - 1),
    topic_id=st.uuids(),
    isr=members,
    leader=st.none() | st.integers(-1, 2**31 - 1),
    replicas=members,
    removing_replicas=members,
    adding_replicas=members,
    directories=st.none() | st.lists(st.uuids(), max_size=9).map(tuple),
    eligible_leader_replicas=members,
    last_known_elr=members,
    leader_recovery_state=st.none() | st.integers(0, 1),
)


def by_message(record: PartitionChangeRecord) -> bytes:
    version, to_wire = metadata_codec._TO_WIRE[PartitionChangeRecord]
    return b"\x01\x05\x02" + encode(to_wire(record), version)


@given(record=CHANGES)
@example(record=PartitionChangeRecord(partition_id=0, topic_id=UUID(int=0)))
def test_both_ways_are_one(record: PartitionChangeRecord) -> None:
    value = by_message(record)
    assert encode_record(record) == value
    assert decode_record(value) == record
    short = encode_partition_change(record)
    lists: list[Any] = [
        record.isr,
        record.replicas,
        record.removing_replicas,
        record.adding_replicas,
        record.directories,
        record.eligible_leader_replicas,
        record.last_known_elr,
    ]
    usual = all(len(entries or ()) <= 7 for entries in lists)
    assert (short == value) is usual
    assert (decode_partition_change(value) == record) is usual


@given(record=CHANGES, data=st.data())
def test_damage_is_left_to_the_message(record: PartitionChangeRecord, data: st.DataObject) -> None:
    value = bytearray(by_message(record))
    at = data.draw(st.integers(3, len(value) - 1))
    value[at] = data.draw(st.integers(0, 255))
    del value[data.draw(st.integers(max(3, len(value) - 3), len(value))) :]
    short = decode_partition_change(bytes(value))
    assert short is None or encode_record(short) == bytes(value) or decode_record(bytes(value)) == short
