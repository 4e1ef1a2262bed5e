"""Files reach sockets the fast way where there is one, and correctly where there is none."""

from __future__ import annotations

import errno
import os
import socket
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn

import pytest

from ottla.server.platform import (
    WOULD_WAIT,
    Platform,
    PortablePlatform,
    choose_platform,
    read_through,
)

DATA = bytes(range(256)) * 4096
DROPS = 20
"""A busy system may keep a page once, or fetch it again before it is asked for."""


class OpenFile:
    def __init__(self, path: Path) -> None:
        self.fd = os.open(path, os.O_RDONLY)

    def fileno(self) -> int:
        return self.fd

    def pread(self, size: int, position: int) -> bytes:
        return os.pread(self.fd, size, position)


@pytest.fixture
def file(tmp_path: Path) -> Iterator[OpenFile]:
    path = tmp_path / "data"
    path.write_bytes(DATA)
    opened = OpenFile(path)
    yield opened
    os.close(opened.fd)


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    left, right = socket.socketpair()
    with left, right:
        left.setblocking(False)
        yield left, right


def received(right: socket.socket, count: int) -> bytes:
    return right.recv(count, socket.MSG_WAITALL)


def test_a_range_is_sent_from_its_position(
    platform: Platform, file: OpenFile, pair: tuple[socket.socket, socket.socket]
) -> None:
    sent = platform.send_file(pair[0], file, 1000, 5000)
    assert 0 < sent <= 5000
    assert received(pair[1], sent) == DATA[1000 : 1000 + sent]


def test_a_full_socket_is_reported_and_nothing_is_lost(
    platform: Platform, file: OpenFile, pair: tuple[socket.socket, socket.socket]
) -> None:
    position = 0
    try:
        while position < len(DATA):
            position += platform.send_file(pair[0], file, position, len(DATA) - position)
    except BlockingIOError:
        pass
    assert 0 < position < len(DATA)
    assert received(pair[1], position) == DATA[:position]


def test_the_end_of_the_file_is_seen(
    platform: Platform, file: OpenFile, pair: tuple[socket.socket, socket.socket]
) -> None:
    assert platform.send_file(pair[0], file, len(DATA), 10) == 0
    into = memoryview(bytearray(20))
    assert platform.read_now(file, into, len(DATA) - 5) == 5
    assert read_through(file, len(DATA) - 5, 20) == 5


def test_what_was_just_written_is_in_memory(platform: Platform, file: OpenFile) -> None:
    assert platform.is_resident(file, 0, len(DATA))
    into = memoryview(bytearray(300))
    assert platform.read_now(file, into, 77) == 300
    assert bytes(into) == DATA[77:377]


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux can be asked")
def test_what_is_only_on_disk_is_known_until_it_is_read(file: OpenFile) -> None:
    """To ask for a page that is not there has the system fetch it: each question needs pages that were dropped anew."""
    platform = _linux()
    into = memoryview(bytearray(10))
    os.fsync(file.fd)

    def drop() -> None:
        os.posix_fadvise(file.fd, 0, 0, os.POSIX_FADV_DONTNEED)

    if all(drop() or platform.is_resident(file, 0, 10) for _ in range(DROPS)):
        pytest.skip("this file system keeps its pages")
    assert any(drop() or platform.read_now(file, into, 0) == WOULD_WAIT for _ in range(DROPS))
    assert read_through(file, 0, len(DATA)) == len(DATA)
    assert platform.is_resident(file, 0, len(DATA))


@pytest.mark.skipif(sys.platform != "linux", reason="a fallback of the Linux platform")
def test_a_file_system_without_the_linux_calls_is_served(
    monkeypatch: pytest.MonkeyPatch, file: OpenFile, pair: tuple[socket.socket, socket.socket]
) -> None:
    def not_supported(*_: object) -> NoReturn:
        raise OSError(errno.EOPNOTSUPP, "not here")

    monkeypatch.setattr(os, "preadv", not_supported)
    monkeypatch.setattr(os, "sendfile", not_supported)
    platform = _linux()
    assert platform.is_resident(file, 0, len(DATA))
    into = memoryview(bytearray(10))
    assert platform.read_now(file, into, 3) == 10
    assert bytes(into) == DATA[3:13]
    sent = platform.send_file(pair[0], file, 9, 100)
    assert received(pair[1], sent) == DATA[9 : 9 + sent]


@pytest.mark.skipif(sys.platform != "linux", reason="a fallback of the Linux platform")
def test_a_disk_that_fails_is_not_taken_for_one_that_lacks_a_call(
    monkeypatch: pytest.MonkeyPatch, file: OpenFile, pair: tuple[socket.socket, socket.socket]
) -> None:
    def broken(*_: object) -> NoReturn:
        raise OSError(errno.EIO, "broken")

    monkeypatch.setattr(os, "preadv", broken)
    monkeypatch.setattr(os, "sendfile", broken)
    platform = _linux()
    with pytest.raises(OSError, match="broken"):
        platform.is_resident(file, 0, 10)
    with pytest.raises(OSError, match="broken"):
        platform.read_now(file, memoryview(bytearray(1)), 0)
    with pytest.raises(OSError, match="broken"):
        platform.send_file(pair[0], file, 0, 10)


def test_the_fallbacks_can_be_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTTLA_PORTABLE", "1")
    assert isinstance(choose_platform(), PortablePlatform)
    monkeypatch.setenv("OTTLA_PORTABLE", "0")
    assert isinstance(choose_platform(), PortablePlatform) == (sys.platform != "linux")


def _linux() -> Platform:
    if sys.platform != "linux":
        raise AssertionError("only called on Linux")
    from ottla.server.platform import LinuxPlatform

    return LinuxPlatform()
