"""The broker's hand on its record worker, a child process that looks into records.

Theory of operation. The child starts with the first job and ends when it has had none for a while, when the broker
closes it, or when the broker is gone: it reads from a pipe that ends then. Requests are written as they come, without
waiting for the answers to earlier ones, so many producers share one round trip. Each request has a number and a future
here.

What an editor must keep true:
- A child that dies, or that says nothing for too long and is killed, fails every job that it had, at once; the next job
  starts a new one. No job waits for an answer that cannot come.
- Work that waits is bounded in number and in bytes. What comes beyond that is refused with an error that clients retry.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import Callable, Sequence
from typing import Final, TypeVar

from ottla.log.compaction import CleanedGroup, CompactionError, CompactionJob, CompactionResult
from ottla.model.errors import ApiError, CorruptLogError, ErrorCode, InvalidRecordsError, MalformedMessageError
from ottla.runtime.record_frames import (
    FRAME_BYTES_MAX,
    LENGTH,
    Cancel,
    Compact,
    Compacted,
    Failed,
    GroupCleaned,
    Progress,
    Recompress,
    Recompressed,
    Refused,
    Reply,
    Request,
    Validate,
    Validated,
    Warm,
    Warmed,
    decode_reply,
    encode,
)

IDLE_SECONDS: Final = 60.0
SILENCE_SECONDS_MAX: Final = 120.0
"""A child that has work and says nothing for so long is taken for dead. Compiling, once per machine, takes ten."""
JOBS_MAX: Final = 10_000
BYTES_MAX: Final = 256 << 20
READ_AHEAD_BYTES: Final = 1 << 20
COMMAND: Final = (sys.executable, "-m", "ottla.runtime.record_worker_main")

_T = TypeVar("_T", bound=Reply)


class RecordWorkerError(ApiError):
    """The worker did not do the job, for a reason that is not in the job: worth another try."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.REQUEST_TIMED_OUT, f"record worker: {message}")


class _Job:
    """A request whose last reply has not come."""

    __slots__ = ("future", "on_group", "size")

    def __init__(
        self, future: asyncio.Future[Reply], size: int, on_group: Callable[[CleanedGroup], None] | None
    ) -> None:
        self.future = future
        self.size = size
        self.on_group = on_group


