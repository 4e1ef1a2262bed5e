"""A process that has imported all that a query's Python needs, and forks itself for each query: SOCKET.

Theory of operation. Spark starts a new Python for every streaming query that reads a Python source, and that Python
spends half a second on imports before it says a word. This process does the imports once. `warm_launcher` sends it what
Spark asked for (arguments, environment, directory, and the three standard files); a fork takes them over and runs the
module as Python would have. The launcher's connection belongs to the fork: each of the two ends when the other does.

This process ends with the one that started it, which holds the other end of its standard input.

What an editor must keep true:
- Nothing here starts a thread: what is forked must be whole.
- A fork that the launcher has given up does nothing at all, since another Python is then on its way.
- A fork never returns to this loop, and never runs what this process does at its end.
"""

from __future__ import annotations

import contextlib
import fcntl
import gc
import marshal
import os
import runpy
import select
import shutil
import signal
import socket
import sys
from importlib import import_module
from pathlib import Path
from typing import Any, Final, NoReturn

from ottla.client.rehearsal import make_codecs
from ottla.spark.interpreter import RUNNER

IMPORTED: Final = (RUNNER, "pyspark_ottla.source", "pyspark_ottla.stream", "ottla.client.groups")
REQUEST_SECONDS_MAX: Final = 1.0
REQUEST_BYTES_MAX: Final = 4 << 20
STANDARD_FILES: Final = 3
KILLED: Final = 128 + signal.SIGTERM


def main(path: str) -> None:
    for name in IMPORTED:
        import_module(name)
    del sys.modules[RUNNER]  # it is run, not imported, and says so when it finds itself
    make_codecs()
    gc.collect()
    gc.freeze()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a Ctrl-C is for the program that has the session
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody asks how a fork ended
    listener = socket.socket(socket.AF_UNIX)
    unfinished = f"{path}.new"
    listener.bind(unfinished)
    listener.listen()
    Path(unfinished).rename(path)
    while True:
        ready, _, _ = select.select([listener, sys.stdin], [], [])
        if sys.stdin in ready:
            break
        connection, _ = listener.accept()
        with connection, contextlib.suppress(OSError, ValueError, EOFError, TypeError):
            _serve(listener, connection)
    shutil.rmtree(Path(path).parent, ignore_errors=True)


def _serve(listener: socket.socket, connection: socket.socket) -> None:
    connection.settimeout(REQUEST_SECONDS_MAX)
    head, files, _, _ = socket.recv_fds(connection, 4, STANDARD_FILES)
    try:
        size = int.from_bytes(head, "big")
        if len(head) != 4 or len(files) != STANDARD_FILES or size > REQUEST_BYTES_MAX:
            return
        wish = marshal.loads(_receive(connection, size))
        if os.fork() == 0:
            _become(listener, connection, files, *wish)
    finally:
        for each in files:
            os.close(each)


def _receive(connection: socket.socket, size: int) -> bytes:
    received = bytearray()
    while len(received) < size:
        part = connection.recv(size - len(received))
        if not part:
            raise EOFError
        received += part
    return bytes(received)


def _become(
    listener: socket.socket,
    connection: socket.socket,
    files: list[int],
    arguments: list[str],
    environment: dict[str, str],
    directory: str,
) -> NoReturn:
    """The rest of this process's life."""
    code = 1
    try:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        listener.close()
        for number, file in enumerate(files):
            os.dup2(file, number)
        _end_with(connection)
        connection.sendall(b"1")
        os.chdir(directory)
        os.environ.clear()
        os.environ.update(environment)
        _extend_path(directory, environment.get("PYTHONPATH", ""))
        code = _run(arguments)
    finally:
        with contextlib.suppress(OSError):
            sys.stdout.flush()
            sys.stderr.flush()
            connection.sendall(bytes([code]))
        os._exit(code)


def _end_with(connection: socket.socket) -> None:
    """End when the other side does, however busy this one is: the kernel sends a signal then."""

    def ended(_number: int, _frame: object) -> None:
        os._exit(KILLED)

    signal.signal(signal.SIGIO, ended)
    fcntl.fcntl(connection, fcntl.F_SETOWN, os.getpid())
    fcntl.fcntl(connection, fcntl.F_SETFL, fcntl.fcntl(connection, fcntl.F_GETFL) | os.O_ASYNC)
    # Whatever came before this said nothing.
    waiting = select.poll()
    waiting.register(connection, select.POLLIN)
    if waiting.poll(0):
        os._exit(KILLED)


def _extend_path(directory: str, python_path: str) -> None:
    """Where Python would look: in the directory, then in what PYTHONPATH names."""
    wanted = [directory, *filter(None, python_path.split(os.pathsep))]
    sys.path[:] = [*wanted, *(each for each in sys.path[1:] if each not in wanted)]


def _run(arguments: list[str]) -> int:
    """`python -m MODULE ...`."""
    _, module, *rest = arguments
    sys.argv = [module, *rest]
    try:
        runpy.run_module(module, run_name="__main__", alter_sys=True)
    except SystemExit as ending:
        return _exit_code(ending.code)
    except Exception:
        sys.excepthook(*sys.exc_info())
        return 1
    return 0


def _exit_code(given: Any) -> int:
    if given is None:
        return 0
    if isinstance(given, int):
        return given & 0xFF
    print(given, file=sys.stderr)
    return 1


if __name__ == "__main__":
    main(sys.argv[1])
