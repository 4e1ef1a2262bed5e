"""A long request that looks like one before it is understood as if it had been parsed, and no other one is."""

from __future__ import annotations

import gc
from collections.abc import Sequence
from typing import TypeAlias

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.model.errors import ApiError, MalformedMessageError
from ottla.wire import produce, produce_client
from ottla.wire.batch import check
from ottla.wire.fields import TopicKey
from ottla.wire.headers import request_header, request_header_fields
from ottla.wire.produce_lead import Lead, Piece, lead_of
from ottla.wire.records import Record, build_batch
from tests.unit.wire.damage import damage
from tests.unit.wire.test_produce_shape import VERSIONS, key_of

SIZES = (1, 40, 100, 16_300, 16_400, 2_200_000)
"""Of a record: on both sides of where the length of the batch's length changes."""
Parts: TypeAlias = Sequence[tuple[int, bytes]]


def batch(size: int = 40, fill: bytes = b"x") -> bytes:
    return bytes(build_batch([Record(0, 1_700_000_000_000, None, fill * size, ())]))


def request(
    version: int,
    parts: Parts,
    *,
    correlation_id: int = 1,
    client_id: str | None = "shop",
    topic: TopicKey | None = None,
    acks: int = 1,
    timeout_ms: int = 1500,
    transactional_id: str | None = None,
) -> memoryview:
    topics = [(key_of(version) if topic is None else topic, list(parts))]
    body = produce_client.encode_request(
        version, topics, acks=acks, timeout_ms=timeout_ms, transactional_id=transactional_id
    )
    return memoryview(bytearray(request_header(0, version, correlation_id, client_id) + body))


def known(version: int, parts: Parts | None = None) -> Lead:
    lead = lead_of(request(version, [(3, batch())] if parts is None else parts))
    assert lead is not None
    return lead


def read(lead: Lead, frame: memoryview) -> tuple[int, list[tuple[int, bytes]]] | None:
    """What a request brings, if it has that in common with others."""
    correlation_id = lead.match(frame)
    pieces = None if correlation_id is None else lead.pieces(frame)
    if lead.requests is not None:
        compiled = lead.requests.found(frame)
        assert compiled is None or (correlation_id, _bytes_of(pieces)) == compiled
        assert compiled is not None or not pieces, "what is plain is read by compiled code, too"
    if correlation_id is None or pieces is None:
        return None
    assert all(header == check(found) for _, found, header in pieces)
    return correlation_id, _bytes_of(pieces) or []


def _bytes_of(pieces: Sequence[Piece] | None) -> list[tuple[int, bytes]] | None:
    return None if pieces is None else [(index, bytes(found)) for index, found, _ in pieces]


def parsed(frame: memoryview) -> tuple[int, list[tuple[int, bytes]]] | None:
    """The same by the ordinary way; None of what would be refused."""
    try:
        _, version, correlation_id, _, position = request_header_fields(frame)
        ((_, partitions),) = produce.parse(frame, position, version).topics
        for _, records in partitions:
            check(records or memoryview(b""))
    except (MalformedMessageError, ApiError, ValueError):
        return None
    return correlation_id, [(index, bytes(records or b"")) for index, records in partitions]


@pytest.mark.parametrize("version", VERSIONS)
def test_the_next_request_is_known(version: int) -> None:
    lead = known(version)
    assert (lead.version, lead.acks, lead.timeout_ms, lead.topic) == (version, 1, 1500, key_of(version))
    parts = [(index, batch(size, b"y")) for index, size in enumerate(SIZES)]
    assert read(lead, request(version, parts, correlation_id=-2)) == (-2, parts)
    assert read(lead, request(version, [])) == (1, [])


@pytest.mark.parametrize("version", VERSIONS)
def test_a_request_may_have_many_partitions(version: int) -> None:
    parts = [(index, batch(1)) for index in range(200)]
    assert read(known(version), request(version, parts)) == (1, parts)
    assert read(known(version, parts), request(version, parts[:1])) == (1, parts[:1])