class _Child:
    """One process, from its start to its end."""

    def __init__(self, process: asyncio.subprocess.Process, silence_seconds_max: float) -> None:
        if process.stdin is None or process.stdout is None:
            raise RecordWorkerError("it has no pipes")
        self.process = process
        self.jobs: dict[int, _Job] = {}
        self.bytes_waiting = 0
        self.is_closed = False
        """Takes no more jobs."""
        self.end_reason = "its process ended"
        self._stdin = process.stdin
        self._stdout = process.stdout
        self._loop = asyncio.get_running_loop()
        self._silence_seconds_max = silence_seconds_max
        self._heard = self._loop.time()
        self._watch: asyncio.TimerHandle | None = None
        self.reading = self._loop.create_task(self._read(), name="record-worker-replies")

    def send(self, number: int, request: Request, on_group: Callable[[CleanedGroup], None] | None = None) -> _Job:
        frame = encode(request)
        job = _Job(self._loop.create_future(), len(frame), on_group)
        if not self.jobs:
            self._heard = self._loop.time()
        self.jobs[number] = job
        self.bytes_waiting += job.size
        self._stdin.write(frame)
        if self._watch is None:
            self._watch = self._loop.call_later(self._silence_seconds_max, self._look)
        return job

    def cancel(self, number: int) -> None:
        """Let the child know that nobody waits for a compaction any more; its last reply is still owed."""
        if not self.is_closed:
            self._stdin.write(encode(Cancel(number)))

    async def drain(self) -> None:
        """Wait while the pipe is full."""
        with contextlib.suppress(ConnectionError):
            await self._stdin.drain()

    def close(self) -> None:
        """End of input: the child leaves by itself."""
        self.is_closed = True
        self._stdin.close()

    def kill(self) -> None:
        self.is_closed = True
        with contextlib.suppress(ProcessLookupError):
            self.process.kill()

    def _look(self) -> None:
        """Is it alive?"""
        self._watch = None
        if not self.jobs:
            return
        left = self._heard + self._silence_seconds_max - self._loop.time()
        if left <= 0:
            self.kill()
        else:
            self._watch = self._loop.call_later(left, self._look)

    async def _read(self) -> None:
        try:
            while True:
                (size,) = LENGTH.unpack(await self._stdout.readexactly(LENGTH.size))
                if size > FRAME_BYTES_MAX:
                    raise MalformedMessageError(f"a frame of {size} bytes")
                self._take(decode_reply(await self._stdout.readexactly(size)))
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        except (MalformedMessageError, ValueError) as error:
            self.end_reason = f"it sent nonsense: {error}"
        finally:
            self.kill()
            self._fail_all(self.end_reason)
            if self._watch is not None:
                self._watch.cancel()
            await self.process.wait()

    def _take(self, reply: Reply) -> None:
        self._heard = self._loop.time()
        job = self.jobs.get(reply.id)
        if job is None or isinstance(reply, Progress):
            return
        if isinstance(reply, GroupCleaned):
            if job.on_group is not None and not job.future.done():
                job.on_group(reply.group)
            return
        self._forget(reply.id)
        if not job.future.done():
            job.future.set_result(reply)

    def _forget(self, number: int) -> None:
        job = self.jobs.pop(number, None)
        if job is not None:
            self.bytes_waiting -= job.size

    def _fail_all(self, reason: str) -> None:
        for number, job in list(self.jobs.items()):
            self._forget(number)
            if not job.future.done():
                job.future.set_exception(RecordWorkerError(reason))


