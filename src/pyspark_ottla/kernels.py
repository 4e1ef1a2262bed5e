"""Compile every kernel before somebody waits for it: `python -m pyspark_ottla`.

A machine compiles the kernels once, which takes some ten seconds; later processes load them. Who is about to start
workers calls `compile_ahead`, so that no worker compiles; and a worker that has to do it after all (another machine,
another user) does so alone, while the others of its machine wait for it, instead of each doing the same.

Whether it has been done is told by an empty file in the cache. Its name changes with all that would make numba compile
anew: the kernels and where they lie, Python, numba, the processor. So the question costs no import of numba. Where no
cache is kept from process to process, nothing can be done ahead.
"""

from __future__ import annotations

import hashlib
import os
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from ottla.wire.compiled.cache import NUMBA_CACHE_DIR, kernel_sources

KERNELS: Final = ("records", "keys", "batches", "columns", "encoding")
NOTICE: Final = "ottla: compiling for this machine, once; this takes about ten seconds"
_DIGEST_CHARACTERS: Final = 16


_ready = False
"""This process has seen that the kernels are compiled, and need not look again."""


def is_compiled() -> bool:
    """Whether processes of this user on this machine find the kernels ready."""
    marker = _marker()
    return marker is not None and marker.exists()


def compile_ahead() -> None:
    """Return when the kernels are ready for other processes; says so first if they have to be compiled.

    They are compiled in a process of their own, since numba stays in the one that used it. Should that fail, the
    processes that need them will find out, and say why.
    """
    global _ready
    if _ready or _marker() is None or is_compiled():
        _ready = True
        return
    import subprocess

    tell(NOTICE)
    began = time.monotonic()
    command = (sys.executable, "-c", "from pyspark_ottla import kernels; kernels.ready_kernels(quiet=True)")
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    if done.returncode:
        tell(f"ottla: this failed: {done.stderr.strip()[-200:]}")
    else:
        tell(f"ottla: compiled in {time.monotonic() - began:.0f} s")
    _ready = True


def begin_to_compile() -> None:
    """The same in the background. Who needs them before they are there waits."""
    threading.Thread(target=compile_ahead, name="ottla-compile", daemon=True).start()


def ready_kernels(*, quiet: bool = False) -> None:
    """Before kernels are imported where that may mean to compile them: one process does it, the others wait."""
    global _ready
    marker = None if _ready else _marker()
    if marker is not None and not marker.exists():
        with _alone(marker.parent):
            if not marker.exists():
                if not quiet:
                    tell(NOTICE)
                _compile(marker)
    _ready = True


def tell(text: str) -> None:
    """To the user, who would otherwise wait without knowing for what."""
    print(text, file=sys.stderr, flush=True)


def _compile(marker: Path) -> None:
    for name in KERNELS:
        import_module(f"ottla.wire.compiled.{name}")
    with suppress(OSError):
        marker.touch()


@contextmanager
def _alone(directory: Path) -> Iterator[None]:
    """One process at a time, where the system can say so."""
    try:
        import fcntl

        lock = (directory / "lock").open("w")
    except (ImportError, OSError):
        yield
        return
    with lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _marker() -> Path | None:
    """The file that says so, there or not; None where no cache is kept."""
    directory, numba = os.environ.get(NUMBA_CACHE_DIR), _numba()
    return Path(directory) / f"ready-{_situation(numba)}" if directory and numba else None


def _situation(numba: str) -> str:
    digest = hashlib.sha256()
    for source in kernel_sources():
        facts = source.stat()
        digest.update(f"{source} {facts.st_size} {facts.st_mtime_ns}\n".encode())
    digest.update(f"{sys.implementation.cache_tag} {numba} {_processor()}".encode())
    return digest.hexdigest()[:_DIGEST_CHARACTERS]


def _numba() -> str:
    """Which numba is installed, without its import; nothing where there is none, and nothing to compile."""
    found = find_spec("numba")
    if found is None or found.origin is None:
        return ""
    facts = Path(found.origin).stat()
    return f"{found.origin} {facts.st_size} {facts.st_mtime_ns}"


def _processor() -> str:
    """The same for processors that run the same machine code."""
    with suppress(OSError):
        lines = Path("/proc/cpuinfo").read_text().partition("\n\n")[0].splitlines()
        wanted = ("vendor_id", "cpu family", "model", "stepping", "flags", "Features", "CPU part")
        return "\n".join(line for line in lines if line.startswith(wanted))
    import platform

    return f"{platform.machine()} {platform.processor()}"


def main() -> None:
    began = time.monotonic()
    if is_compiled():
        tell("ottla: everything is compiled")
        return
    ready_kernels()
    tell(f"ottla: compiled in {time.monotonic() - began:.0f} s, into {os.environ.get(NUMBA_CACHE_DIR, 'no cache')}")
