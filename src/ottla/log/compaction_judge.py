"""What becomes of a batch in compaction: from its header alone, and again when its records have been judged.

For the record worker only: it imports compiled code. Decisions are made for all batches of a chunk at once, in arrays;
only batches of transactions, whose order matters, are looked at one by one.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from ottla.log.compaction import CompactionJob, ProducerTail
from ottla.log.compaction_read import Chunk, Numbers, Row, Run
from ottla.log.compaction_transactions import TransactionTrail, marker_of
from ottla.log.transaction_index import AbortedTransaction
from ottla.wire.batch import CONTROL_BIT, DELETE_HORIZON_BIT, TRANSACTIONAL_BIT
from ottla.wire.compiled.batches import Header, Policy, Span

Flags = npt.NDArray[np.bool_]


class Verdicts(NamedTuple):
    """What is known of the batches of a chunk before their records have been judged."""

    policy: Numbers
    is_discarded: Flags
    """None of its records stays."""
    is_kept_empty: Flags
    """Its header stays, even if no record does."""
    is_spent_marker: Flags
    """A transaction's marker that nobody needs once its delete horizon has passed."""


class Action:
    """What is to be written of a batch."""

    DROP: Final = 0
    KEEP: Final = 1
    """All of it, byte for byte."""
    EMPTY: Final = 2
    """Its header."""
    REWRITE: Final = 3
    """Its header and the records that stay."""


class Outcomes(NamedTuple):
    """What becomes of the batches of a run; everything counted from the run's first."""

    action: Numbers
    starts_horizon: Flags
    """It is rewritten with a delete horizon, which it had not."""
    read: Numbers
    """Records; none for a batch that lies about them."""
    kept: Numbers


def last_offset_of(row: Row) -> int:
    return row[Header.BASE_OFFSET] + row[Header.LAST_OFFSET_DELTA]


def last_offsets_of(headers: Numbers) -> Numbers:
    return headers[:, Header.BASE_OFFSET] + headers[:, Header.LAST_OFFSET_DELTA]


def in_transactions(headers: Numbers) -> list[int]:
    """The numbers of batches that belong to transactions or end them."""
    numbers: list[int] = np.flatnonzero(headers[:, Header.ATTRIBUTES] & (TRANSACTIONAL_BIT | CONTROL_BIT)).tolist()
    return numbers


class BatchJudge:
    """Sees every batch of a log once, in order."""

    def __init__(self, job: CompactionJob, map_end: int) -> None:
        self._job = job
        self._map_end = map_end
        self._trail = TransactionTrail(job.aborted)
        self._producers: dict[int, ProducerTail] = {tail.producer_id: tail for tail in job.producers}

    def take_kept_aborted(self) -> list[AbortedTransaction]:
        """The aborted transactions that the segment just written still has markers of."""
        kept, self._trail.kept_aborted = self._trail.kept_aborted, []
        return kept

    def before_reading(self, chunk: Chunk) -> Verdicts:
        headers = chunk.headers
        has_horizon = (headers[:, Header.ATTRIBUTES] & DELETE_HORIZON_BIT) != 0
        horizon_passed = has_horizon & (headers[:, Header.BASE_TIMESTAMP] <= self._job.now_ms)
        policy = np.where(horizon_passed, Policy.BY_KEY_NO_TOMBSTONES, Policy.BY_KEY).astype(np.int64)
        policy[headers[:, Header.BASE_OFFSET] >= self._map_end] = Policy.OPAQUE
        nothing = np.zeros(len(policy), np.bool_)
        verdicts = Verdicts(policy, nothing, self._kept_empty(chunk), nothing.copy())
        for number in in_transactions(headers):
            self._look_at_transaction(chunk, number, verdicts, bool(horizon_passed[number]))
        return verdicts

    def _look_at_transaction(self, chunk: Chunk, number: int, verdicts: Verdicts, horizon_passed: bool) -> None:
        row = chunk.rows[number]
        producer_id, last_offset = row[Header.PRODUCER_ID], last_offset_of(row)
        if row[Header.ATTRIBUTES] & CONTROL_BIT:
            is_spent = self._trail.is_spent(producer_id, last_offset, marker_of(chunk.batch(row)))
            verdicts.is_spent_marker[number] = is_spent
            verdicts.is_discarded[number] = is_spent and horizon_passed
            verdicts.policy[number] = Policy.KEEP
        elif self._trail.is_aborted(producer_id, last_offset):
            verdicts.is_discarded[number] = True
        if verdicts.is_discarded[number]:
            verdicts.policy[number] = Policy.OPAQUE

    def _kept_empty(self, chunk: Chunk) -> Flags:
        last_offsets = last_offsets_of(chunk.headers)
        # The last batch stays in any case: it alone says where the cleaned part ends.
        kept: Flags = last_offsets + 1 == self._job.first_uncleanable_offset
        if self._producers:
            for number in np.flatnonzero(chunk.headers[:, Header.PRODUCER_ID] >= 0).tolist():
                if self._is_last_of_producer(chunk.rows[number]):
                    kept[number] = True
        return kept

    def _is_last_of_producer(self, row: Row) -> bool:
        tail = self._producers.get(row[Header.PRODUCER_ID])
        if tail is None:
            return False
        if tail.last_data_offset >= 0:
            return last_offset_of(row) == tail.last_data_offset
        is_control = row[Header.ATTRIBUTES] & CONTROL_BIT != 0
        return is_control and row[Header.PRODUCER_EPOCH] == tail.producer_epoch

    def after_reading(self, run: Run, verdicts: Verdicts) -> Outcomes:
        """What is left of the batches of a run, whose records have been judged."""
        here = slice(run.first, run.last)
        headers, spans = run.chunk.headers[here], run.spans[here]
        is_discarded, is_kept_empty = verdicts.is_discarded[here], verdicts.is_kept_empty[here]
        is_spent_marker = verdicts.is_spent_marker[here]
        is_opaque = spans[:, Span.POLICY] == Policy.OPAQUE
        stays_unread = is_opaque & ~is_discarded
        count = headers[:, Header.RECORD_COUNT]
        kept = np.where(is_opaque, np.where(is_discarded, 0, count), spans[:, Span.KEPT])
        needs_horizon = ~is_opaque & ((spans[:, Span.KEPT_TOMBSTONES] > 0) | is_spent_marker)
        starts_horizon = needs_horizon & ((headers[:, Header.ATTRIBUTES] & DELETE_HORIZON_BIT) == 0)
        has_records = (kept > 0) | stays_unread
        action = np.select(
            [has_records & (kept == count) & ~starts_horizon, has_records, is_kept_empty & (count == 0), is_kept_empty],
            [np.int64(action) for action in (Action.KEEP, Action.REWRITE, Action.KEEP, Action.EMPTY)],
            np.int64(Action.DROP),
        )
        is_sound = spans[:, Span.FAULT] == 0
        return Outcomes(action, starts_horizon, np.where(is_sound, count, 0), np.where(is_sound, kept, 0))
