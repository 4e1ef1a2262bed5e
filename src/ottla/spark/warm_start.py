"""Has a warm process at hand for as long as this one lives; see `warm_process`."""

from __future__ import annotations

import atexit
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

SOCKET_VARIABLE: Final = "OTTLA_WARM_START"
"""Tells the script that starts Spark's Python processes where the warm one is."""
DIRECTORY_BYTES_MAX: Final = 70
"""The path of a socket has 104 bytes at most, and what is put to the directory's is about thirty."""
END_SECONDS_MAX: Final = 5.0

_process: subprocess.Popen[bytes] | None = None


def begin() -> None:
    """Start it, once, and wait for nothing. Where it cannot be, everything works as without it."""
    global _process
    if _process is not None or os.name != "posix":
        return
    if len(os.fsencode(tempfile.gettempdir())) > DIRECTORY_BYTES_MAX:
        return
    directory = Path(tempfile.mkdtemp(prefix="ottla-warm-"))
    os.environ[SOCKET_VARIABLE] = str(directory / "socket")
    _process = subprocess.Popen(
        [sys.executable, "-m", "ottla.spark.warm_process", os.environ[SOCKET_VARIABLE]],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        # Its forks read files and sockets. A pool of threads for algebra would be of no use and in the way of a fork.
        env={**os.environ, "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"},
    )
    atexit.register(end)


def end() -> None:
    """The end of its input ends it, so it does not outlive this process however that ends. Forks end with Spark."""
    global _process
    if _process is None:
        return
    assert _process.stdin is not None
    _process.stdin.close()
    try:
        _process.wait(END_SECONDS_MAX)
    except subprocess.TimeoutExpired:
        _process.kill()
        _process.wait()
    _process = None
    shutil.rmtree(Path(os.environ.pop(SOCKET_VARIABLE)).parent, ignore_errors=True)
