"""A producer that repeats itself must not write twice, one that lost its place must hear of it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.log.producer_state import COMPLETED_MAX, SEQUENCE_MAX, CompletedTransaction, ProducerStates
from ottla.model.errors import ApiError, ErrorCode
from ottla.wire.batch import TRANSACTIONAL_BIT


class Log:
    """Offsets for a `ProducerStates`, as a log gives them."""

    def __init__(self) -> None:
        self.states = ProducerStates()
        self.end = 0

    def write(
        self, sequence: int, count: int = 1, *, epoch: int = 0, producer_id: int = 1, transactional: bool = False
    ) -> int:
        """The base offset at which the batch is, whether it was written now or before."""
        attributes = TRANSACTIONAL_BIT if transactional else 0
        known = self.states.check(producer_id, epoch, sequence, count - 1, attributes)
        if known is not None:
            return known.base_offset
        base = self.end
        self.states.update(producer_id, epoch, sequence, base, count - 1, 1000 + base, attributes)
        self.end += count
        return base

    def unstable(self) -> int | None:
        return self.states.first_unstable_offset

    def end_transaction(
        self, *, commit: bool, epoch: int = 0, coordinator_epoch: int = 0, producer_id: int = 1
    ) -> CompletedTransaction | None:
        self.states.check_marker(producer_id, epoch, coordinator_epoch)
        offset = self.end
        self.end += 1
        return self.states.complete(producer_id, epoch, coordinator_epoch, offset, 1000 + offset, aborted=not commit)


def raises(code: ErrorCode) -> pytest.RaisesExc[ApiError]:
    return pytest.raises(ApiError, check=lambda error: error.code == code)


def test_any_of_the_last_five_batches_may_be_repeated() -> None:
    log = Log()
    written = [log.write(2 * number, 2) for number in range(8)]
    for number in range(3, 8):
        assert log.write(2 * number, 2) == written[number]
    assert log.end == 16
    with raises(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER):
        log.write(4, 2)


def test_a_repeated_batch_must_have_the_same_records() -> None:
    log = Log()
    log.write(0, 3)
    log.write(3, 3)
    with raises(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER):
        log.write(0, 2)
    with raises(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER):
        log.write(2, 2)


def test_a_gap_in_the_sequence_is_refused_and_leaves_no_trace() -> None:
    log = Log()
    log.write(0)
    with raises(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER):
        log.write(2)
    assert log.write(1) == 1


def test_sequences_wrap_after_two_billion() -> None:
    log = Log()
    log.write(SEQUENCE_MAX - 2, 2)
    crossing = log.write(SEQUENCE_MAX, 3)
    assert log.write(SEQUENCE_MAX, 3) == crossing
    after = log.write(2)
    assert log.write(2) == after
    assert log.states.active_producers()[0].last_sequence == 2


def test_an_unknown_producer_may_begin_anywhere() -> None:
    assert Log().write(4711) == 0


def test_a_new_epoch_fences_the_old_one_and_begins_at_zero() -> None:
    log = Log()
    log.write(0, 5)
    with raises(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER):
        log.write(5, epoch=1)
    log.write(0, epoch=1)
    with raises(ErrorCode.INVALID_PRODUCER_EPOCH):
        log.write(5, epoch=0)
    assert log.write(1, epoch=1) == 6


def test_an_idle_producer_expires_but_not_with_a_transaction_open() -> None:
    log = Log()
    log.write(0, producer_id=1)
    log.write(0, producer_id=2, transactional=True)
    log.write(0, producer_id=3)
    assert log.states.expire(1050, 51) == 0
    assert log.states.expire(1051, 51) == 1
    assert [producer.producer_id for producer in log.states.active_producers()] == [2, 3]


def test_the_last_stable_offset_waits_for_the_first_open_transaction() -> None:
    log = Log()
    log.write(0)
    assert log.unstable() is None
    first = log.write(1, transactional=True)
    log.write(0, producer_id=2, transactional=True)
    assert log.unstable() == first
    done = log.end_transaction(commit=True)
    assert done == CompletedTransaction(1, first, 3, False)
    assert log.states.index_entry_of(done).last_stable_offset == 2
    # The marker is not replicated yet.
    assert log.unstable() == first
    log.states.on_high_watermark(3)
    assert log.unstable() == first
    log.states.on_high_watermark(4)
    assert log.unstable() == 2
    aborted = log.end_transaction(commit=False, producer_id=2)
    assert aborted == CompletedTransaction(2, 2, 4, True)
    log.states.on_high_watermark(5)
    assert log.unstable() is None


def test_a_marker_without_a_transaction_completes_nothing() -> None:
    log = Log()
    log.write(0)
    assert log.end_transaction(commit=True) is None
    assert log.end_transaction(commit=True, producer_id=99) is None
    assert log.unstable() is None


def test_a_zombie_coordinator_or_producer_cannot_end_a_transaction() -> None:
    log = Log()
    log.write(0, epoch=3, transactional=True)
    log.end_transaction(commit=True, epoch=3, coordinator_epoch=8)
    with raises(ErrorCode.TRANSACTION_COORDINATOR_FENCED):
        log.end_transaction(commit=True, epoch=3, coordinator_epoch=7)
    with raises(ErrorCode.INVALID_PRODUCER_EPOCH):
        log.end_transaction(commit=True, epoch=2, coordinator_epoch=8)


def test_a_plain_write_inside_a_transaction_is_refused() -> None:
    log = Log()
    log.write(0, transactional=True)
    with raises(ErrorCode.INVALID_TXN_STATE):
        log.write(1)
    log.write(1, transactional=True)


def test_a_marker_of_a_new_client_has_a_higher_epoch_than_what_it_ends() -> None:
    log = Log()
    log.write(0, transactional=True)
    with raises(ErrorCode.INVALID_PRODUCER_EPOCH):
        log.states.check_marker(1, 0, 0, 2)
    log.states.check_marker(1, 0, 0, 1)
    log.states.check_marker(1, 1, 0, 2)
    log.end_transaction(commit=True, epoch=1)
    log.states.check_marker(1, 1, 0, 2)  # Once more, with nothing to end.
    with raises(ErrorCode.INVALID_PRODUCER_EPOCH):
        log.states.check_marker(1, 0, 0, 2)


def test_the_last_stable_offset_follows_the_high_watermark() -> None:
    log = Log()
    log.write(0, producer_id=1, transactional=True)
    log.write(0, producer_id=2, transactional=True)
    log.end_transaction(commit=True, producer_id=2)
    log.end_transaction(commit=False, producer_id=1)
    assert [log.states.last_stable_offset(high_watermark) for high_watermark in range(5)] == [0, 0, 0, 0, 4]
    assert log.unstable() is None


def test_very_many_transactions_above_the_high_watermark_are_remembered_together() -> None:
    log = Log()
    count = 2 * COMPLETED_MAX
    for number in range(count):
        log.write(number, transactional=True)
        log.end_transaction(commit=True)
    assert len(log.states._completed) <= COMPLETED_MAX
    assert log.unstable() == 0
    stable = [log.states.last_stable_offset(high_watermark) for high_watermark in range(0, log.end + 1, 100)]
    assert stable == sorted(stable)
    assert all(0 <= 100 * number - offset < 100 for number, offset in enumerate(stable))
    assert log.states.last_stable_offset(log.end) == log.end


def test_a_coordinator_writes_without_sequences() -> None:
    log = Log()
    log.write(-1, 2, transactional=True)
    log.write(-1, 2, transactional=True)
    assert log.end == 4
    with raises(ErrorCode.INVALID_PRODUCER_EPOCH):
        log.write(-1, epoch=-1, transactional=True)


ACTIONS = st.lists(
    st.tuples(st.sampled_from(["write", "transactional", "commit", "abort", "bump"]), st.integers(1, 3)), max_size=40
)


@given(ACTIONS)
def test_a_snapshot_carries_everything(actions: list[tuple[str, int]]) -> None:
    log = Log()
    epochs = dict.fromkeys(range(1, 4), 0)
    for action, producer_id in actions:
        epoch = epochs[producer_id]
        known = {producer.producer_id: producer for producer in log.states.active_producers()}
        producer = known.get(producer_id)
        open_ = producer is not None and producer.transaction_first_offset is not None
        sequence = producer.next_sequence if producer is not None and producer.epoch == epoch else 0
        if action in ("write", "transactional"):
            transactional = action == "transactional" or open_
            log.write(sequence, 2, epoch=epoch, producer_id=producer_id, transactional=transactional)
        elif action in ("commit", "abort"):
            log.end_transaction(commit=action == "commit", epoch=epoch, producer_id=producer_id)
        elif not open_:
            epochs[producer_id] += 1
    log.states.on_high_watermark(log.end)
    restored = ProducerStates()
    restored.load_snapshot(log.states.to_snapshot())
    assert restored.to_snapshot() == log.states.to_snapshot()
    assert restored.first_unstable_offset == log.unstable()
    for before, after in zip(log.states.active_producers(), restored.active_producers(), strict=True):
        assert after.next_sequence == before.next_sequence
        assert after.batches == before.batches


def test_a_snapshot_of_kafka_knows_the_last_batch() -> None:
    log = Log()
    for sequence in (0, 2, 4):
        log.write(sequence, 2)
    restored = ProducerStates()
    restored.load_snapshot([entry._replace(batches=()) for entry in log.states.to_snapshot()])
    (before,), (after,) = log.states.active_producers(), restored.active_producers()
    assert after.batches == before.batches[-1:]
    assert after.next_sequence == before.next_sequence
