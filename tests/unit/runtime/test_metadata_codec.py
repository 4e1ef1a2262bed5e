"""What is written into the metadata log is read back as it was, and damage is noticed."""

from __future__ import annotations

import dataclasses
from typing import Any, get_args
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.core.controller import records as core
from ottla.model.errors import CorruptLogError
from ottla.runtime.metadata_codec import build_batch, build_control_batch, decode_record, encode_record, leader_change
from ottla.wire import records as wire_records
from ottla.wire.batch import read_header
from ottla.wire.messages import metadata_records as wire
from ottla.wire.schema import encode

brokers = st.lists(st.integers(0, 2**31 - 1), max_size=4).map(tuple)
uuids = st.uuids()
FIELDS: dict[str, st.SearchStrategy[Any]] = {
    "broker_id": st.integers(-1, 2**31 - 1),
    "partition_id": st.integers(0, 2**31 - 1),
    "leader": st.integers(-1, 2**31 - 1),
    "leader_recovery_state": st.integers(0, 1),
    "leader_epoch": st.integers(0, 2**31 - 1),
    "partition_epoch": st.integers(0, 2**31 - 1),
    "broker_epoch": st.integers(-1, 2**63 - 1),
    "next_producer_id": st.integers(0, 2**63 - 1),
    "feature_level": st.integers(0, 2**15 - 1),
    "resource_type": st.sampled_from([2, 4, 16, 32]),
    "name": st.text(max_size=20),
    "topic_name": st.text(max_size=20),
    "reason": st.text(max_size=20),
    "resource_name": st.text(max_size=20),
    "value": st.none() | st.text(max_size=20),
    "rack": st.none() | st.text(max_size=20),
    "topic_id": uuids,
    "incarnation_id": uuids,
    "fenced": st.booleans(),
    "in_controlled_shutdown": st.booleans(),
    "log_dirs": st.lists(uuids, min_size=1, max_size=3).map(tuple),
    "directories": st.lists(uuids, max_size=3).map(tuple),
    "end_points": st.lists(
        st.builds(
            core.BrokerEndpoint, st.text(max_size=9), st.text(max_size=9), st.integers(0, 65535), st.integers(0, 3)
        ),
        max_size=2,
    ).map(tuple),
    "features": st.lists(
        st.builds(core.SupportedFeature, st.text(max_size=9), st.integers(0, 9), st.integers(0, 9)), max_size=2
    ).map(tuple),
}
RECORD_TYPES: tuple[Any, ...] = get_args(core.Record)


def strategy(record_type: Any) -> st.SearchStrategy[core.Record]:
    """Records of a type, with fields that may be None sometimes so."""
    arguments = {}
    for field in dataclasses.fields(record_type):
        values = FIELDS.get(field.name, brokers)
        optional = "| None" in str(field.type) and field.name not in ("rack", "value")
        arguments[field.name] = st.none() | values if optional else values
    return st.builds(record_type, **arguments)


@given(record=st.one_of([strategy(record_type) for record_type in RECORD_TYPES]))
def test_a_record_comes_back_as_it_was(record: core.Record) -> None:
    assert decode_record(encode_record(record)) == record


def test_a_batch_holds_its_records_in_order() -> None:
    records = [core.TopicRecord(name=f"t{i}", topic_id=UUID(int=i)) for i in range(3)]
    batch = build_batch(records, base_offset=40, leader_epoch=7, now_ms=1_700_000_000_000)
    header = read_header(batch)
    assert (header.base_offset, header.last_offset, header.partition_leader_epoch) == (40, 42, 7)
    assert [decode_record(record.value or b"") for record in wire_records.iterate(batch)] == records


def test_a_leader_change_is_a_control_record() -> None:
    batch = build_control_batch(2, leader_change(1, [1], [1]), base_offset=0, leader_epoch=1, now_ms=0)
    [record] = wire_records.iterate(batch)
    assert read_header(batch).is_control
    assert record.key == b"\x00\x00\x00\x02"


def test_what_only_kafkas_controllers_need_is_passed_over() -> None:
    registered = wire.RegisterControllerRecord(controller_id=1, incarnation_id=UUID(int=1), end_points=[], features=[])
    assert decode_record(b"\x01\x1b\x00" + encode(registered, 0)) == core.NoOpRecord()
    for state in (0, 3):  # Never in ZooKeeper, out of it for good.
        assert decode_record(b"\x01\x15\x00" + encode(wire.ZkMigrationStateRecord(zk_migration_state=state), 0)) == (
            core.NoOpRecord()
        )
    with pytest.raises(CorruptLogError, match="has not ended"):
        decode_record(b"\x01\x15\x00" + encode(wire.ZkMigrationStateRecord(zk_migration_state=1), 0))


@pytest.mark.parametrize(
    ("kind", "what"), [(18, "access control lists"), (11, "SCRAM credentials"), (14, "quotas"), (26, "delegation")]
)
def test_a_directory_with_protections_that_nobody_would_enforce_is_refused_by_their_name(kind: int, what: str) -> None:
    with pytest.raises(CorruptLogError, match=f"has, or had, {what}"):
        decode_record(bytes([1, kind, 0]) + b"anything")


@pytest.mark.parametrize(
    "value",
    [
        b"",
        b"\x02\x02\x00",
        b"\x01\x63\x00",
        b"\x01\x02\x09",
        encode_record(core.TopicRecord(name="topic", topic_id=UUID(int=1)))[:-3],
        encode_record(core.ConfigRecord(resource_type=77, resource_name="x", name="y", value="z")),
    ],
    ids=["empty", "frame", "type", "version", "cut", "resource"],
)
def test_what_is_no_record_is_an_error(value: bytes) -> None:
    with pytest.raises(CorruptLogError):
        decode_record(value)
