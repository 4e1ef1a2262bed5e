"""A reader of committed transactions sees all of a transaction or nothing of it, whatever happened to the log.

Producers write in and out of transactions, coordinators end them, segments are rolled, the log is cut, closed, killed,
and its transaction indexes are damaged. A plain list of what was written says what must be found.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from ottla.log.transaction_index import AbortedTransaction
from ottla.model.configs.resolve import TopicConfig
from ottla.wire.batch import TRANSACTIONAL_BIT, read_header
from ottla.wire.records import Record, build_batch
from tests.properties.committed_reader import read_committed
from tests.unit.log.crash_disk import CrashDisk
from tests.unit.log.support import NOW_MS, append, marker_of, open_log

DIRECTORY = "/data/orders-3"
PRODUCERS = st.integers(1, 4)


@dataclass
class Written:
    """A batch that is in the log: of records, or a marker."""

    base_offset: int
    end_offset: int
    producer_id: int
    transactional: bool
    values: list[bytes] = field(default_factory=list)
    commits: bool | None = None


@dataclass
class Transaction:
    """A transaction as the list of batches tells it."""

    producer_id: int
    first_offset: int
    marker: Written | None = None


class TransactionsInLog(RuleBasedStateMachine):
    """The log and the list."""

    def __init__(self) -> None:
        super().__init__()
        self.disk = CrashDisk()
        self.disk.makedirs("/data")
        self.written: list[Written] = []
        self.high_watermark = 0
        self.number = 0

    @initialize(segment_bytes=st.sampled_from([300, 800, 1 << 20]), interval=st.sampled_from([1, 200, 4096]))
    def begin(self, segment_bytes: int, interval: int) -> None:
        self.config = TopicConfig(segment_bytes=segment_bytes, index_interval_bytes=interval)
        self.log = open_log(self.disk, DIRECTORY, config=self.config)

    # -- the list

    def transactions(self) -> list[Transaction]:
        found: list[Transaction] = []
        opened: dict[int, Transaction] = {}
        for batch in self.written:
            if batch.commits is None:
                if batch.transactional and batch.producer_id not in opened:
                    transaction = Transaction(batch.producer_id, batch.base_offset)
                    opened[batch.producer_id] = transaction
                    found.append(transaction)
            elif batch.producer_id in opened:
                opened.pop(batch.producer_id).marker = batch
        return found

    def is_open(self, producer_id: int) -> bool:
        return any(t.producer_id == producer_id and t.marker is None for t in self.transactions())

    def stable_offset(self) -> int:
        unstable = [
            t.first_offset
            for t in self.transactions()
            if t.marker is None or t.marker.base_offset >= self.high_watermark
        ]
        return min([*unstable, self.high_watermark])

    def aborted(self) -> list[AbortedTransaction]:
        """In the order of the markers."""
        everything = self.transactions()
        found = []
        for t in everything:
            if t.marker is not None and t.marker.commits is False:
                at = t.marker.base_offset
                still_open = [
                    other.first_offset
                    for other in everything
                    if other is not t
                    and other.first_offset < at
                    and (other.marker is None or other.marker.base_offset > at)
                ]
                found.append(AbortedTransaction(t.producer_id, t.first_offset, at, min([*still_open, at + 1])))
        return sorted(found, key=lambda entry: entry.last_offset)

    def visible(self, end_offset: int) -> list[bytes]:
        """The values that a reader of committed transactions must get."""
        hidden: set[int] = set()
        for t in self.transactions():
            if t.marker is None or not t.marker.commits:
                last = self.log.log_end_offset if t.marker is None else t.marker.base_offset
                hidden |= {
                    b.base_offset
                    for b in self.written
                    if b.producer_id == t.producer_id and b.transactional and t.first_offset <= b.base_offset < last
                }
        batches = (b for b in self.written if b.end_offset <= end_offset and b.base_offset not in hidden)
        return [value for batch in batches for value in batch.values]

    # -- what happens

    def _put(self, batch: bytearray, written: Written, *, as_follower: bool) -> None:
        offset = self.log.log_end_offset
        if as_follower:
            header = read_header(batch)
            batch[0:8] = offset.to_bytes(8, "big")
            self.log.append_as_follower(memoryview(batch), NOW_MS)
            assert self.log.log_end_offset == offset + header.last_offset_delta + 1
        else:
            assert append(self.log, batch).base_offset == offset
        written.base_offset, written.end_offset = offset, self.log.log_end_offset
        self.written.append(written)

    @rule(
        producer_id=st.none() | PRODUCERS,
        transactional=st.booleans(),
        count=st.integers(1, 3),
        as_follower=st.booleans(),
    )
    def write(self, producer_id: int | None, transactional: bool, count: int, as_follower: bool) -> None:
        if producer_id is None:
            producer_id, transactional = -1, False
        elif self.is_open(producer_id):
            transactional = True
        values = [f"value-{self.number + index}".encode() for index in range(count)]
        self.number += count
        known = {p.producer_id: p for p in self.log.producers.active_producers()}
        batch = build_batch(
            [Record(index, NOW_MS, b"key", value) for index, value in enumerate(values)],
            producer_id=producer_id,
            producer_epoch=0 if producer_id >= 0 else -1,
            base_sequence=known[producer_id].next_sequence if producer_id in known else (0 if producer_id >= 0 else -1),
            attributes=TRANSACTIONAL_BIT if transactional else 0,
        )
        self._put(batch, Written(0, 0, producer_id, transactional, values), as_follower=as_follower)

    @rule(producer_id=PRODUCERS, commits=st.booleans(), as_follower=st.booleans())
    def end_transaction(self, producer_id: int, commits: bool, as_follower: bool) -> None:
        batch = marker_of(producer_id, 0, commit=commits)
        self._put(batch, Written(0, 0, producer_id, True, commits=commits), as_follower=as_follower)

    @rule()
    def roll(self) -> None:
        self.log.roll(NOW_MS)

    @rule()
    def sync(self) -> None:
        target = self.log.flush_target()
        self.log.sync_until(target)
        self.log.mark_flushed(target)

    @rule(share=st.floats(0, 1))
    def advance(self, share: float) -> None:
        ends = [batch.end_offset for batch in self.written if batch.end_offset >= self.high_watermark]
        if ends:
            self.high_watermark = ends[int(share * (len(ends) - 1))]

    @rule(back=st.integers(1, 12))
    def truncate(self, back: int) -> None:
        offset = max(self.log.log_end_offset - back, 0)
        self.log.delete_files(self.log.truncate_to(offset))
        self.written = [batch for batch in self.written if batch.end_offset <= offset]
        # What is cut off was never below the high watermark, and what is left is.
        self.high_watermark = self.log.log_end_offset

    @rule()
    def restart(self) -> None:
        self.log.close()
        self._open(clean=True)

    @rule(recovery_point_known=st.booleans())
    def kill(self, recovery_point_known: bool) -> None:
        self.disk = self.disk.crash_with_everything()
        self._open(clean=False, recovery_point=self.log.recovery_point if recovery_point_known else 0)

    @precondition(lambda self: self._indexes())
    @rule(data=st.data(), clean=st.booleans())
    def damage(self, data: st.DataObject, clean: bool) -> None:
        """Garbage in a transaction index is found wherever it is, a missing end where recovery looks."""
        if clean:
            self.log.close()
        else:
            self.disk = self.disk.crash_with_everything()
        file = self.disk.open(data.draw(st.sampled_from(self._indexes())))
        kind = data.draw(st.sampled_from(["garbage", "torn"] if clean else ["garbage", "torn", "lost", "zeros"]))
        if kind == "garbage":
            file.pwrite(b"\xa5" * 11, data.draw(st.integers(0, file.size())))
        elif kind == "zeros":
            file.pwrite(bytes(50), 0)
        else:
            file.truncate(file.size() - 1 if kind == "torn" and file.size() else 0)
        self._open(clean=clean)

    def _indexes(self) -> list[str]:
        names = (name for name in self.disk.listdir(DIRECTORY) if name.endswith(".txnindex"))
        return [f"{DIRECTORY}/{name}" for name in names]

    def _open(self, *, clean: bool, recovery_point: int = 0) -> None:
        end = self.log.log_end_offset
        self.log = open_log(self.disk, DIRECTORY, config=self.config, clean=clean, recovery_point=recovery_point)
        assert self.log.log_end_offset == end
        self.high_watermark = end

    # -- what must hold

    @invariant()
    def stable_is_what_the_list_says(self) -> None:
        assert self.log.producers.last_stable_offset(self.high_watermark) == self.stable_offset()

    @invariant()
    def aborted_is_what_the_list_says(self) -> None:
        expected = self.aborted()
        stored = [e for s in self.log.segments if s.transactions is not None for e in s.transactions.entries()]
        assert stored == expected
        stable = self.stable_offset()
        for start, end in ((0, stable), (stable // 2, stable), (0, stable // 2), (stable // 3, 2 * stable // 3)):
            if start < end:
                wanted = [e for e in expected if e.last_offset >= start and e.first_offset < end]
                assert self.log.aborted_transactions(start, end) == wanted

    @invariant()
    def a_reader_sees_all_or_nothing(self) -> None:
        stable = self.stable_offset()
        for max_bytes in (1, 250, 1 << 20):
            seen = read_committed(self.log, stable, max_bytes)
            assert [record.value for record in seen] == self.visible(stable)


TestTransactionsInLog = TransactionsInLog.TestCase
TestTransactionsInLog.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
