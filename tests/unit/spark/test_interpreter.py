"""Workers run this Python with the installed PySpark, not with the packed one."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pyspark
import pytest

from ottla.spark.interpreter import packed_pyspark, worker_python


@pytest.fixture(autouse=True)
def _own_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SPARK_HOME", raising=False)


def test_the_packed_copy_is_taken_off_the_path(tmp_path: Path) -> None:
    program = worker_python("local[2]", tmp_path)
    assert program == worker_python("local[*]", tmp_path)
    packed = packed_pyspark()
    assert packed is not None
    zips = [str(path) for path in packed.glob("*.zip")]
    assert len(zips) == 2
    path = ":".join([*zips, "a b", "/c/*", "d.zip"])
    code = "import os, pyspark, sys; print(os.environ['PYTHONPATH'], pyspark.__file__, sys.argv[1:], sep='\\n')"
    said = subprocess.run(
        [program, "-c", code, "x y", ""],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert said.splitlines() == ["a b:/c/*:d.zip", pyspark.__file__, "['x y', '']"]


def test_other_machines_and_another_spark_get_the_interpreter_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert worker_python("spark://host:7077", tmp_path) == sys.executable
    monkeypatch.setenv("SPARK_HOME", str(tmp_path))
    assert worker_python("local", tmp_path) == sys.executable
    monkeypatch.setenv("SPARK_HOME", str(Path(pyspark.__file__).parent))
    assert worker_python("local", tmp_path) != sys.executable
    (tmp_path / "file").touch()
    assert worker_python("local", tmp_path / "file") == sys.executable
