"""Apache Kafka's own tool reads a cleaned segment and finds nothing wrong with it or its indexes.

Needs Java and Kafka's jars: KAFKA_JARS names the directory that holds them, or KAFKA_HOME an installation.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from ottla.log import names
from ottla.log.compaction import ProducerTail
from ottla.log.disk import RealDisk
from ottla.wire.compression import Codec
from ottla.wire.records import Record, build_batch
from tests.unit.log.files_of_batches import FilesOfBatches

JARS = os.environ.get("KAFKA_JARS") or os.path.join(os.environ.get("KAFKA_HOME", "/nonexistent"), "libs")

pytestmark = pytest.mark.skipif(
    not os.path.isdir(JARS) or shutil.which("java") is None, reason="needs java, and KAFKA_JARS or KAFKA_HOME"
)


def dump(*options: str) -> str:
    command = ["java", "-cp", f"{JARS}/*", "org.apache.kafka.tools.DumpLogSegments", *options]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 0, done.stderr
    assert "Exception" not in done.stdout + done.stderr
    return done.stdout


def cleaned(directory: Path) -> FilesOfBatches:
    """A log with every codec, tombstones with a horizon, an empty batch of a producer, and gaps."""
    files = FilesOfBatches(RealDisk(), str(directory))
    offset = 0
    for codec in Codec:
        batches = []
        base_offset = offset
        for _ in range(20):
            records = [
                Record(offset + at, 10_000 + offset + at, b"key %d" % (at % 4), None if at == 3 else b"value " * 20)
                for at in range(6)
            ]
            batches.append(build_batch(records, codec=codec))
            offset += 6
        keyed = Record(offset, 10_000 + offset, b"key 0", b"of a producer")
        batches.append(build_batch([keyed], codec=codec, producer_id=77, producer_epoch=1, base_sequence=int(codec)))
        offset += 1
        batches.append(build_batch([Record(offset, 10_000 + offset, b"only %d" % codec, b"stays")], codec=codec))
        offset += 1
        files.add_segment(base_offset, batches)
    last_of_producer = offset - 2
    files.add_segment(offset, [build_batch([Record(offset, 10_000 + offset, b"key 0", b"last")])])
    files.compact(offset + 1, index_interval_bytes=10, producers=[ProducerTail(77, 1, last_of_producer)])
    return files


@pytest.mark.slow
def test_kafka_reads_every_record_that_stayed(tmp_path: Path) -> None:
    files = cleaned(tmp_path)
    (segment,) = files.segments
    printed = dump("--print-data-log", "--deep-iteration", "--files", files.path(segment.base_offset, names.LOG))
    lines = [line for line in printed.splitlines() if line.startswith("| offset:")]
    assert len(lines) == len(files.records())
    for line, record in zip(lines, files.records(), strict=True):
        key = (record.key or b"").decode()
        assert line.startswith(f"| offset: {record.offset} CreateTime: {record.timestamp} ")
        assert f" key: {key}" in line
        assert ("payload:" in line) == (record.value is not None)
    assert printed.count("isvalid: true") == len(files.batches())
    assert "isvalid: false" not in printed
    assert printed.count("deleteHorizonMs: OptionalLong[1001000]") == 1
    assert printed.count("producerId: 77 ") == 1


@pytest.mark.slow
def test_kafka_finds_the_indexes_right(tmp_path: Path) -> None:
    files = cleaned(tmp_path)
    (segment,) = files.segments
    paths = [files.path(segment.base_offset, kind) for kind in (names.OFFSET_INDEX, names.TIME_INDEX)]
    checked = dump("--index-sanity-check", "--files", ",".join(paths))
    assert checked.count("passed sanity check") == 2
    verified = dump("--verify-index-only", "--files", ",".join(paths))
    assert [line for line in verified.splitlines() if not line.startswith("Dumping")] == []
    assert dump("--files", paths[0]).count("position:") > 2
