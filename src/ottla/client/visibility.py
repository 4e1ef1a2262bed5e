"""Which of the fetched batches a reader may see.

Control batches carry no records for readers. Under READ_COMMITTED the broker sends everything below the last stable
offset, with a list of the aborted transactions in the range; the reader leaves out what they wrote. A transaction in
that list begins at its first offset and ends with its abort marker, a control batch of the same producer.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from struct import Struct
from typing import Final

from ottla.client.offsets import Isolation
from ottla.wire import records
from ottla.wire.batch import CONTROL_BIT, TRANSACTIONAL_BIT, BatchHeader, iterate

_CONTROL_KEY: Final = Struct(">hh")
_ABORT: Final = 0


def visible_batches(
    fetched: memoryview, isolation: Isolation, aborted: Sequence[tuple[int, int]] = ()
) -> Iterator[tuple[int, BatchHeader]]:
    """Position and header of each whole batch whose records may be shown."""
    transactions = AbortedTransactions(() if isolation is Isolation.READ_UNCOMMITTED else aborted)
    for position, header in iterate(fetched):
        batch = fetched[position : position + header.size]
        hidden = transactions.hide(header.last_offset, header.producer_id, header.attributes, batch)
        if not header.is_control and not hidden:
            yield position, header


class AbortedTransactions:
    """Follows the aborted transactions of a fetch through its batches, which come in their order."""

    __slots__ = ("_aborting", "_waiting")

    def __init__(self, aborted: Sequence[tuple[int, int]]) -> None:
        self._waiting = sorted(aborted, key=lambda entry: entry[1], reverse=True)
        self._aborting: set[int] = set()

    def hide(self, last_offset: int, producer_id: int, attributes: int, batch: memoryview) -> bool:
        """Whether the records of a batch belong to one of them."""
        while self._waiting and self._waiting[-1][1] <= last_offset:
            self._aborting.add(self._waiting.pop()[0])
        if producer_id not in self._aborting:
            return False
        if attributes & CONTROL_BIT:
            if _is_abort_marker(batch):
                self._aborting.discard(producer_id)
            return False
        return bool(attributes & TRANSACTIONAL_BIT)


def whole_batches(fetched: memoryview, offset: int) -> tuple[memoryview, int]:
    """`fetched` without the batch that is cut off at its end, and the offset after its last whole batch.

    `offset` is where the fetch began, and what comes back if there is no whole batch.
    """
    end = 0
    for position, header in iterate(fetched):
        end, offset = position + header.size, header.last_offset + 1
    return fetched[:end], offset


def _is_abort_marker(batch: memoryview) -> bool:
    """Whether a control batch says that its producer's transaction was aborted."""
    for record in records.iterate(batch):
        if record.key is not None and len(record.key) >= _CONTROL_KEY.size:
            return bool(_CONTROL_KEY.unpack_from(record.key)[1] == _ABORT)
    return False
