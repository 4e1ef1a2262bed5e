"""What a coordinator was asked is remembered until it is used, ended, or too old, and never without a bound."""

from __future__ import annotations

import pytest

from ottla.log.producer_state import ProducerStates
from ottla.log.verifications import VERIFICATIONS_MAX, Verifications
from ottla.model.errors import ApiError, ErrorCode
from ottla.wire.batch import TRANSACTIONAL_BIT


def code_of(states: ProducerStates, sequence: int, verification: object, *, epoch: int = 0) -> ErrorCode:
    try:
        states.check_verified(7, epoch, sequence, verification)  # type: ignore[arg-type]
    except ApiError as error:
        return error.code
    return ErrorCode.NONE


def begin(states: ProducerStates, sequence: int, *, epoch: int = 0, begins_anew: bool = False) -> object:
    return states.begin_verification(7, epoch, sequence, 1000, begins_anew=begins_anew)


def write(states: ProducerStates, sequence: int, offset: int) -> None:
    states.update(7, 0, sequence, offset, 0, 1000, TRANSACTIONAL_BIT)


def test_a_permission_holds_until_the_transaction_is_open() -> None:
    states = ProducerStates()
    verification = begin(states, 0)
    assert code_of(states, 0, verification) is ErrorCode.NONE
    write(states, 0, 0)
    assert code_of(states, 1, None) is ErrorCode.NONE
    states.complete(7, 0, 0, 1, 1000, aborted=True)
    assert code_of(states, 1, None) is ErrorCode.INVALID_TXN_STATE
    assert code_of(states, 1, verification) is ErrorCode.INVALID_TXN_STATE


def test_two_batches_that_wait_have_one_permission() -> None:
    states = ProducerStates()
    assert begin(states, 3) is begin(states, 0)


def test_the_lowest_sequence_goes_first_and_a_new_epoch_begins_anew() -> None:
    states = ProducerStates()
    verification = begin(states, 3)
    assert code_of(states, 4, verification) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    begin(states, 1)
    assert code_of(states, 3, verification) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    begin(states, 5, epoch=1)
    assert code_of(states, 5, verification, epoch=1) is ErrorCode.NONE


def test_a_client_that_counts_from_zero_must_do_so() -> None:
    states = ProducerStates()
    verification = begin(states, 2, begins_anew=True)
    assert code_of(states, 2, verification) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    write(states, 0, 0)
    states.complete(7, 0, 0, 1, 1000, aborted=False)
    assert code_of(states, 2, begin(states, 2, begins_anew=True)) is ErrorCode.NONE


def test_an_epoch_that_was_followed_is_refused() -> None:
    states = ProducerStates()
    states.complete(7, 2, 0, 0, 1000, aborted=False)
    with pytest.raises(ApiError, match="followed by epoch 2"):
        begin(states, 0, epoch=1)


def test_what_nobody_came_back_for_is_forgotten() -> None:
    states = ProducerStates()
    verification = begin(states, 0)
    states.expire(1999, 1000)
    assert code_of(states, 0, verification) is ErrorCode.NONE
    states.expire(2000, 1000)
    assert code_of(states, 0, verification) is ErrorCode.INVALID_TXN_STATE


def test_there_is_a_bound() -> None:
    verifications = Verifications()
    first = verifications.begin(0, 0, 0, 0, begins_anew=False)
    for producer_id in range(1, VERIFICATIONS_MAX + 1):
        last = verifications.begin(producer_id, 0, 0, 0, begins_anew=False)
    verifications.check(VERIFICATIONS_MAX, 0, last, knows_producer=False)
    with pytest.raises(ApiError, match="ended before"):
        verifications.check(0, 0, first, knows_producer=False)
