"""What a Kafka consumer that reads committed transactions makes of a log."""

from __future__ import annotations

from ottla.log.partition_log import PartitionLog
from ottla.wire.batch import BatchHeader, iterate
from ottla.wire.records import Record
from ottla.wire.records import iterate as iterate_records
from tests.unit.log.support import read_bytes


def read_committed(log: PartitionLog, stable: int, max_bytes: int) -> list[Record]:
    """Every record that may be seen below the last stable offset, fetched in pieces of about `max_bytes`."""
    found: list[Record] = []
    offset = log.log_start_offset
    while offset < stable:
        records = log.read(offset, max_bytes, stable, True)
        if records is None:
            break
        data = read_bytes(records)
        aborted = log.aborted_in(records, offset, stable)
        batches = [(header, data[at : at + header.size]) for at, header in iterate(data)]
        found += _shown(batches, [(entry.producer_id, entry.first_offset) for entry in aborted])
        offset = batches[-1][0].last_offset + 1
    return found


def _shown(batches: list[tuple[BatchHeader, bytes]], aborted: list[tuple[int, int]]) -> list[Record]:
    """The records of one fetched piece, without those of the aborted transactions that came with it."""
    waiting = sorted(aborted, key=lambda entry: entry[1])
    dropped: set[int] = set()
    found: list[Record] = []
    for header, batch in batches:
        while waiting and waiting[0][1] <= header.last_offset:
            dropped.add(waiting.pop(0)[0])
        records = iterate_records(batch)
        if header.is_control:
            if records and (records[0].key or b"")[2:4] == b"\x00\x00":
                dropped.discard(header.producer_id)
        elif not (header.is_transactional and header.producer_id in dropped):
            found += records
    return found
