"""Apache Kafka's own dump-log tool must read what we write.

Needs Java and Kafka's jars: KAFKA_JARS names the directory that holds them, or KAFKA_HOME an installation.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from ottla.log.disk import RealDisk
from ottla.log.partition_log import PartitionLog
from ottla.model.configs.resolve import TopicConfig
from ottla.wire.compression import Codec
from tests.unit.log.support import NOW_MS, ProducerFields, append, batch_of, marker_of, open_log


def kafka_jars() -> Path | None:
    named = [os.environ.get("KAFKA_JARS"), os.path.join(os.environ.get("KAFKA_HOME", "/nonexistent"), "libs")]
    return next((Path(name) for name in named if name and list(Path(name).glob("kafka-tools-*.jar"))), None)


JARS = kafka_jars()

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(JARS is None or shutil.which("java") is None, reason="needs java, and KAFKA_JARS or KAFKA_HOME"),
]


def complaints(stderr: str) -> list[str]:
    """What the tool has against our files. Of every segment, Kafka's too, it says that -1 comes before its start."""
    lines = [line for line in stderr.splitlines() if not re.fullmatch(r"  -1 is followed by \d+", line)]
    return [line for line in lines if not line.startswith("Non-consecutive offsets in ")]


def dump_log(files: list[str], *options: str) -> str:
    """What the tool prints; it complains on stderr and goes on, so anything there is a failure."""
    done = subprocess.run(
        ["java", "-cp", f"{JARS}/*", "org.apache.kafka.tools.DumpLogSegments", "--files", ",".join(files), *options],
        capture_output=True,
        text=True,
        check=False,
        timeout=100,
    )
    assert (done.returncode, complaints(done.stderr)) == (0, []), done.stdout[-2000:]
    return done.stdout


def written_log(directory: Path) -> PartitionLog:
    """Three segments: plain, compressed and transactional batches of two producers, one transaction open at the end."""
    log = open_log(RealDisk(), str(directory), config=TopicConfig(index_interval_bytes=500))
    sequence = 0
    for number in range(60):
        fields = ProducerFields(7, 1, sequence) if number % 2 else None
        codec = [Codec.NONE, Codec.GZIP, Codec.LZ4, Codec.ZSTD, Codec.SNAPPY][number % 5]
        batch = batch_of(3, timestamp=NOW_MS + number * 10, value=bytes(40), producer=fields, codec=codec)
        append(log, batch, leader_epoch=number // 20, now_ms=NOW_MS)
        sequence += 3 if fields else 0
        if number in (20, 40):
            log.roll(NOW_MS)
    for start, commit in ((0, True), (2, False)):
        append(log, batch_of(2, producer=ProducerFields(9, 0, start), transactional=True), leader_epoch=3)
        append(log, marker_of(9, 0, commit=commit, coordinator_epoch=5), leader_epoch=3)
    append(log, batch_of(1, producer=ProducerFields(9, 0, 4), transactional=True), leader_epoch=3)
    log.close()
    return log


def test_kafka_dumps_our_batches_indexes_and_snapshots_without_complaint(tmp_path: Path) -> None:
    directory = tmp_path / "orders-3"
    log = written_log(directory)
    files = [str(path) for path in sorted(directory.iterdir()) if path.suffix in (".log", ".index", ".timeindex")]
    assert len(files) == 9

    printed = dump_log(files, "--deep-iteration", "--print-data-log")

    assert printed.count("| offset:") == log.log_end_offset
    assert "isvalid: false" not in printed
    assert printed.count("isvalid: true") == 60 + 5
    assert "endTxnMarker: COMMIT coordinatorEpoch: 5" in printed
    assert "endTxnMarker: ABORT coordinatorEpoch: 5" in printed


def test_kafka_finds_our_indexes_sane_and_matching(tmp_path: Path) -> None:
    directory = tmp_path / "orders-3"
    written_log(directory)
    files = [str(path) for path in sorted(directory.iterdir()) if path.suffix in (".index", ".timeindex")]

    assert dump_log(files, "--index-sanity-check").count("passed sanity check") == 6
    dump_log(files, "--verify-index-only")


def test_kafka_reads_our_transaction_indexes(tmp_path: Path) -> None:
    directory = tmp_path / "orders-3"
    log = written_log(directory)
    (index,) = directory.glob("*.txnindex")
    (aborted,) = log.aborted_transactions(0, log.log_end_offset)

    printed = dump_log([str(index)])

    assert f"version: 0 producerId: 9 firstOffset: {aborted.first_offset} lastOffset: {aborted.last_offset}" in printed
    assert f"lastStableOffset: {aborted.last_offset + 1}" in printed


def test_kafka_reads_our_producer_snapshots(tmp_path: Path) -> None:
    directory = tmp_path / "orders-3"
    log = written_log(directory)
    last = directory / f"{log.log_end_offset:020d}.snapshot"

    printed = dump_log([str(last)])

    assert "producerId: 7 producerEpoch: 1 coordinatorEpoch: -1 currentTxnFirstOffset: OptionalLong.empty" in printed
    opened = f"currentTxnFirstOffset: OptionalLong[{log.log_end_offset - 1}]"
    assert f"producerId: 9 producerEpoch: 0 coordinatorEpoch: 5 {opened}" in printed
    assert "firstSequence: 87 lastSequence: 89" in printed
