"""The control batch that ends a transaction in a partition: one record that says how, and who says so.

key: version i16 = 0 | kind i16, 0 for abort and 1 for commit        value: version i16 = 0 | coordinator epoch i32
"""

from __future__ import annotations

from struct import Struct
from typing import Final

from ottla.wire.batch import CONTROL_BIT, TRANSACTIONAL_BIT
from ottla.wire.records import Record, build_batch

ABORT: Final = 0
COMMIT: Final = 1

_VERSION: Final = 0
_KEY: Final = Struct(">hh")
_VALUE: Final = Struct(">hi")


def build_marker(
    producer_id: int, producer_epoch: int, coordinator_epoch: int, *, committed: bool, timestamp: int
) -> bytearray:
    """A marker as a coordinator has it written; the log gives it its place."""
    key = _KEY.pack(_VERSION, COMMIT if committed else ABORT)
    return build_batch(
        [Record(0, timestamp, key, _VALUE.pack(_VERSION, coordinator_epoch))],
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        attributes=TRANSACTIONAL_BIT | CONTROL_BIT,
    )
