"""Transactions as compaction meets them, batch by batch from the start of a log.

Records of an aborted transaction go, whatever their keys. A transaction's marker goes only after the last of its
batches has gone, and then only when its delete horizon has passed: until then readers need it to know how the
transaction ended, and replicas to know the producer's epoch.
"""

from __future__ import annotations

from collections.abc import Iterable
from heapq import heapify, heappop
from struct import Struct
from typing import Final

from ottla.log.transaction_index import AbortedTransaction
from ottla.model.errors import ApiError
from ottla.wire.records import iterate

ABORT: Final = 0
COMMIT: Final = 1
NO_RECORD: Final = -1
UNREADABLE: Final = -2

_CONTROL_KEY: Final = Struct(">hh")


class TransactionTrail:
    """Which transactions are open at the place that was reached, and how they will end."""

    __slots__ = ("_aborted", "_aborting", "_committing", "_seen", "kept_aborted")

    def __init__(self, aborted: Iterable[AbortedTransaction]) -> None:
        self._aborted = [(transaction.first_offset, number, transaction) for number, transaction in enumerate(aborted)]
        heapify(self._aborted)
        self._aborting: dict[int, AbortedTransaction] = {}
        """By producer."""
        self._seen: dict[int, None] = {}
        """Producers of aborting transactions of which a batch is still there."""
        self._committing: dict[int, None] = {}
        self.kept_aborted: list[AbortedTransaction] = []
        """What the transaction index of the segment that is being written has to hold; whoever writes it empties it."""

    def is_aborted(self, producer_id: int, last_offset: int) -> bool:
        """Pass a batch of a transaction's records; true if nobody may see them."""
        self._reach(last_offset)
        if producer_id in self._aborting:
            self._seen[producer_id] = None
            return True
        self._committing[producer_id] = None
        return False

    def is_spent(self, producer_id: int, last_offset: int, marker: int) -> bool:
        """Pass a control batch, see `marker_of`; true if none of its transaction's batches is left."""
        self._reach(last_offset)
        if marker == ABORT:
            transaction = self._aborting.pop(producer_id, None)
            if transaction is None or producer_id not in self._seen:
                return True
            del self._seen[producer_id]
            self.kept_aborted.append(transaction)
            return False
        if marker == COMMIT:
            was_open = producer_id in self._committing
            self._committing.pop(producer_id, None)
            return not was_open
        return marker == NO_RECORD

    def _reach(self, offset: int) -> None:
        while self._aborted and self._aborted[0][0] <= offset:
            _, _, transaction = heappop(self._aborted)
            self._aborting.setdefault(transaction.producer_id, transaction)


def marker_of(batch: bytes | memoryview) -> int:
    """How a control batch ends its transaction: ABORT, COMMIT, another kind, NO_RECORD or UNREADABLE."""
    try:
        records = iterate(batch, crc_check=False)
    except ApiError:
        return UNREADABLE
    if not records:
        return NO_RECORD
    key = records[0].key
    if key is None or len(key) < _CONTROL_KEY.size:
        return UNREADABLE
    _, kind = _CONTROL_KEY.unpack_from(key)
    return int(kind)
