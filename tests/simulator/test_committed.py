"""What is committed stays: batches are compared, and markers of transactions are followed."""

from __future__ import annotations

from pathlib import Path

import pytest

from ottla.log.disk import RealDisk
from ottla.log.handles import OpenFiles
from ottla.log.partition_log import PartitionLog
from ottla.model.configs.resolve import TopicConfig
from ottla.model.ids import TopicPartition
from ottla.wire.batch import TRANSACTIONAL_BIT, read_header
from ottla.wire.records import Record, build_batch
from ottla.wire.transaction_marker import build_marker
from simulator.checkers.committed import CommittedLog
from simulator.findings import Findings


@pytest.fixture
def log(tmp_path: Path) -> PartitionLog:
    return open_log(tmp_path / "t-0")


def open_log(path: Path) -> PartitionLog:
    return PartitionLog.open(
        str(path), TopicPartition("t", 0), TopicConfig(), RealDisk(), OpenFiles(RealDisk(), 10), clean=False, now_ms=0
    )


def append(log: PartitionLog, value: bytes = b"v", *, producer: tuple[int, int] | None = None, epoch: int = 0) -> None:
    attributes = TRANSACTIONAL_BIT if producer else 0
    producer_id, producer_epoch = producer or (-1, -1)
    batch = build_batch(
        [Record(0, 0, b"k", value)],
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=0 if producer else -1,
        attributes=attributes,
    )
    log.append(memoryview(batch), read_header(batch), epoch, 0)


def mark(log: PartitionLog, producer_id: int, epoch: int) -> None:
    batch = build_marker(producer_id, epoch, 0, committed=True, timestamp=0)
    log.append(memoryview(batch), read_header(batch), 0, 0)


def rules(findings: Findings) -> list[str]:
    return [finding.rule for finding in findings.found]


def test_replicas_that_hold_the_same_are_fine_and_one_that_differs_is_not(log: PartitionLog, tmp_path: Path) -> None:
    findings = Findings(lambda: 0)
    committed = CommittedLog("t-0", findings)
    other = open_log(tmp_path / "other")
    for value in (b"a", b"b"):
        append(log, value)
        append(other, value)
    committed.look("node-1", 1, log, 2)
    committed.look("node-2", 1, other, 2)
    assert rules(findings) == []
    append(log, b"c")
    append(other, b"d")
    committed.look("node-1", 1, log, 3)
    committed.look("node-2", 1, other, 3)
    assert rules(findings) == ["committed data is the same everywhere"]


def test_a_leader_that_ends_below_what_any_leader_called_committed(log: PartitionLog) -> None:
    findings = Findings(lambda: 0)
    committed = CommittedLog("t-0", findings)
    committed.reach(3)
    committed.check_leader("node-1", 3, lambda: "")
    assert rules(findings) == []
    committed.check_leader("node-2", 2, lambda: "")
    assert rules(findings) == ["a leader holds everything that is committed"]


def test_a_repeated_marker_must_end_nothing(log: PartitionLog) -> None:
    findings = Findings(lambda: 0)
    committed = CommittedLog("t-0", findings)
    append(log, producer=(7, 0))
    mark(log, 7, 1)
    mark(log, 7, 1)
    committed.look("node-1", 1, log, 3)
    assert rules(findings) == []
    append(log, producer=(7, 1))
    mark(log, 7, 1)
    committed.look("node-1", 1, log, 5)
    assert rules(findings) == ["a marker ends one transaction"]


def test_what_is_stable_holds_no_open_transaction(log: PartitionLog) -> None:
    findings = Findings(lambda: 0)
    committed = CommittedLog("t-0", findings)
    append(log)
    append(log, producer=(7, 0))
    committed.look("node-1", 1, log, 2)
    committed.check_stable("node-1", 1)
    assert rules(findings) == []
    committed.check_stable("node-1", 2)
    assert rules(findings) == ["the last stable offset never passes an open transaction"]
