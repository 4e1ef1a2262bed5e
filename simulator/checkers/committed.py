"""What is committed stays, and is the same everywhere: for partitions, and for the metadata log.

Theory of operation. The first replica that has a batch below its high watermark makes it committed, and from then on
the batch at that offset is known by its epoch and checksum. Each replica is compared as its own high watermark moves
on, and again, for the last batches, when its process was started anew. A leader of the newest epoch must hold all
that is committed. `reached` runs ahead of the batches that were read: it is told of every high watermark of a leader.

Transactions are followed along: a marker that comes once more (its sender did not hear that it was written) must end
nothing, since every transaction of these clients has an epoch of its own.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from typing import Final, NamedTuple

from ottla.log.partition_log import PartitionLog
from ottla.model.errors import ApiError
from ottla.wire.batch import BatchHeader, iterate
from simulator.findings import Findings

READ_BYTES: Final = 64 * 1024
CHECKED_AGAIN_BATCHES: Final = 30


class CommittedBatch(NamedTuple):
    """What tells one batch from another."""

    last_offset: int
    base_offset: int
    epoch: int
    crc: int


class CommittedLog:
    """The committed batches of one partition, as first seen."""

    __slots__ = (
        "_checked",
        "_findings",
        "_is_compacted",
        "_last_offsets",
        "_marked",
        "_name",
        "_open",
        "batches",
        "end_offset",
        "markers",
        "reached",
    )

    def __init__(self, name: str, findings: Findings, *, is_compacted: bool = False) -> None:
        self._is_compacted = is_compacted
        self._name = name
        self._findings = findings
        self.batches: list[CommittedBatch] = []
        self._last_offsets: list[int] = []
        self.end_offset = 0
        self.reached = 0
        """Everything below it was committed at some time."""
        self.markers = 0
        self._open: dict[int, int] = {}
        """The first offset of each transaction that no marker has ended, by its producer."""
        self._marked: dict[int, int] = {}
        """The epoch of the last marker of each producer."""
        self._checked: dict[str, tuple[int, int]] = {}
        """By replica: the number of its process, and up to where it was compared."""

    def look(self, replica: str, process: int, log: PartitionLog, high_watermark: int) -> bool:
        """Compare what a replica holds below its high watermark; False if not all of it could be had."""
        known_process, offset = self._checked.get(replica, (-1, 0))
        if known_process != process:
            offset = self._some_batches_before(min(self.end_offset, high_watermark))
        offset = max(offset, log.log_start_offset)
        while offset < high_watermark:
            try:
                found = log.read(offset, READ_BYTES, high_watermark, True)
            except ApiError:
                return False  # It is being closed, because its node stops or its directory failed.
            if found is None:
                break
            after = self._compare(replica, found.file.pread(found.length, found.position), offset, high_watermark)
            if after <= offset:
                break
            offset = after
        self._checked[replica] = process, offset
        return offset >= high_watermark

    def _some_batches_before(self, offset: int) -> int:
        index = bisect_left(self._last_offsets, offset)
        index = max(index - CHECKED_AGAIN_BATCHES, 0)
        return self.batches[index].base_offset if self.batches else 0

    def _compare(self, replica: str, data: bytes, offset: int, high_watermark: int) -> int:
        for _, header in iterate(memoryview(data)):
            if header.base_offset >= high_watermark:
                break
            batch = CommittedBatch(header.last_offset, header.base_offset, header.partition_leader_epoch, header.crc)
            if batch.last_offset >= self.end_offset:
                self.batches.append(batch)
                self._last_offsets.append(batch.last_offset)
                self.end_offset = batch.last_offset + 1
                self.reach(self.end_offset)
                if header.is_transactional:
                    self._follow(header)
            else:
                self._compare_known(replica, batch)
            offset = batch.last_offset + 1
        return offset

    def _compare_known(self, replica: str, batch: CommittedBatch) -> None:
        index = bisect_left(self._last_offsets, batch.last_offset)
        known = self.batches[index] if index < len(self.batches) else None
        # Each replica rewrites batches of a compacted topic when it likes; those that end together are of one epoch.
        is_other = known is None or known.last_offset != batch.last_offset or known.epoch == batch.epoch
        if self._is_compacted and is_other:
            return
        if known != batch and (known is None or self.batches[0].base_offset <= batch.base_offset):
            text = f"{self._name}: {replica} has {batch}, not {known}"
            self._findings.add("committed data is the same everywhere", text)

    def _follow(self, header: BatchHeader) -> None:
        """A new batch of a transaction, or the marker that ends one."""
        producer_id = header.producer_id
        if not header.is_control:
            self._open.setdefault(producer_id, header.base_offset)
            return
        begun = self._open.pop(producer_id, None)
        self.markers += 1
        if begun is not None and self._marked.get(producer_id) == header.producer_epoch:
            text = f"{self._name}: producer {producer_id}, epoch {header.producer_epoch}: the marker at offset"
            text += f" {header.base_offset} was there before, and ends what began at {begun}"
            self._findings.add("a marker ends one transaction", text)
        self._marked[producer_id] = header.producer_epoch

    def reach(self, high_watermark: int) -> None:
        """A leader says that it is committed up to there."""
        self.reached = max(self.reached, high_watermark)

    def check_stable(self, replica: str, last_stable_offset: int) -> None:
        """What a leader calls stable holds no open transaction."""
        first = min(self._open.values(), default=None)
        if first is not None and last_stable_offset > first:
            text = f"{self._name}: {replica} calls {last_stable_offset} stable, a transaction is open since {first}"
            self._findings.add("the last stable offset never passes an open transaction", text)

    def check_leader(self, replica: str, log_end_offset: int, describe: Callable[[], str]) -> None:
        """Whoever leads in the newest epoch holds everything that is committed."""
        if log_end_offset < self.reached:
            text = f"{replica} leads and ends at {log_end_offset}, committed is {self.reached} ({describe()})"
            self._findings.add("a leader holds everything that is committed", f"{self._name}: {text}")
