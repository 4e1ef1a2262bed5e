"""Kernels are compiled once for a machine, before anybody waits for them."""

from __future__ import annotations

import subprocess
import threading
from pathlib import Path

import pytest

from ottla.wire.compiled import warm


@pytest.fixture(autouse=True)
def _fresh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(warm, "_ready", False)
    monkeypatch.setattr(warm, "KERNELS", ("varints",))


def forget(monkeypatch: pytest.MonkeyPatch) -> None:
    """As another process would begin."""
    monkeypatch.setattr(warm, "_ready", False)


def test_it_is_done_once(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert not warm.is_compiled()
    warm.ready_kernels()
    assert warm.is_compiled()
    assert capsys.readouterr().err == f"{warm.NOTICE}\n"

    forget(monkeypatch)
    warm.ready_kernels()
    assert capsys.readouterr().err == ""


def test_other_kernels_are_compiled_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    warm.ready_kernels()
    changed = tmp_path / "records.py"
    changed.write_text("a kernel")
    monkeypatch.setattr(warm, "kernel_sources", lambda: [changed])
    assert not warm.is_compiled()


def test_one_compiles_and_the_others_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    compiling, go_on, compiled = threading.Event(), threading.Event(), list[Path]()

    def slowly(marker: Path) -> None:
        compiled.append(marker)
        compiling.set()
        assert go_on.wait(60)
        marker.touch()

    monkeypatch.setattr(warm, "_compile", slowly)
    first = threading.Thread(target=warm.ready_kernels)
    first.start()
    assert compiling.wait(60)
    second = threading.Thread(target=warm.ready_kernels)
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
    warm.compile_ahead()
    warm.compile_ahead()
    assert len(commands) == 1
    assert capsys.readouterr().err == f"{warm.NOTICE}\nottla: this failed: no numba here\n"


def test_where_no_cache_is_kept_nothing_is_done_ahead(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("NUMBA_CACHE_DIR")
    warm.compile_ahead()
    forget(monkeypatch)
    warm.ready_kernels()
    assert not warm.is_compiled()
    assert capsys.readouterr().err == ""


def test_the_command_says_what_it_did(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    warm.main()
    assert "compiled in 0 s, into " in capsys.readouterr().err
    forget(monkeypatch)
    warm.main()
    assert capsys.readouterr().err == "ottla: everything is compiled\n"
