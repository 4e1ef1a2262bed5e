"""What ends by itself: transactions that take too long, and transactional ids that nobody uses."""

from __future__ import annotations

from typing import Final

from ottla.core.coordination import Outcome
from ottla.core.transactions.records import TransactionRecord, TransactionState
from ottla.core.transactions.table import EXPIRY, TIMEOUT, TransactionTable
from ottla.core.transactions.transaction import fenced, forgotten
from ottla.model.errors import ErrorCode

EXPIRED_IDS_PER_TICK_MAX: Final = 500
EXPIRED_CHARACTERS_PER_TICK_MAX: Final = 64 * 1024
"""Tombstones that are written together must fit into one batch."""


def timeout_due(table: TransactionTable, transactional_id: str, now_ms: int) -> Outcome[TransactionRecord]:
    """A transaction has had its time: it is aborted, and its producer has to begin anew or hear of it."""
    known = table.transactions.get(transactional_id)
    if known is None or known.state is not TransactionState.ONGOING:
        return Outcome()

    def again(_code: ErrorCode, failed_ms: int) -> Outcome[TransactionRecord]:
        interval_ms = table.config().transaction_abort_timed_out_transaction_cleanup_interval_ms
        table.timers.set((TIMEOUT, transactional_id), failed_ms + interval_ms)
        return Outcome()

    return Outcome(fenced(known, table.transaction_version(), now_ms), not_written=again)


def schedule_expiry(table: TransactionTable, now_ms: int) -> None:
    interval_ms = table.config().transaction_remove_expired_transaction_cleanup_interval_ms
    table.timers.set(EXPIRY, now_ms + interval_ms)


def expiry_due(table: TransactionTable, now_ms: int) -> Outcome[TransactionRecord]:
    """Tombstones for the ids that were idle longest; if there are many, some now and more with the next tick."""
    schedule_expiry(table, now_ms)
    since_ms = now_ms - table.config().transactional_id_expiration_ms
    tombstones: list[TransactionRecord] = []
    characters = 0
    for transactional_id, last_update_ms in table.idle.items():
        if last_update_ms > since_ms:
            break
        if len(tombstones) == EXPIRED_IDS_PER_TICK_MAX or characters > EXPIRED_CHARACTERS_PER_TICK_MAX:
            table.timers.set(EXPIRY, now_ms)
            break
        tombstones.append(forgotten(transactional_id))
        characters += len(transactional_id)
    return Outcome(tombstones, not_written=lambda _code, failed_ms: _later(table, failed_ms))


def _later(table: TransactionTable, failed_ms: int) -> Outcome[TransactionRecord]:
    schedule_expiry(table, failed_ms)
    return Outcome()
