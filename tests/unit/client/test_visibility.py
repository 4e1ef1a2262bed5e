"""A reader must never see what was aborted, nor miss what was not."""

from __future__ import annotations

import struct

from ottla.client.offsets import Isolation
from ottla.client.visibility import visible_batches, whole_batches
from ottla.wire.batch import CONTROL_BIT, TRANSACTIONAL_BIT
from ottla.wire.records import Record, build_batch

COMMITTED, UNCOMMITTED = Isolation.READ_COMMITTED, Isolation.READ_UNCOMMITTED


def data(offset: int, producer: int = -1, count: int = 1, *, transactional: bool = False) -> bytearray:
    records = [Record(offset + index, 0, None, b"v") for index in range(count)]
    attributes = TRANSACTIONAL_BIT if transactional else 0
    return build_batch(records, producer_id=producer, producer_epoch=0, base_sequence=0, attributes=attributes)


def marker(offset: int, producer: int, *, commit: bool) -> bytearray:
    record = Record(offset, 0, struct.pack(">hh", 0, int(commit)), struct.pack(">hi", 0, 0))
    return build_batch([record], producer_id=producer, producer_epoch=0, attributes=CONTROL_BIT | TRANSACTIONAL_BIT)


def offsets(batches: list[bytearray], isolation: Isolation, aborted: tuple[tuple[int, int], ...] = ()) -> list[int]:
    fetched = memoryview(b"".join(batches))
    return [header.base_offset for _, header in visible_batches(fetched, isolation, aborted)]


def test_control_batches_are_never_shown() -> None:
    log = [data(0, 1, transactional=True), marker(1, 1, commit=True), data(2)]
    assert offsets(log, UNCOMMITTED) == [0, 2]
    assert offsets(log, COMMITTED) == [0, 2]


def test_an_aborted_transaction_is_left_out_for_those_who_want_committed_records() -> None:
    log = [data(0, 1, transactional=True), data(1, 2, transactional=True), marker(2, 1, commit=False), data(3)]
    assert offsets(log, COMMITTED, ((1, 0),)) == [1, 3]
    assert offsets(log, UNCOMMITTED) == [0, 1, 3]


def test_a_producer_that_aborted_once_is_shown_again_after_its_marker() -> None:
    log = [
        data(0, 1, transactional=True),
        marker(1, 1, commit=False),
        data(2, 1, transactional=True),
        marker(3, 1, commit=True),
    ]
    assert offsets(log, COMMITTED, ((1, 0),)) == [2]


def test_a_producer_may_abort_twice_in_one_answer() -> None:
    log = [
        data(0, 1, transactional=True),
        marker(1, 1, commit=False),
        data(2, 1, transactional=True),
        marker(3, 1, commit=False),
        data(4, 1, transactional=True),
    ]
    assert offsets(log, COMMITTED, ((1, 2), (1, 0))) == [4]


def test_records_outside_of_transactions_are_shown_even_from_an_aborting_producer() -> None:
    log = [data(0, 1), data(1, 1, transactional=True), marker(2, 1, commit=False)]
    assert offsets(log, COMMITTED, ((1, 0),)) == [0]


def test_a_batch_that_is_cut_off_is_fetched_again_from_its_beginning() -> None:
    first, second = data(10, count=5), data(15, count=5)
    fetched = memoryview(bytes(first + second))

    def whole(size: int, offset: int) -> tuple[bytes, int]:
        records, next_offset = whole_batches(fetched[:size], offset)
        return bytes(records), next_offset

    assert whole(len(fetched), 10) == (bytes(fetched), 20)
    assert whole(len(fetched) - 1, 10) == (bytes(first), 15)
    assert whole(len(first) - 1, 12) == (b"", 12)
    assert whole(0, 7) == (b"", 7)
