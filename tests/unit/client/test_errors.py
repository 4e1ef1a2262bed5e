"""An error must say what was tried, why it failed, and be caught by what it means."""

from __future__ import annotations

import pytest

from ottla.client.errors import (
    RETRIABLE_CODES,
    STALE_METADATA_CODES,
    AlreadyExistsError,
    BrokerError,
    NotFoundError,
    broker_error,
    error_code,
)
from ottla.model.errors import ErrorCode


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, NotFoundError),
        (ErrorCode.UNKNOWN_TOPIC_ID, NotFoundError),
        (ErrorCode.TOPIC_ALREADY_EXISTS, AlreadyExistsError),
        (ErrorCode.INVALID_CONFIG, BrokerError),
    ],
)
def test_an_error_is_caught_by_what_it_means(code: ErrorCode, kind: type[BrokerError]) -> None:
    error = broker_error(code, "topic 'orders'")
    assert type(error) is kind
    assert error.code is code


def test_the_brokers_own_words_are_passed_on_in_one_line() -> None:
    error = broker_error(ErrorCode.INVALID_CONFIG, "cannot create 'a'", "Unknown config:\n  foo.")
    assert str(error) == "cannot create 'a': Unknown config: foo (INVALID_CONFIG)"


def test_every_code_makes_a_sentence() -> None:
    for code in ErrorCode:
        message = str(broker_error(code, "subject"))
        assert message.startswith("subject: ")
        assert message.endswith(f"({code.name})")


def test_a_code_from_the_future_is_an_error_all_the_same() -> None:
    assert error_code(9_999) is ErrorCode.UNKNOWN_SERVER_ERROR


def test_what_is_missing_is_not_asked_for_again_by_itself() -> None:
    assert not broker_error(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "x").retriable
    assert broker_error(ErrorCode.NOT_CONTROLLER, "x").retriable


def test_stale_metadata_is_always_worth_another_attempt() -> None:
    assert STALE_METADATA_CODES <= RETRIABLE_CODES
