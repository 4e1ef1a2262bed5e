"""The record worker: a process of its own, so that neither numba's memory nor its time is the broker's.

Run as `python -m ottla.runtime.record_worker_main` by `RecordWorker`. Frames of `record_frames` come on stdin and go
out on what was stdout; the worker ends when stdin does, which is also when the broker is gone. Quick requests are
answered in turn on the main thread. Compactions run one after the other on a second thread of low priority, and most
of their time without the interpreter lock.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from queue import SimpleQueue
from typing import BinaryIO, Final

from ottla.log.compaction import CompactionError, CompactionJob
from ottla.log.disk import RealDisk
from ottla.model.errors import ApiError, CorruptLogError, InvalidRecordsError, OttlaError
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
    decode_request,
    encode,
)

NICENESS: Final = 10
PROGRESS_SECONDS: Final = 1.0
SWITCH_SECONDS: Final = 0.0005
"""How long a compaction may hold the interpreter while a producer's batch waits."""


class Pace:
    """Holds a compaction to its rate, ends it when it is cancelled, and says that it is alive."""

    def __init__(self, bytes_per_second_max: float, cancelled: threading.Event, report: Callable[[], None]) -> None:
        self._bytes_per_second_max = bytes_per_second_max
        self._cancelled = cancelled
        self._report = report
        self._started = self._reported = time.monotonic()
        self._bytes = 0

    def __call__(self, size: int) -> None:
        self._bytes += size
        now = time.monotonic()
        if now - self._reported >= PROGRESS_SECONDS:
            self._reported = now
            self._report()
        if self._bytes_per_second_max > 0:
            # Never longer than a report is due: a slow pace must not look like a hang.
            ahead = self._bytes / self._bytes_per_second_max - (now - self._started)
            while ahead > 0 and not self._cancelled.wait(min(ahead, PROGRESS_SECONDS)):
                ahead -= PROGRESS_SECONDS
                self._report()
        if self._cancelled.is_set():
            raise CompactionError("cancelled")


class Worker:
    """Answers requests until there are no more."""

    def __init__(self, source: BinaryIO, target_fd: int) -> None:
        self._source = source
        self._target_fd = target_fd
        self._target_lock = threading.Lock()
        self._compactions: SimpleQueue[Compact] = SimpleQueue()
        self._cancelled: dict[int, threading.Event] = {}
        threading.Thread(target=self._compact_forever, daemon=True, name="compaction").start()

    def run(self) -> None:
        while (request := self._next_request()) is not None:
            self._take(request)

    def _next_request(self) -> Request | None:
        prefix = self._source.read(LENGTH.size)
        if len(prefix) < LENGTH.size:
            return None
        (size,) = LENGTH.unpack(prefix)
        if size > FRAME_BYTES_MAX:
            raise OttlaError(f"a frame of {size} bytes")
        body = self._source.read(size)
        return decode_request(body) if len(body) == size else None

    def _take(self, request: Request) -> None:
        match request:
            case Compact():
                self._cancelled[request.id] = threading.Event()
                self._compactions.put(request)
            case Cancel():
                event = self._cancelled.get(request.id)
                if event is not None:
                    event.set()
            case _:
                self._send(answer(request))

    def _compact_forever(self) -> None:
        lower_priority()
        while True:
            request = self._compactions.get()
            self._send(self._compact(request.id, request.job))
            self._cancelled.pop(request.id, None)

    def _compact(self, number: int, job: CompactionJob) -> Reply:
        pace = Pace(job.io_bytes_per_second_max, self._cancelled[number], lambda: self._send(Progress(number)))
        return compact(number, job, pace, self._send)

    def _send(self, reply: Reply) -> None:
        view = memoryview(encode(reply))
        with self._target_lock:
            while view:
                view = view[os.write(self._target_fd, view) :]


def answer(request: Validate | Recompress | Warm) -> Reply:
    """Do a quick job. Whatever happens to it is an answer: a worker that dies of it takes along those of others."""
    from ottla.wire.record_checks import recompress, validated

    try:
        match request:
            case Validate():
                batch = validated(
                    request.batch, requires_keys=request.requires_keys, timestamp_range=request.timestamp_range
                )
                return Validated(request.id, None if batch is request.batch else batch)
            case Recompress():
                batch = recompress(request.batch, request.codec, request.level, request.batch_bytes_max)
                return Recompressed(request.id, batch)
            case Warm():
                return Warmed(request.id)
    except ApiError as error:
        record_errors = list(error.record_errors) if isinstance(error, InvalidRecordsError) else []
        return Refused(request.id, int(error.code), error.message, record_errors)
    except Exception as error:
        return Failed(request.id, f"{type(error).__name__}: {error}")


def compact(number: int, job: CompactionJob, pace: Callable[[int], None], send: Callable[[Reply], None]) -> Reply:
    """Do a long job. Whatever happens to it is an answer: the thread that it runs in is that of all others too."""
    from ottla.log.compaction_run import run_compaction

    try:
        pace(0)
        result = run_compaction(job, RealDisk(), pace=pace, on_group=lambda group: send(GroupCleaned(number, group)))
    except CorruptLogError as error:
        return Failed(number, str(error), is_corrupt_log=True)
    except Exception as error:
        return Failed(number, f"{type(error).__name__}: {error}")
    return Compacted(number, result)


def lower_priority() -> None:
    """Let everybody else go first. On Linux this is the calling thread's own affair, elsewhere the whole process's."""
    if sys.platform == "linux":
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), NICENESS)
    else:
        os.nice(NICENESS)


def main() -> None:
    # Ctrl-C in a terminal goes to every process of it; the broker decides when the worker ends.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    sys.setswitchinterval(SWITCH_SECONDS)
    # What prints to stdout by accident must not end up between frames.
    target_fd = os.dup(sys.stdout.fileno())
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    with contextlib.suppress(BrokenPipeError):
        Worker(sys.stdin.buffer, target_fd).run()
    # Not sys.exit: a compaction may be under way, and what it leaves behind is dropped by the next one.
    os._exit(0)


if __name__ == "__main__":
    main()
