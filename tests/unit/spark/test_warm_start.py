"""A warm process becomes what Spark asked for, ends with who wanted it, and is done without where it is not there."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import ottla.spark
from ottla.spark import warm_launcher, warm_start
from ottla.spark.interpreter import RUNNER, worker_python
from ottla.spark.warm_process import REQUEST_BYTES_MAX

SECONDS_MAX = 120
TELL = """
import json, os, sys
told = {"argv": sys.argv, "cwd": os.getcwd(), "name": __name__, "pid": os.getpid(), "asked": sys.stdin.readline()}
told |= {"environment": dict(os.environ), "warm": "pyspark_ottla.stream" in sys.modules, "path": sys.path}
print(json.dumps(told), flush=True)
print("to the log", file=sys.stderr, flush=True)
sys.stdin.readline()
sys.exit(int(sys.argv[1]))
"""


@pytest.fixture(scope="module")
def warm() -> Iterator[str]:
    """The socket of a warm process."""
    warm_start.begin()
    path = os.environ[warm_start.SOCKET_VARIABLE]
    wait_for(Path(path).exists)
    yield path
    warm_start.end()
    assert not Path(path).parent.exists()


def wait_for(condition: object) -> None:
    assert callable(condition)
    end = time.monotonic() + SECONDS_MAX
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


def launch(path: str, directory: Path, *arguments: str) -> subprocess.Popen[str]:
    """What the script does when Spark starts a module, in a directory that has one of the name `told`."""
    (directory / "told.py").write_text(TELL)
    return subprocess.Popen(
        [sys.executable, "-I", "-S", warm_launcher.__file__, sys.executable, path, "-m", "told", *arguments],
        cwd=directory,
        env={"PATH": os.environ["PATH"], "PYTHONPATH": f"{directory}:/elsewhere", "SECRET": "of this query"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def is_alive(pid: int) -> bool:
    """A zombie is not: who has to bury it is not our concern."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def hear(launched: subprocess.Popen[str]) -> dict[str, object]:
    assert launched.stdin is not None
    assert launched.stdout is not None
    launched.stdin.write("a question\n")
    launched.stdin.flush()
    told: dict[str, object] = json.loads(launched.stdout.readline())
    return told


def test_it_becomes_what_was_asked_for(warm: str, tmp_path: Path) -> None:
    for code in (0, 3):
        with launch(warm, tmp_path, str(code), "a b") as launched:
            told = hear(launched)
            _, errors = launched.communicate("go\n", timeout=SECONDS_MAX)
        assert launched.returncode == code
        assert told["warm"]
        assert (told["cwd"], told["name"], told["asked"]) == (str(tmp_path), "__main__", "a question\n")
        assert told["argv"] == [str(tmp_path / "told.py"), str(code), "a b"]
        environment, path = told["environment"], told["path"]
        assert isinstance(environment, dict)
        assert environment["SECRET"] == "of this query"
        assert warm_start.SOCKET_VARIABLE not in environment
        assert isinstance(path, list)
        assert path[:3] == [str(tmp_path), str(tmp_path), "/elsewhere"]
        assert errors == "to the log\n"


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs /proc")
def test_each_ends_with_the_other(warm: str, tmp_path: Path) -> None:
    for number in (signal.SIGTERM, signal.SIGKILL):
        with launch(warm, tmp_path, "0") as launched:
            pid = hear(launched)["pid"]
            assert isinstance(pid, int)
            assert pid != launched.pid
            assert is_alive(pid)
            launched.send_signal(number)
            launched.communicate(timeout=SECONDS_MAX)
        wait_for(lambda pid=pid: not is_alive(pid))
        with launch(warm, tmp_path, "0") as launched:
            pid = hear(launched)["pid"]
            assert isinstance(pid, int)
            os.kill(pid, number)
            launched.communicate(timeout=SECONDS_MAX)
        assert launched.returncode == 1


