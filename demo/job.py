"""The handle on the Spark job's process."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any, Final

from demo.timeline import Timeline

STOP_SECONDS_MAX: Final = 30.0


class Job:
    """Starts `demo.pipeline`, hears what it says, and ends it. Its standard error, and Spark's, goes to `log_path`."""

    def __init__(self, bootstrap: str, data: Path, timeline: Timeline) -> None:
        self.log_path = data / "spark.log"
        self.spark_version = ""
        self.restarts: list[str] = []
        self.audit: list[dict[str, Any]] | None = None
        self._timeline = timeline
        data.mkdir(parents=True, exist_ok=True)
        with self.log_path.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "demo.pipeline", "--bootstrap", bootstrap, "--data", str(data)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                cwd=Path(__file__).resolve().parents[1],
                # A Ctrl-C at the terminal is ours to pass on.
                start_new_session=True,
                env={**os.environ, "PYTHONUNBUFFERED": "1"},
            )
        self._reader = threading.Thread(target=self._hear, name="job", daemon=True)
        self._reader.start()

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def has_ended(self) -> bool:
        return self._process.poll() is not None

    def finish(self) -> None:
        """No more batches; `audit` comes after a while."""
        assert self._process.stdin is not None
        with contextlib.suppress(OSError):
            self._process.stdin.write("finish\n")
            self._process.stdin.flush()

    def close(self, *, at_once: bool) -> None:
        """End it, if it has not ended, and return when Spark's Java has ended too, which holds the same output."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with contextlib.suppress(OSError):
            self._process.stdin.close()
        try:
            self._process.wait(0 if at_once else STOP_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._reader.join(STOP_SECONDS_MAX)
        self._process.stdout.close()

    def _hear(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if not line.startswith("{"):
                continue  # a library that prints
            said = json.loads(line)
            match said["kind"]:
                case "started":
                    self.spark_version = said["spark"]
                case "batch":
                    self._timeline.batch_done(said["rows"], said["ms"])
                case "restarted":
                    self.restarts.append(said["why"])
                case "audit":
                    self.audit = said["rows"]
