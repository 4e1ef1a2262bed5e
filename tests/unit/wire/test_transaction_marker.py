"""A marker says what Kafka's readers look for."""

from __future__ import annotations

from ottla.wire.batch import CONTROL_BIT, TRANSACTIONAL_BIT, crc_matches, read_header
from ottla.wire.records import iterate
from ottla.wire.transaction_marker import build_marker


def test_a_marker_is_a_control_batch_of_one_record() -> None:
    for committed in (True, False):
        marker = build_marker(9, 3, 0x01020304, committed=committed, timestamp=77)
        header = read_header(marker)
        assert crc_matches(memoryview(marker), header)
        assert header.attributes == TRANSACTIONAL_BIT | CONTROL_BIT
        assert (header.producer_id, header.producer_epoch, header.base_sequence) == (9, 3, -1)
        (record,) = iterate(marker)
        assert record.key == bytes([0, 0, 0, committed])
        assert record.value == b"\x00\x00\x01\x02\x03\x04"
        assert record.timestamp == header.max_timestamp == 77
