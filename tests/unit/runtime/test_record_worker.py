"""Jobs for the record worker are done, or fail at once and cleanly when its process dies, hangs or talks nonsense."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, TypeVar

import pytest

from ottla.log import names
from ottla.log.compaction import CleanedGroup, CompactionError, CompactionJob
from ottla.log.disk import RealDisk
from ottla.model.errors import ApiError, CorruptLogError, ErrorCode, InvalidRecordsError
from ottla.runtime.record_worker import RecordWorker, RecordWorkerError
from ottla.wire.batch import set_max_timestamp
from ottla.wire.compression import Codec
from ottla.wire.records import Record, build_batch, iterate
from tests.unit.log.files_of_batches import FilesOfBatches

T = TypeVar("T")

SECONDS_MAX = 100
"""For a machine that compiles the kernels first."""


def run(coroutine: Coroutine[Any, Any, T]) -> T:
    async def bounded() -> T:
        async with asyncio.timeout(SECONDS_MAX):
            return await coroutine

    return asyncio.run(bounded())


def batch_of(*keys: bytes | None, value: bytes = b"v", offset: int = 0, codec: int = 0) -> bytes:
    return bytes(build_batch([Record(offset + at, 0, key, value) for at, key in enumerate(keys)], codec=codec))


def compacted_files(directory: Path, segments: int = 4, batches: int = 6) -> FilesOfBatches:
    files = FilesOfBatches(RealDisk(), str(directory))
    offset = 0
    for _ in range(segments):
        base_offset = offset
        written = []
        for _ in range(batches):
            written.append(batch_of(b"a", b"b", value=b"v" * 1000, offset=offset))
            offset += 2
        files.add_segment(base_offset, written)
    return files


def end_of(files: FilesOfBatches) -> int:
    return files.batches()[-1][0].last_offset + 1


def slow_job(files: FilesOfBatches) -> CompactionJob:
    """A job that writes its first file at once and its last one long after."""
    last = files.segments[-1].base_offset
    return files.job(end_of(files), segment_bytes=1, first_dirty_offset=last, io_bytes_per_second_max=25_000.0)


async def until(condition: Callable[[], bool]) -> None:
    """Wait for something that another process does, which tells nobody."""

    def poll() -> None:
        while not condition():
            time.sleep(0.01)

    await asyncio.to_thread(poll)


def is_writing(files: FilesOfBatches) -> bool:
    return any(name.endswith(names.CLEANED) for name in files.names())


def is_running(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


def test_batches_are_judged_and_compressed_and_many_at_a_time() -> None:
    async def scenario() -> None:
        worker = RecordWorker()
        assert worker.pid is None
        await worker.warm()
        pid = worker.pid
        judged = [batch_of(b"k", None if at % 3 else b"k") for at in range(300)]
        verdicts = await asyncio.gather(
            *(worker.validate(batch, requires_keys=True) for batch in judged), return_exceptions=True
        )
        for at, verdict in enumerate(verdicts):
            if at % 3 == 0:
                assert verdict is judged[at]
            else:
                assert isinstance(verdict, InvalidRecordsError)
                assert [record for record, _ in verdict.record_errors] == [1]
        batches = [batch_of(b"%d" % at, value=b"v" * 300, codec=Codec(at % 5)) for at in range(100)]
        changed = await asyncio.gather(*(worker.recompress(batch, Codec.ZSTD, 1, 1 << 20) for batch in batches))
        assert [iterate(batch) for batch in changed] == [iterate(batch) for batch in batches]
        assert worker.pid == pid
        await worker.close()
        assert worker.pid is None

    run(scenario())


def test_a_batch_that_lies_is_refused_with_a_code_that_a_client_understands() -> None:
    async def scenario() -> None:
        worker = RecordWorker()
        lying = bytearray(batch_of(b"k", b"k"))
        lying[57:61] = (1).to_bytes(4, "big")
        with pytest.raises(ApiError) as caught:
            await worker.validate(bytes(lying), requires_keys=False)
        assert caught.value.code is ErrorCode.INVALID_RECORD
        with pytest.raises(ApiError) as caught:
            await worker.recompress(bytes(lying), Codec.LZ4, None, 1 << 20)
        assert caught.value.code is ErrorCode.INVALID_RECORD
        await worker.validate(batch_of(b"k"), requires_keys=True)
        await worker.close()

    run(scenario())


def test_timestamps_are_judged_and_a_header_comes_back_corrected() -> None:
    async def scenario() -> None:
        worker = RecordWorker()
        honest = bytes(build_batch([Record(at, time, b"k", b"v") for at, time in enumerate([50, 70, 60])]))
        lying = bytearray(honest)
        set_max_timestamp(memoryview(lying), 51)
        assert await worker.validate(bytes(lying), requires_keys=False, timestamp_range=(50, 70)) == honest
        with pytest.raises(InvalidRecordsError) as caught:
            await worker.validate(bytes(lying), requires_keys=False, timestamp_range=(51, 69))
        assert caught.value.code is ErrorCode.INVALID_TIMESTAMP
        assert [record for record, _ in caught.value.record_errors] == [0, 1]
        await worker.close()

    run(scenario())


def test_a_log_is_compacted_group_by_group_while_batches_are_judged(tmp_path: Path) -> None:
    files = compacted_files(tmp_path)
    end = end_of(files)
    heard: list[CleanedGroup] = []

    async def scenario() -> None:
        worker = RecordWorker()
        compaction = asyncio.ensure_future(worker.compact(files.job(end, segment_bytes=1), heard.append))
        await worker.validate(batch_of(b"k"), requires_keys=True)
        result = await compaction
        assert result.groups == heard
        assert len(heard) == 4
        files.put_in_place(result)
        await worker.close()

    run(scenario())
    assert [record.offset for record in files.records()] == [end - 2, end - 1]


def test_a_damaged_log_is_told_apart_from_a_job_that_failed(tmp_path: Path) -> None:
    files = compacted_files(tmp_path)
    end = end_of(files)

    async def scenario() -> None:
        worker = RecordWorker()
        with pytest.raises(CompactionError, match="FileNotFoundError"):
            await worker.compact(files.job(end, directory=str(tmp_path / "nowhere")))
        last = files.segments[-1]
        files.disk.open(files.path(last.base_offset, names.LOG)).pwrite(b"?", last.size - 1)
        with pytest.raises(CorruptLogError, match="CRC"):
            await worker.compact(files.job(end))
        await worker.close()

    run(scenario())


def test_a_worker_that_is_killed_fails_its_jobs_and_the_next_one_does_them(tmp_path: Path) -> None:
    files = compacted_files(tmp_path, segments=50)
    end, before = end_of(files), files.batches()

    async def scenario() -> None:
        worker = RecordWorker()
        compaction = asyncio.ensure_future(worker.compact(slow_job(files)))
        await until(lambda: is_writing(files))
        first = worker.pid
        assert first is not None
        os.kill(first, signal.SIGKILL)
        with pytest.raises(RecordWorkerError, match="process ended"):
            await compaction
        assert files.batches() == before
        assert is_writing(files)
        files.put_in_place(await worker.compact(files.job(end)))
        assert worker.pid != first
        await worker.close()

    run(scenario())
    assert [record.offset for record in files.records()] == [end - 2, end - 1]
    assert not is_writing(files)


def test_a_compaction_that_is_cancelled_makes_room_for_the_next(tmp_path: Path) -> None:
    files = compacted_files(tmp_path, segments=50)

    async def scenario() -> None:
        worker = RecordWorker()
        slow = asyncio.ensure_future(worker.compact(slow_job(files)))
        await until(lambda: is_writing(files))
        slow.cancel()
        with pytest.raises(asyncio.CancelledError):
            await slow
        await worker.compact(files.job(end_of(files)))
        await worker.close()

    run(scenario())


def test_closing_fails_what_is_under_way_and_takes_no_more(tmp_path: Path) -> None:
    files = compacted_files(tmp_path, segments=50)

    async def scenario() -> None:
        worker = RecordWorker()
        slow = asyncio.ensure_future(worker.compact(slow_job(files)))
        await until(lambda: is_writing(files))
        pid = worker.pid
        assert pid is not None
        await worker.close()
        with pytest.raises(RecordWorkerError):
            await slow
        assert not is_running(pid)
        with pytest.raises(RecordWorkerError, match="closing"):
            await worker.validate(batch_of(b"k"), requires_keys=False)

    run(scenario())


def test_no_process_is_started_after_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """A broker inside a program has an end before its process has: nobody would end such a child."""
    started: list[object] = []

    async def start(*command: str, **_options: Any) -> asyncio.subprocess.Process:
        started.append(command)
        raise OSError("not in this test")

    monkeypatch.setattr(asyncio, "create_subprocess_exec", start)

    async def scenario() -> None:
        worker = RecordWorker()
        await worker.close()
        with pytest.raises(RecordWorkerError, match="closing"):
            await worker.validate(batch_of(b"k"), requires_keys=False)
        assert started == []

    run(scenario())


def test_a_worker_without_work_leaves_and_comes_back() -> None:
    async def scenario() -> None:
        worker = RecordWorker(idle_seconds=0.01)
        await worker.warm()
        first = worker.pid
        if first is not None:
            await until(lambda: not is_running(first))
        await worker.validate(batch_of(b"k"), requires_keys=True)
        assert worker.pid != first
        await worker.close()

    run(scenario())


PARENT = """
import asyncio, os, signal
from ottla.runtime.record_worker import RecordWorker