class RecordWorker:
    """Runs jobs in a child process that comes and goes as it is needed. Everything here belongs to one loop."""

    def __init__(
        self,
        *,
        idle_seconds: float = IDLE_SECONDS,
        silence_seconds_max: float = SILENCE_SECONDS_MAX,
        jobs_max: int = JOBS_MAX,
        bytes_max: int = BYTES_MAX,
        command: Sequence[str] = COMMAND,
    ) -> None:
        self._idle_seconds = idle_seconds
        self._silence_seconds_max = silence_seconds_max
        self._jobs_max = jobs_max
        self._bytes_max = bytes_max
        self._command = command
        self._child: _Child | None = None
        """The one that takes jobs."""
        self._children: dict[_Child, None] = {}
        """All whose process has not ended yet."""
        self._starting: asyncio.Task[_Child] | None = None
        self._idle: asyncio.TimerHandle | None = None
        self._last_number = 0
        self._is_closed = False

    @property
    def pid(self) -> int | None:
        """The child's, None if there is none now."""
        return None if self._child is None or self._child.is_closed else self._child.process.pid

    async def validate(
        self, batch: bytes, *, requires_keys: bool, timestamp_range: tuple[int, int] | None = None
    ) -> bytes:
        """The batch as it may be appended to a topic that asks for a look into its records; ApiError if it may not be.

        InvalidRecordsError where it is known which records are at fault.
        """
        reply = await self._ask(Validate(self._number(), batch, requires_keys, timestamp_range), Validated)
        return batch if reply.corrected is None else reply.corrected

    async def recompress(self, batch: bytes, codec: int, level: int | None, batch_bytes_max: int) -> bytes:
        """The same batch in another codec; ApiError if its records are not what its header claims, or it gets longer
        than that: such a one does not come back here, where a few kilobytes would have become gigabytes."""
        reply = await self._ask(Recompress(self._number(), batch, codec, level, batch_bytes_max), Recompressed)
        return reply.batch

    async def compact(
        self, job: CompactionJob, on_group: Callable[[CleanedGroup], None] | None = None
    ) -> CompactionResult:
        """Carry out a round of compaction; `on_group` hears of each group as soon as its files are complete.

        Raises CorruptLogError if a batch does not match its checksum, else CompactionError or RecordWorkerError; then
        `.cleaned` files may be left in the directory, which the next job for it removes. One job at a time for one
        directory is the caller's to see to. Cancelling the call cancels the job.
        """
        reply = await self._ask(Compact(self._number(), job), Compacted, on_group)
        return reply.result

    async def warm(self) -> None:
        """Have the child start and load its compiled code, so that the first job finds it ready."""
        await self._ask(Warm(self._number()), Warmed)

    async def close(self) -> None:
        """End the child. Jobs that are under way fail."""
        self._is_closed = True
        if self._idle is not None:
            self._idle.cancel()
        if self._starting is not None:
            await asyncio.wait([self._starting])
        for child in self._children:
            child.kill()
        if self._children:
            await asyncio.wait([child.reading for child in self._children])

    def _number(self) -> int:
        self._last_number += 1
        return self._last_number

    async def _ask(
        self, request: Request, expected: type[_T], on_group: Callable[[CleanedGroup], None] | None = None
    ) -> _T:
        self._check_open()
        child = self._child
        if child is None or child.is_closed:
            child = await self._start()
        self._check_open()
        self._check_takes_jobs(child)
        job = child.send(request.id, request, on_group)
        try:
            await child.drain()
            reply = await job.future
        except asyncio.CancelledError:
            if expected is Compacted:
                child.cancel(request.id)
            raise
        finally:
            self._rest_later()
        return _expected(reply, expected)

    def _check_open(self) -> None:
        """Nobody ends a child that is started after the end."""
        if self._is_closed:
            raise RecordWorkerError("the broker is closing")

    def _check_takes_jobs(self, child: _Child) -> None:
        if child.is_closed:
            # It ended before it could be asked: nobody reads its answers any more.
            raise RecordWorkerError(child.end_reason)
        if len(child.jobs) >= self._jobs_max or child.bytes_waiting >= self._bytes_max:
            raise RecordWorkerError(f"{len(child.jobs)} jobs with {child.bytes_waiting} bytes wait already; try again")

    async def _start(self) -> _Child:
        """The running child, started if there is none; callers that come meanwhile wait for the same one."""
        if self._starting is None:
            self._starting = asyncio.get_running_loop().create_task(self._start_child())
        return await asyncio.shield(self._starting)

    async def _start_child(self) -> _Child:
        try:
            process = await asyncio.create_subprocess_exec(
                *self._command,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                limit=READ_AHEAD_BYTES,
                start_new_session=True,
            )
            child = self._child = _Child(process, self._silence_seconds_max)
            self._children[child] = None
            child.reading.add_done_callback(lambda _: self._children.pop(child, None))
            return child
        except OSError as error:
            raise RecordWorkerError(f"it does not start: {error}") from error
        finally:
            self._starting = None

    def _rest_later(self) -> None:
        """Start the clock after the last job."""
        if self._idle is not None:
            self._idle.cancel()
        self._idle = asyncio.get_running_loop().call_later(self._idle_seconds, self._rest)

    def _rest(self) -> None:
        if self._child is None or self._child.is_closed:
            return
        if self._child.jobs:
            self._rest_later()
        else:
            self._child.close()


def _expected(reply: Reply, expected: type[_T]) -> _T:
    """The reply, or the error that it stands for."""
    if isinstance(reply, expected):
        return reply
    if isinstance(reply, Refused):
        if reply.record_errors:
            raise InvalidRecordsError(ErrorCode(reply.code), reply.message, reply.record_errors)
        raise ApiError(ErrorCode(reply.code), reply.message)
    if isinstance(reply, Failed):
        if reply.is_corrupt_log:
            raise CorruptLogError(reply.message)
        if expected is Compacted:
            raise CompactionError(reply.message)
        raise RecordWorkerError(reply.message)
    raise RecordWorkerError(f"it answered {type(reply).__name__}")
