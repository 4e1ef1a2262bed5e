"""What must be found in a log of which all batches are known, wherever they lie: for tests that let a log live."""

from __future__ import annotations

import random
from collections.abc import Sequence
from functools import partial

from ottla.log.partition_log import PartitionLog
from ottla.log.producer_replay import replay
from ottla.log.producer_state import ProducerStates
from ottla.log.transaction_index import AbortedTransaction
from ottla.wire.batch import read_header
from ottla.wire.records import Record
from ottla.wire.records import iterate as iterate_records
from tests.unit.log.support import check_indexes, read_all, read_headers


def check_log(log: PartitionLog, batches: Sequence[bytes], rng: random.Random, *, has_youngest: bool = True) -> None:
    """The log has these batches, and every way to them leads there.

    Not `has_youngest`: batches that compaction has emptied keep the times of their records.
    """
    assert read_all(log, rng.choice([1, 300, 1 << 20])) == list(batches)
    check_indexes(log)
    _check_places(log, batches, rng)
    _check_times(log, batches, rng, has_youngest)
    _check_epochs(log, batches)


def replayed(batches: Sequence[bytes]) -> tuple[ProducerStates, list[AbortedTransaction]]:
    """What these batches say of their producers, and which transactions were aborted."""
    producers, aborted = ProducerStates(), []
    for batch in batches:
        completed = replay(producers, read_header(batch), partial(bytes, batch))
        if completed is not None and completed.aborted:
            aborted.append(producers.index_entry_of(completed))
    return producers, aborted


def check_producers(log: PartitionLog, batches: Sequence[bytes]) -> None:
    """For a log that has never lost its beginning."""
    expected, aborted = replayed(batches)
    end = log.log_end_offset
    assert sorted(log.producers.to_snapshot()) == sorted(expected.to_snapshot())
    assert log.producers.last_stable_offset(end) == expected.last_stable_offset(end)
    indexes = [segment.transactions for segment in log.segments if segment.transactions is not None]
    assert [entry for index in indexes for entry in index.entries()] == aborted
    assert log.aborted_transactions(0, end) == aborted


def _check_places(log: PartitionLog, batches: Sequence[bytes], rng: random.Random) -> None:
    headers = [read_header(batch) for batch in batches]
    for _ in range(3 if headers else 0):
        offset = rng.choice(headers).base_offset + rng.randint(-2, 2)
        if log.log_start_offset <= offset < log.log_end_offset:
            found = read_headers(log.read(offset, 1, log.log_end_offset, True))
            assert found[:1] == [header for header in headers if header.last_offset >= offset][:1]


def _check_times(log: PartitionLog, batches: Sequence[bytes], rng: random.Random, has_youngest: bool) -> None:
    everything = [record for batch in batches for record in iterate_records(batch)]
    records = [record for record in everything if record.offset >= log.log_start_offset]
    timed = [record.timestamp for record in records if record.timestamp >= 0]
    for wanted in {0, *(rng.choice(timed) + rng.randint(-1, 1) for _ in range(4 if timed else 0))}:
        found = log.offset_for_timestamp(wanted, log.log_end_offset)
        first = next((record for record in records if record.timestamp >= wanted), None)
        assert _place(first) == (None if found is None else (found.offset, found.timestamp))
    if has_youngest and log.log_start_offset == log.segments[0].base_offset:
        youngest = log.offset_of_max_timestamp()
        first = next((record for record in records if timed and record.timestamp == max(timed)), None)
        assert _place(first) == (None if youngest is None else (youngest.offset, youngest.timestamp))


def _place(record: Record | None) -> tuple[int, int] | None:
    return None if record is None else (record.offset, record.timestamp)


def _check_epochs(log: PartitionLog, batches: Sequence[bytes]) -> None:
    for header in map(read_header, batches):
        assert log.epochs.epoch_of(max(header.base_offset, log.log_start_offset)) == header.partition_leader_epoch
