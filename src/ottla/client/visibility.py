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
from ottla.wire.batch import BatchHeader, iterate

_CONTROL_KEY: Final = Struct(">hh")
_ABORT: Final = 0


def visible_batches(
    fetched: memoryview, isolation: Isolation, aborted: Sequence[tuple[int, int]] = ()
) -> Iterator[tuple[int, BatchHeader]]:
    """Position and header of each whole batch whose records may be shown."""
    waiting = sorted(aborted, key=lambda entry: entry[1], reverse=True)
    aborting: set[int] = set()
    for position, header in iterate(fetched):
        while waiting and waiting[-1][1] <= header.last_offset:
            aborting.add(waiting.pop()[0])
        if header.is_control:
            if header.producer_id in aborting and is_abort_marker(fetched[position : position + header.size]):
                aborting.discard(header.producer_id)
        elif isolation is Isolation.READ_UNCOMMITTED or not (
            header.is_transactional and header.producer_id in aborting
        ):
            yield position, header


def whole_batches(fetched: memoryview, offset: int) -> tuple[memoryview, int]:
    """`fetched` without the batch that is cut off at its end, and the offset after its last whole batch.

    `offset` is where the fetch began, and what comes back if there is no whole batch.
    """
    end = 0
    for position, header in iterate(fetched):
        end, offset = position + header.size, header.last_offset + 1
    return fetched[:end], offset


def is_abort_marker(batch: memoryview) -> bool:
    """Whether a control batch says that its producer's transaction was aborted."""
    for record in records.iterate(batch):
        if record.key is not None and len(record.key) >= _CONTROL_KEY.size:
            return bool(_CONTROL_KEY.unpack_from(record.key)[1] == _ABORT)
    return False
