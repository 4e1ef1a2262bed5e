"""What only Linux has, and what serves instead elsewhere.

Linux sends a file to a socket without a copy, holds a packet back for what follows it, and can say whether a read
would wait for the disk. `PortablePlatform` does without all three. `OTTLA_PORTABLE=1` chooses it on Linux too, so
that one machine can test both.

A file system that does not support the question (RWF_NOWAIT) is answered for as if everything were in memory: there a
cold read does hold up the loop.
"""

from __future__ import annotations

import errno
import os
import socket
import sys
from typing import Final, Protocol

from ottla.model.chunks import SendableFile
from ottla.model.portable import is_portable

WOULD_WAIT: Final = -1
"""Instead of a count of bytes: they are not in memory."""
COPY_BYTES_MAX: Final = 128 * 1024
"""How much of a file is held in memory at a time where there is no sendfile."""
WARM_STEP_BYTES: Final = 256 * 1024

NOT_SUPPORTED: Final = frozenset({errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS})


class Platform(Protocol):
    """How files are read and sent on this machine."""

    @property
    def send_more(self) -> int:
        """The flag for `send` that says that more follows at once."""

    def read_now(self, file: SendableFile, into: memoryview, position: int) -> int:
        """Fill `into` without waiting for the disk; the count may be short, or `WOULD_WAIT`."""

    def is_resident(self, file: SendableFile, position: int, length: int) -> bool:
        """Whether the ends of this range are in memory."""

    def send_file(self, to: socket.socket, file: SendableFile, position: int, length: int) -> int:
        """Send some of this range; 0 means that the file ends before it."""


class PortablePlatform:
    """Plain reads and sends."""

    __slots__ = ()

    send_more: Final = 0

    def read_now(self, file: SendableFile, into: memoryview, position: int) -> int:
        data = file.pread(len(into), position)
        into[: len(data)] = data
        return len(data)

    def is_resident(self, file: SendableFile, position: int, length: int) -> bool:
        return True

    def send_file(self, to: socket.socket, file: SendableFile, position: int, length: int) -> int:
        data = file.pread(min(length, COPY_BYTES_MAX), position)
        return to.send(data) if data else 0


if sys.platform == "linux":

    class LinuxPlatform:
        """sendfile, MSG_MORE and RWF_NOWAIT; falls back call by call where a file system lacks one of them."""

        __slots__ = ("_fallback", "_probe")

        send_more: Final = socket.MSG_MORE

        def __init__(self) -> None:
            self._fallback = PortablePlatform()
            self._probe = [memoryview(bytearray(1))]

        def read_now(self, file: SendableFile, into: memoryview, position: int) -> int:
            try:
                return os.preadv(file.fileno(), [into], position, os.RWF_NOWAIT)
            except BlockingIOError:
                return WOULD_WAIT
            except OSError as error:
                if error.errno not in NOT_SUPPORTED:
                    raise
                return self._fallback.read_now(file, into, position)

        def is_resident(self, file: SendableFile, position: int, length: int) -> bool:
            try:
                fd = file.fileno()
                os.preadv(fd, self._probe, position, os.RWF_NOWAIT)
                os.preadv(fd, self._probe, position + length - 1, os.RWF_NOWAIT)
            except BlockingIOError:
                return False
            except OSError as error:
                if error.errno not in NOT_SUPPORTED:
                    raise
            return True

        def send_file(self, to: socket.socket, file: SendableFile, position: int, length: int) -> int:
            try:
                return os.sendfile(to.fileno(), file.fileno(), position, length)
            except OSError as error:
                if error.errno not in NOT_SUPPORTED:
                    raise
                return self._fallback.send_file(to, file, position, length)


def choose_platform() -> Platform:
    """The fastest one that this machine and OTTLA_PORTABLE allow."""
    if sys.platform == "linux" and not is_portable():
        return LinuxPlatform()
    return PortablePlatform()


def read_through(file: SendableFile, position: int, length: int) -> int:
    """Read a range to have it in memory afterwards; for a thread. Returns how much of it there is."""
    done = 0
    while done < length:
        step = len(file.pread(min(WARM_STEP_BYTES, length - done), position + done))
        if step == 0:
            break
        done += step
    return done
