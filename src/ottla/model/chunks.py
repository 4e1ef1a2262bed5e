"""What an answer is made of: bytes in memory, and slices of files that Python does not look into."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, Protocol, TypeAlias


class SendableFile(Protocol):
    """An open file that stays open for as long as somebody holds it."""

    def fileno(self) -> int: ...

    def pread(self, size: int, position: int) -> bytes: ...


class FileSlice(NamedTuple):
    """`length` bytes of `file` from `position` on.

    Holding the slice holds the file open, so a segment may be deleted, or its handle dropped from the cache of open
    files, while a slow consumer still receives it.
    """

    file: SendableFile
    position: int
    length: int
    shown: Callable[[FileSlice, memoryview], None] | None = None
    """Is called with the bytes by whoever has all of them in memory on their way; they are not to be kept."""


Chunk: TypeAlias = bytes | bytearray | memoryview | FileSlice
Chunks: TypeAlias = list[Chunk]
