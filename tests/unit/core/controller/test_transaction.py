"""The records of a transaction in the metadata log take effect when it ends, all of them, or never."""

from __future__ import annotations

import pytest

from ottla.core.controller.records import (
    AbortTransactionRecord,
    BeginTransactionRecord,
    EndTransactionRecord,
    FeatureLevelRecord,
    NoOpRecord,
)
from ottla.core.controller.transaction import MetadataTransaction
from ottla.model.errors import CorruptLogError


def level(number: int) -> FeatureLevelRecord:
    return FeatureLevelRecord(name="metadata.version", feature_level=number)


def test_records_of_several_batches_take_effect_together() -> None:
    transaction = MetadataTransaction()
    assert transaction.effective([level(1), BeginTransactionRecord(), level(2)]) == [level(1)]
    assert transaction.is_open
    assert transaction.effective([NoOpRecord(), level(3)]) == []
    assert transaction.effective([level(4), EndTransactionRecord(), level(5)]) == [
        level(2),
        NoOpRecord(),
        level(3),
        level(4),
        level(5),
    ]
    assert not transaction.is_open


def test_what_was_aborted_never_takes_effect() -> None:
    transaction = MetadataTransaction()
    transaction.effective([BeginTransactionRecord(), level(2)])
    assert transaction.effective([level(3), AbortTransactionRecord(), level(4)]) == [level(4)]
    assert transaction.effective([BeginTransactionRecord(), level(5), EndTransactionRecord()]) == [level(5)]


def test_a_log_that_makes_no_sense_is_damaged() -> None:
    with pytest.raises(CorruptLogError, match="in another one"):
        MetadataTransaction().effective([BeginTransactionRecord(), BeginTransactionRecord()])
    for end in (EndTransactionRecord(), AbortTransactionRecord()):
        with pytest.raises(CorruptLogError, match="has not begun"):
            MetadataTransaction().effective([end])