def test_without_one_it_is_python_itself(tmp_path: Path) -> None:
    with launch(str(tmp_path / "nobody"), tmp_path, "4") as launched:
        told = hear(launched)
        launched.communicate("go\n", timeout=SECONDS_MAX)
    assert (told["pid"], told["warm"], launched.returncode) == (launched.pid, False, 4)


def test_one_that_does_not_answer_is_not_waited_for(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as silent:
        silent.bind(str(tmp_path / "silent"))
        silent.listen()
        with launch(str(tmp_path / "silent"), tmp_path, "0") as launched:
            assert hear(launched)["pid"] == launched.pid
            silent.close()  # its files are on their way to there, and stay open until then
            launched.communicate("go\n", timeout=SECONDS_MAX)


@pytest.mark.parametrize(
    "sent", [b"", b"\0", b"\0\0\0\0", b"\0\0\0\4junk", (REQUEST_BYTES_MAX + 1).to_bytes(4, "big"), b"GET / HTTP/1.1"]
)
def test_nonsense_is_turned_away(warm: str, tmp_path: Path, sent: bytes) -> None:
    for files in ([], [0, 1, 2]):
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(SECONDS_MAX)
            connection.connect(warm)
            if sent:
                socket.send_fds(connection, [sent], files)
            connection.shutdown(socket.SHUT_WR)
            with contextlib.suppress(ConnectionResetError):
                assert connection.recv(1) == b""
    with launch(warm, tmp_path, "0") as launched:
        assert hear(launched)["warm"]
        launched.communicate("go\n", timeout=SECONDS_MAX)


def test_a_directory_too_long_for_a_socket(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    long = tmp_path / ("x" * warm_start.DIRECTORY_BYTES_MAX)
    long.mkdir()
    monkeypatch.setattr(warm_start, "_process", None)
    monkeypatch.setattr(tempfile, "tempdir", str(long))
    warm_start.begin()
    assert warm_start._process is None
    assert list(long.iterdir()) == []


def test_it_does_not_outlive_who_started_it() -> None:
    program = (
        "import os, signal; from ottla.spark import warm_start; warm_start.begin();"
        "print(warm_start._process.pid, os.environ[warm_start.SOCKET_VARIABLE], flush=True);"
        "os.kill(os.getpid(), signal.SIGKILL)"
    )
    said = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False).stdout.split()
    wait_for(lambda: not is_alive(int(said[0])))
    wait_for(lambda: not Path(said[1]).parent.exists())


def test_the_script_asks_for_the_runner_of_a_query_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SPARK_HOME", raising=False)
    script = worker_python("local[2]", tmp_path)
    with socket.socket(socket.AF_UNIX) as warm:
        warm.bind(str(tmp_path / "s"))
        warm.listen()
        warm.setblocking(False)
        for arguments, asked in ((["-m", RUNNER], True), (["-c", "pass"], False), (["-m", RUNNER, "more"], False)):
            run_quietly([script, *arguments], str(tmp_path / "s"))
            try:
                warm.accept()[0].close()
                came = True
            except BlockingIOError:
                came = False
            assert came == asked
        run_quietly([script, "-m", RUNNER], "")
        with pytest.raises(BlockingIOError):
            warm.accept()


def run_quietly(command: list[str], path: str) -> None:
    """A pipe would stay open for as long as the files that were sent are not taken."""
    nowhere = subprocess.DEVNULL
    environment = {**os.environ, warm_start.SOCKET_VARIABLE: path}
    subprocess.run(
        command, env=environment, stdin=nowhere, stdout=nowhere, stderr=nowhere, check=False, timeout=SECONDS_MAX
    )


def test_who_starts_spark_otherwise_gets_the_same(monkeypatch: pytest.MonkeyPatch, warm: str) -> None:
    for variable in ("PYSPARK_PYTHON", "JAVA_HOME", "SPARK_HOME"):
        monkeypatch.delenv(variable, raising=False)
    ottla.spark.prepare("local[2]")
    assert os.environ["PYSPARK_PYTHON"] == worker_python("local[2]")
    assert os.environ[warm_start.SOCKET_VARIABLE] == warm
