"""A request that looks like one before it is understood as if it had been parsed, and no other one is."""

from __future__ import annotations

import struct
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.model.errors import MalformedMessageError
from ottla.wire import produce, produce_client
from ottla.wire.batch import HEADER_BYTES
from ottla.wire.fields import TopicKey
from ottla.wire.headers import request_header, request_header_fields
from ottla.wire.produce_shape import understand
from tests.unit.wire.damage import damage

VERSIONS = range(produce.VERSION_MIN, produce.VERSION_MAX + 1)
TOPIC_ID = UUID("01234567-89ab-cdef-0123-456789abcdef")
SIZES = (HEADER_BYTES, 126, 127, 128, 16_382, 16_383, 16_384)
"""On both sides of where the length of the size changes."""


def key_of(version: int, name: str = "orders") -> TopicKey:
    return TOPIC_ID if version >= produce.TOPIC_ID_SINCE else name


def request(
    version: int,
    records: bytes,
    *,
    correlation_id: int = 1,
    client_id: str | None = "shop",
    topic: TopicKey | None = None,
    index: int = 3,
    acks: int = 1,
) -> memoryview:
    topic = key_of(version) if topic is None else topic
    body = produce_client.encode_request(version, [(topic, [(index, records)])], acks=acks, timeout_ms=1500)
    return memoryview(bytearray(request_header(0, version, correlation_id, client_id) + body))


def parsed(frame: memoryview) -> tuple[int, int, int, int, TopicKey, int, bytes] | None:
    """Everything that a request of one partition says, by the ordinary way."""
    try:
        key, version, correlation_id, _, position = request_header_fields(frame)
        one = produce.parse_one(frame, position, version)
    except MalformedMessageError:
        return None
    if one is None:
        return None
    acks, timeout_ms, topic, index, records = one
    return key << 16 | version, correlation_id, acks, timeout_ms, topic, index, bytes(records)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("size", SIZES)
def test_the_next_request_is_known(version: int, size: int) -> None:
    found = understand(request(version, b"x" * size))
    assert found is not None
    assert found[2:] == (version, 1, 1500, key_of(version), 3)
    other = request(version, b"y" * size, correlation_id=-2)
    read = found.shape.read(other, 0, len(other))
    assert read is not None
    correlation_id, target, records = read
    assert (correlation_id, target, bytes(records)) == (-2, found.target, b"y" * size)
    assert found.shape.build(correlation_id, target, bytes(records)) == other


@pytest.mark.parametrize("version", VERSIONS)
def test_it_is_found_where_it_lies_between_others(version: int) -> None:
    frame = bytes(request(version, b"x" * 100))
    found = understand(memoryview(frame))
    assert found is not None
    view = memoryview(b"before" + frame + b"after")
    read = found.shape.read(view, 6, 6 + len(frame))
    assert read is not None
    assert bytes(read[2]) == b"x" * 100
    assert found.shape.read(view, 6, 6 + len(frame) - 1) is None
    assert found.shape.read(view, 6, 6 + len(frame) + 1) is None


@pytest.mark.parametrize("version", VERSIONS)
def test_another_target_of_the_same_length_has_another_name(version: int) -> None:
    found = understand(request(version, b"x" * 100))
    assert found is not None
    for other in (request(version, b"x" * 100, index=4), request(version, b"x" * 100, acks=-1)):
        read = found.shape.read(other, 0, len(other))
        assert read is not None
        assert read[1] != found.target


@pytest.mark.parametrize("version", VERSIONS)
def test_what_looks_different_is_not_read(version: int) -> None:
    found = understand(request(version, b"x" * 100))
    assert found is not None
    next_version = version + 1 if version < produce.VERSION_MAX else version - 1
    others = [
        request(version, b"x" * 100, client_id="shoq"),
        request(version, b"x" * 100, client_id=None),
        request(version, b"x" * (HEADER_BYTES - 1)),
        request(next_version, b"x" * 100),
        memoryview(bytes(12)),
    ]
    if version >= produce.FLEXIBLE_SINCE:
        others.append(request(version, b"x" * 20_000))
    if version < produce.TOPIC_ID_SINCE:
        others.append(request(version, b"x" * 100, topic="orders-eu"))
    assert all(found.shape.read(other, 0, len(other)) is None for other in others)


def test_no_shape_of_what_is_not_one_whole_batch_for_one_partition() -> None:
    two = produce_client.encode_request(9, [("orders", [(0, b"x" * 99), (1, b"x" * 99)])], acks=1, timeout_ms=1)
    none: list[memoryview] = [
        memoryview(request_header(0, 9, 1, "shop") + two),
        request(9, b"x" * (HEADER_BYTES - 1)),
        memoryview(struct.pack(">hhih", 0, 9, 1, 40)),
        memoryview(struct.pack(">hhih", 0, 9, 1, 2) + b"\xff\xff\0"),
        memoryview(b""),
    ]
    assert [understand(frame) for frame in none] == [None] * len(none)


@given(st.sampled_from(VERSIONS), st.integers(HEADER_BYTES, 300), st.data())
def test_a_damaged_request_is_read_as_it_would_be_parsed_or_not_at_all(
    version: int, size: int, data: st.DataObject
) -> None:
    original = request(version, b"x" * size)
    found = understand(original)
    assert found is not None
    message = bytearray(original)
    damage(message, data)
    damaged = memoryview(message)
    read = found.shape.read(damaged, 0, len(damaged))
    if read is None or read[1] != found.target:
        return
    correlation_id, _, records = read
    head = version, correlation_id, found.acks, found.timeout_ms, found.topic, found.index
    assert parsed(damaged) == (*head, bytes(records))
