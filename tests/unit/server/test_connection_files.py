"""Consumers get the bytes of the log exactly, however slowly they read and wherever the bytes are."""

from __future__ import annotations

import asyncio
import hashlib
import os
import random
from collections.abc import Iterator
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from ottla.model.chunks import Chunks, FileSlice, SendableFile
from ottla.server.dispatch import Peer
from ottla.server.output import GATHERED_BYTES_MAX, WARM_BYTES_MAX
from ottla.server.platform import WOULD_WAIT, Platform, PortablePlatform
from tests.unit.server.conftest import Run
from tests.unit.server.loopback import Serve, ThreadOffload, echo, numbered, until

LOG_BYTES = 100_000_000


class LogFile:
    """An open file, and how often it was read."""

    def __init__(self, path: Path) -> None:
        self.fd = os.open(path, os.O_RDONLY)
        self.reads = 0

    def fileno(self) -> int:
        return self.fd

    def pread(self, size: int, position: int) -> bytes:
        self.reads += 1
        return os.pread(self.fd, size, position)

    def close(self) -> None:
        os.close(self.fd)


@pytest.fixture(scope="module")
def log_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("log") / "00000000000000000000.log"
    block = random.Random(1).randbytes(1_000_003)
    with path.open("wb") as file:
        for start in range(0, LOG_BYTES, len(block)):
            file.write(block[: LOG_BYTES - start])
    return path


@pytest.fixture
def log_file(log_path: Path) -> Iterator[LogFile]:
    file = LogFile(log_path)
    yield file
    file.close()


class ColdPlatform(PortablePlatform):
    """Nothing is in memory until a thread has read something."""

    def is_resident(self, file: SendableFile, position: int, length: int) -> bool:
        return False

    def read_now(self, file: SendableFile, into: memoryview, position: int) -> int:
        return WOULD_WAIT


def test_a_slow_reader_gets_100_megabytes_whole(run: Run, serve: Serve, log_file: LogFile, log_path: Path) -> None:
    async def main() -> None:
        def dispatch(_: Peer, request: memoryview) -> Chunks:
            return [b"header", FileSlice(log_file, 1000, LOG_BYTES - 1000), b"trailer"]

        rng = random.Random(2)
        digest = hashlib.sha1()
        async with serve(dispatch) as server, await server.connect(receive_buffer_bytes=1 << 18) as client:
            await client.ask(numbered(0))
            assert await client.read(10) == (LOG_BYTES - 1000 + 13).to_bytes(4, "big") + b"header"
            left = LOG_BYTES - 1000
            while left:
                part = await client.read(min(left, rng.choice((1, 1000, 70_000, 1_000_000))))
                digest.update(part)
                left -= len(part)
                await asyncio.sleep(0)
            assert await client.read(7) == b"trailer"
            assert digest.digest() == expected

    expected = hashlib.sha1(log_path.read_bytes()[1000:]).digest()
    run(main)


def test_many_short_slices_arrive_in_place(run: Run, serve: Serve, log_file: LogFile, log_path: Path) -> None:
    async def main() -> None:
        rng = random.Random(3)
        sizes = (1, 100, 5000, GATHERED_BYTES_MAX, GATHERED_BYTES_MAX + 1, 200_000)
        slices = [FileSlice(log_file, rng.randrange(1_000_000), rng.choice(sizes)) for _ in range(200)]
        chunks: Chunks = []
        for number, slice_ in enumerate(slices):
            chunks += [b"partition %d" % number, slice_]
        expected = b"".join(
            chunk if isinstance(chunk, bytes) else log[chunk.position : chunk.position + chunk.length]
            for chunk in chunks
            if isinstance(chunk, bytes | FileSlice)
        )
        async with serve(lambda *_: list(chunks)) as server, await server.connect() as client:
            await client.ask(numbered(0), numbered(1))
            assert await client.answers(2) == [expected, expected]

    log = log_path.read_bytes()
    run(main)


def test_a_huge_fetch_does_not_keep_others_waiting(run: Run, serve: Serve, log_file: LogFile) -> None:
    async def main() -> None:
        def dispatch(peer: Peer, request: memoryview) -> Chunks:
            if bytes(request) == numbered(0):
                return [FileSlice(log_file, 0, 50_000_000)]
            return echo(peer, request)

        async with serve(dispatch) as server, await server.connect() as slow, await server.connect() as quick:
            await slow.ask(numbered(0))
            reading = asyncio.create_task(slow.answer())
            await until(lambda: server.metrics.bytes_out > 0)
            for number in range(1, 6):
                await quick.ask(numbered(number))
                assert await quick.answer() == numbered(number)
            assert len(await reading) == 50_000_000

    run(main)


def test_a_slice_that_is_not_in_memory_is_read_by_a_thread_first(run: Run, log_file: LogFile, log_path: Path) -> None:
    async def main() -> None:
        long = WARM_BYTES_MAX + 1_000_000
        chunks: Chunks = [b"a", FileSlice(log_file, 10, 2000), b"b", FileSlice(log_file, 5000, long), b"c"]
        async with Serve(ColdPlatform())(lambda *_: list(chunks)) as server, await server.connect() as client:
            await client.ask(numbered(0))
            assert await client.answer() == b"a" + log[10:2010] + b"b" + log[5000 : 5000 + long] + b"c"
            assert server.metrics.cold_reads == 3
            offload = server.share.offload
            assert isinstance(offload, ThreadOffload)
            assert offload.calls == 3

    log = log_path.read_bytes()
    run(main)


def test_other_answers_wait_while_a_thread_reads(run: Run, log_file: LogFile) -> None:
    async def main() -> None:
        def dispatch(peer: Peer, request: memoryview) -> Chunks:
            return [FileSlice(log_file, 0, 500_000)] if bytes(request) == numbered(0) else echo(peer, request)

        async with Serve(ColdPlatform())(dispatch) as server, await server.connect() as client:
            await client.ask(numbered(0))
            await client.ask(numbered(1))
            assert len(await client.answer()) == 500_000
            assert await client.answer() == numbered(1)

    run(main)


def test_a_client_may_leave_while_a_thread_reads(run: Run, log_file: LogFile) -> None:
    async def main() -> None:
        async with Serve(ColdPlatform())(lambda *_: [FileSlice(log_file, 0, 90_000_000)]) as server:
            client = await server.connect()
            await client.ask(numbered(0))
            await until(lambda: server.metrics.cold_reads == 1)
            client.close()
            await until(lambda: not server.listener.connections)

    run(main)


@pytest.mark.parametrize("length", [1000, 500_000])
@pytest.mark.parametrize("cold", [False, True])
def test_a_file_that_was_cut_short_closes_the_connection(
    run: Run, platform: Platform, tmp_path: Path, length: int, cold: bool
) -> None:
    """A wrong length was promised already: closing is all that tells the consumer."""

    async def main() -> None:
        serve = Serve(ColdPlatform() if cold else platform)
        chunks: Chunks = [b"h", FileSlice(file, 0, length)]
        async with serve(lambda *_: list(chunks)) as server, await server.connect() as client:
            with capture_logs() as lines:
                await client.ask(numbered(0))
                assert len(await client.read(length + 5)) < length + 5
                await until(lambda: not server.listener.connections)
            assert [line["event"] for line in lines] == ["connection failed"]

    path = tmp_path / "short.log"
    path.write_bytes(b"x" * (length - 100))
    file = LogFile(path)
    run(main)
    file.close()