async def main():
    worker = RecordWorker()
    await worker.warm()
    print(worker.pid, flush=True)
    os.kill(os.getpid(), signal.SIGKILL)

asyncio.run(main())
"""


def test_a_worker_does_not_outlive_its_broker() -> None:
    broker = subprocess.run([sys.executable, "-c", PARENT], stdout=subprocess.PIPE, timeout=SECONDS_MAX, check=False)
    assert broker.returncode == -signal.SIGKILL

    async def scenario() -> None:
        await until(lambda: not is_running(int(broker.stdout)))

    run(scenario())


# -- workers that misbehave; these are not ours, so they start at once


def impostor(code: str) -> tuple[str, ...]:
    return (sys.executable, "-c", code)


SILENT = impostor("import sys; sys.stdin.buffer.read()")


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        ("pass", "process ended"),
        ("import sys; sys.stdout.buffer.write(b'\\xff' * 100)", "nonsense"),
        ("import sys; sys.stdout.buffer.write(b'\\0\\0\\0\\5hello')", "nonsense"),
        ("import sys; sys.stdout.buffer.write(b'\\0\\0\\0\\5he')", "process ended"),
    ],
)
def test_a_worker_that_ends_or_talks_nonsense_fails_its_jobs(code: str, reason: str) -> None:
    async def scenario() -> None:
        worker = RecordWorker(command=impostor(code))
        with pytest.raises(RecordWorkerError, match=reason) as caught:
            await worker.validate(batch_of(b"k"), requires_keys=True)
        assert caught.value.code is ErrorCode.REQUEST_TIMED_OUT
        await worker.close()

    run(scenario())


def test_a_worker_that_is_gone_before_its_first_job_is_no_hang(monkeypatch: pytest.MonkeyPatch) -> None:
    start = asyncio.create_subprocess_exec

    async def start_and_outlive(*command: str, **options: Any) -> asyncio.subprocess.Process:
        process = await start(*command, **options)
        await process.wait()
        return process

    monkeypatch.setattr(asyncio, "create_subprocess_exec", start_and_outlive)

    async def scenario() -> None:
        worker = RecordWorker(command=impostor("pass"))
        with pytest.raises(RecordWorkerError, match="process ended"):
            async with asyncio.timeout(10):
                await worker.validate(batch_of(b"k"), requires_keys=True)
        await worker.close()

    run(scenario())


def test_a_worker_that_hangs_is_ended() -> None:
    async def scenario() -> None:
        worker = RecordWorker(command=SILENT, silence_seconds_max=0.1)
        jobs = [asyncio.ensure_future(worker.validate(batch_of(b"k"), requires_keys=True)) for _ in range(3)]
        done, _ = await asyncio.wait(jobs)
        assert all(isinstance(job.exception(), RecordWorkerError) for job in done)
        assert worker.pid is None
        await worker.close()

    run(scenario())


def test_a_worker_that_cannot_be_started_is_an_error_and_no_hang() -> None:
    async def scenario() -> None:
        worker = RecordWorker(command=("/nowhere/python",))
        with pytest.raises(RecordWorkerError, match="does not start"):
            await worker.validate(batch_of(b"k"), requires_keys=True)
        await worker.close()

    run(scenario())


@pytest.mark.parametrize("bounds", [{"jobs_max": 3}, {"bytes_max": 3000}])
def test_work_that_waits_is_bounded(bounds: dict[str, int]) -> None:
    async def scenario() -> None:
        worker = RecordWorker(command=SILENT, **bounds)
        batch = batch_of(b"k", value=b"v" * 1000)
        jobs = [asyncio.ensure_future(worker.validate(batch, requires_keys=True)) for _ in range(5)]
        done, waiting = await asyncio.wait(jobs, return_when=asyncio.FIRST_COMPLETED)
        while len(done) < 2:
            more, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            done |= more
        assert all("wait already" in str(job.exception()) for job in done)
        assert len(waiting) == 3
        await worker.close()
        await asyncio.wait(waiting)
        assert all(isinstance(job.exception(), RecordWorkerError) for job in waiting)

    run(scenario())


def test_a_caller_that_gives_up_leaves_nothing_behind() -> None:
    async def scenario() -> None:
        worker = RecordWorker()
        await worker.warm()
        started = time.monotonic()
        given_up = asyncio.ensure_future(worker.validate(batch_of(b"k"), requires_keys=True))
        await asyncio.sleep(0)
        given_up.cancel()
        with pytest.raises(InvalidRecordsError):
            await worker.validate(batch_of(None), requires_keys=True)
        assert time.monotonic() - started < SECONDS_MAX
        await worker.close()

    run(scenario())
