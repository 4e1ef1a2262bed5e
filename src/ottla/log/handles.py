"""Files that are open only while somebody uses them.

A broker has three files per segment and perhaps ten thousand partitions, more than a process may have open. A
`FileHandle` is the name of a file that opens itself when asked; `OpenFiles` bounds how many are open at one time and
closes those that nobody has asked for lately (the "clock" approximation of least recently used: a handle that was used
since the last sweep gets a second chance).

Closing means that the cache forgets the file. Whoever still holds it, a slice on its way to a client for one, keeps it
open; see `disk.RealFile`.

Handles are shared between the loop and threads without a lock. What makes that right: every step is one atomic
operation of the interpreter, two threads that open one file at the same time merely open it twice, and a handle whose
file was renamed while it was being opened looks again (`_open`).
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

from ottla.log.disk import Disk, File
from ottla.log.room import Rooms
from ottla.model import open_files
from ottla.model.limits import ANSWER_SLICES_MAX

ANSWER_SLICES_MIN: Final = 4
ANSWERS_HELD: Final = 8
"""So many answers of full length have as many files open as are kept for the logs."""


class FileHandle:
    """A file by its path, opened on demand. Renaming goes through the handle, so that it never points astray."""

    __slots__ = ("_open_files", "_renaming_to", "file", "path", "used")

    def __init__(self, path: str, open_files: OpenFiles) -> None:
        self.path = path
        self.used = False
        self.file: File | None = None
        self._open_files = open_files
        self._renaming_to: str | None = None

    def get(self) -> File:
        """The open file, for reading and writing. Hold it no longer than needed."""
        self.used = True
        return self.file or self._open()

    def create(self) -> File:
        """The file, made empty if it is there already."""
        file = self._open_files.disk.open(self.path, create=True)
        if file.size():
            file.truncate(0)
        return self._keep(file)

    def rename(self, path: str) -> None:
        """Give the file another name; missing files stay missing. Slices that are under way stay good."""
        self._renaming_to = path
        try:
            self._open_files.disk.rename(self.path, path)
        except FileNotFoundError:
            self.forget()
        self.path = path
        self._renaming_to = None

    def remove(self) -> None:
        self.forget()
        self._open_files.disk.remove(self.path)

    def forget(self) -> None:
        """Drop the open file; it closes when nobody else holds it."""
        self.file = None
        self._open_files.forget(self)

    def _open(self) -> File:
        while True:
            path = self.path
            try:
                file = self._open_files.disk.open(path)
            except FileNotFoundError:
                renaming_to = self._renaming_to
                if renaming_to is not None:
                    return self._keep(self._open_files.disk.open(renaming_to))
                if path is self.path:
                    raise
                continue
            # A rename meanwhile may have put another file under the old name.
            if path is self.path:
                return self._keep(file)

    def _keep(self, file: File) -> File:
        self.file = file
        # Only a second use counts: a walk over many files once must not push out those that are in use.
        self.used = False
        self._open_files.keep(self)
        return file


class OpenFiles:
    """At most `files_max` open files."""

    __slots__ = ("_handles", "disk", "files_max", "rooms")

    def __init__(self, disk: Disk, files_max: int | None = None) -> None:
        self.disk = disk
        self.rooms = Rooms()
        self.files_max = max(1, files_max) if files_max is not None else open_files.for_logs()
        self._handles: OrderedDict[FileHandle, None] = OrderedDict()

    def __len__(self) -> int:
        return len(self._handles)

    @property
    def answer_slices_max(self) -> int:
        """How many files one answer may hold open: few of what there is, since slow clients hold theirs for long."""
        return max(ANSWER_SLICES_MIN, min(ANSWER_SLICES_MAX, self.files_max // ANSWERS_HELD))

    def handle(self, path: str) -> FileHandle:
        """A handle on `path`; costs no file until it is used."""
        return FileHandle(path, self)

    def keep(self, handle: FileHandle) -> None:
        """Count a handle that has just opened its file, and close another one if that is one too many."""
        self._handles[handle] = None
        while len(self._handles) > self.files_max:
            try:
                oldest, _ = self._handles.popitem(last=False)
            except KeyError:  # Other threads have closed the rest meanwhile.
                return
            if oldest.used or oldest is handle:
                oldest.used = False
                self._handles[oldest] = None
            else:
                oldest.forget()

    def forget(self, handle: FileHandle) -> None:
        self._handles.pop(handle, None)

    def close(self) -> None:
        """Forget every file."""
        for handle in list(self._handles):
            handle.forget()