@pytest.mark.parametrize("version", VERSIONS)
def test_what_looks_different_is_not_read(version: int) -> None:
    lead, parts = known(version), [(3, batch())]
    next_version = version + 1 if version < produce.VERSION_MAX else version - 1
    others = [
        request(version, parts, client_id="shoq"),
        request(version, parts, client_id=None),
        request(version, parts, acks=-1),
        request(version, parts, timeout_ms=1501),
        request(version, parts, transactional_id="t"),
        request(next_version, parts),
        memoryview(bytes(12)),
        memoryview(b""),
    ]
    if version < produce.TOPIC_ID_SINCE:
        others.append(request(version, parts, topic="orderz"))
    assert [read(lead, other) for other in others] == [None] * len(others)


@pytest.mark.parametrize("version", VERSIONS)
def test_a_batch_that_would_be_refused_is_not_read(version: int) -> None:
    damaged, old_format, placed = bytearray(batch()), bytearray(batch()), bytearray(batch())
    damaged[-1] ^= 1
    old_format[16] = 1
    placed[7] = 1
    frames = [
        request(version, [(0, bytes(old_format))]),
        request(version, [(0, bytes(placed))]),
        request(version, [(0, batch()), (1, bytes(damaged))]),
        request(version, [(0, batch() + batch())]),
        request(version, [(0, b"")]),
        request(version, [(0, batch()[:60])]),
    ]
    assert [read(known(version), frame) for frame in frames] == [None] * len(frames)


def test_no_lead_of_what_is_in_a_transaction_or_of_several_topics() -> None:
    parts = [(0, batch())]
    several = produce_client.encode_request(9, [("a", parts), ("b", parts)], acks=1, timeout_ms=1)
    frames = [
        request(9, parts, transactional_id="t"),
        memoryview(request_header(0, 9, 1, "shop") + several),
        memoryview(request_header(0, 9, 1, "shop") + several[:-3]),
        memoryview(request_header(0, produce.VERSION_MAX + 1, 1, "shop") + several),
        memoryview(b""),
    ]
    assert [lead_of(frame) for frame in frames] == [None] * len(frames)


@pytest.mark.parametrize("version", range(produce.FLEXIBLE_SINCE, produce.VERSION_MAX + 1))
def test_a_topic_without_even_a_list_of_partitions_is_not_read(version: int) -> None:
    frame = request(version, [])
    frame[-3] = 0
    assert parsed(frame) is None
    assert read(known(version), frame) is None


@pytest.mark.parametrize("version", VERSIONS)
def test_nothing_is_kept_of_what_is_long_before_its_partitions(version: int) -> None:
    assert lead_of(request(version, [(3, batch())], client_id="c" * 5000)) is None


def test_a_lead_is_gone_when_another_one_takes_its_place() -> None:
    """A broker's collector comes by seldom: who begins each request in another way would fill the memory."""
    gc.collect()
    gc.disable()
    try:
        before = sum(type(each) is Lead for each in gc.get_objects())
        known(9)
        assert sum(type(each) is Lead for each in gc.get_objects()) == before
    finally:
        gc.enable()


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("count", [1, 3, 150])
def test_answers_are_those_of_the_ordinary_way(version: int, count: int) -> None:
    pack, rest = produce.stored_layout(version)
    outcomes = [pack(index, 0, index * 7, -1, 5, rest) for index in range(count)]
    expected = produce.encode_response(version, 12, [(key_of(version), outcomes)])
    assert known(version).answer(12, outcomes) == expected


@given(st.sampled_from(VERSIONS), st.lists(st.integers(1, 200), min_size=1, max_size=3), st.data())
def test_a_damaged_request_is_read_as_it_would_be_parsed_or_not_at_all(
    version: int, sizes: list[int], data: st.DataObject
) -> None:
    parts = [(index, batch(size)) for index, size in enumerate(sizes)]
    lead, message = known(version, parts), bytearray(request(version, parts))
    damage(message, data)
    frame = memoryview(message)
    found = read(lead, frame)
    if found is not None:
        assert found == parsed(frame)
