"""Kernels are compiled once for a machine, before anybody waits for them."""

from __future__ import annotations

import subprocess
import threading
from pathlib import Path

import pytest

from pyspark_ottla import kernels


@pytest.fixture(autouse=True)
def _fresh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(kernels, "_ready", False)
    monkeypatch.setattr(kernels, "KERNELS", ("varints",))


def forget(monkeypatch: pytest.MonkeyPatch) -> None:
    """As another process would begin."""
    monkeypatch.setattr(kernels, "_ready", False)


def test_it_is_done_once(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert not kernels.is_compiled()
    kernels.ready_kernels()
    assert kernels.is_compiled()
    assert capsys.readouterr().err == f"{kernels.NOTICE}\n"

    forget(monkeypatch)
    kernels.ready_kernels()
    assert capsys.readouterr().err == ""


def test_other_kernels_are_compiled_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kernels.ready_kernels()
    changed = tmp_path / "records.py"
    changed.write_text("a kernel")
    monkeypatch.setattr(kernels, "kernel_sources", lambda: [changed])
    assert not kernels.is_compiled()


def test_one_compiles_and_the_others_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    compiling, go_on, compiled = threading.Event(), threading.Event(), list[Path]()

    def slowly(marker: Path) -> None:
        compiled.append(marker)
        compiling.set()
        assert go_on.wait(60)
        marker.touch()

    monkeypatch.setattr(kernels, "_compile", slowly)
    first = threading.Thread(target=kernels.ready_kernels)
    first.start()
    assert compiling.wait(60)
    second = threading.Thread(target=kernels.ready_kernels)
    second.start()
    second.join(0.1)
    assert second.is_alive()
    go_on.set()
    first.join(60)
    second.join(60)
    assert len(compiled) == 1


def test_a_driver_compiles_in_another_process(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    commands: list[tuple[str, ...]] = []

    def run(command: tuple[str, ...], **_: object) -> subprocess.CompletedProcess[str]:
        commands.append(command)
        return subprocess.CompletedProcess(command, 1, "", "no numba here")

    monkeypatch.setattr(subprocess, "run", run)
    kernels.compile_ahead()
    kernels.compile_ahead()
    assert len(commands) == 1
    assert capsys.readouterr().err == f"{kernels.NOTICE}\nottla: this failed: no numba here\n"


def test_where_no_cache_is_kept_nothing_is_done_ahead(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("NUMBA_CACHE_DIR")
    kernels.compile_ahead()
    forget(monkeypatch)
    kernels.ready_kernels()
    assert not kernels.is_compiled()
    assert capsys.readouterr().err == ""


def test_the_command_says_what_it_did(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    kernels.main()
    assert "compiled in 0 s, into " in capsys.readouterr().err
    forget(monkeypatch)
    kernels.main()
    assert capsys.readouterr().err == "ottla: everything is compiled\n"
