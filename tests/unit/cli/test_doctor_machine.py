"""A broker that cannot start must be explained without starting it."""

from __future__ import annotations

import fcntl
import os
import resource
from pathlib import Path
from types import SimpleNamespace

import pytest

from ottla.cli import doctor_machine
from ottla.cli.doctor_machine import check_compiled, check_data, check_interpreter, check_open_files
from ottla.cli.finding import Finding, Health


def by_check(data: Path) -> dict[str, Finding]:
    return {finding.check: finding for finding in check_data(data)}


def test_a_fresh_directory_is_fine(tmp_path: Path) -> None:
    found = by_check(tmp_path / "new" / "deeper")
    assert found["data directory"].health is Health.OK
    assert not (tmp_path / "new").exists()


def test_a_directory_in_use_is_noticed(tmp_path: Path) -> None:
    with (tmp_path / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert by_check(tmp_path)["data directory lock"].health is Health.WARN
    assert by_check(tmp_path)["data directory lock"].health is Health.OK


def test_a_file_is_no_directory(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    assert by_check(file)["data directory"].health is Health.FAIL


def test_a_directory_that_cannot_be_written_is_a_failure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    finding = by_check(tmp_path)["data directory"]
    assert finding.health is Health.FAIL
    assert "owner" in finding.advice


@pytest.mark.parametrize(("free", "health"), [(1 << 20, Health.FAIL), (1 << 30, Health.WARN), (1 << 40, Health.OK)])
def test_a_full_disk_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, free: int, health: Health) -> None:
    usage = SimpleNamespace(free=free, total=1 << 41)
    monkeypatch.setattr("shutil.disk_usage", lambda path: usage)
    assert by_check(tmp_path)["disk space"].health is health


@pytest.mark.parametrize(
    ("soft", "hard", "health"),
    [
        (256, 4096, Health.WARN),
        (256, 100_000, Health.OK),
        (256, resource.RLIM_INFINITY, Health.OK),
        (100_000, 100_000, Health.OK),
        (resource.RLIM_INFINITY, resource.RLIM_INFINITY, Health.OK),
    ],
)
def test_a_low_limit_of_open_files_is_noticed_if_a_broker_cannot_raise_it(
    monkeypatch: pytest.MonkeyPatch, soft: int, hard: int, health: Health
) -> None:
    monkeypatch.setattr("resource.getrlimit", lambda which: (soft, hard))
    assert check_open_files().health is health


@pytest.mark.parametrize(
    ("prefix", "arguments", "health"),
    [
        ("/usr", "'--enable-shared'", Health.OK),
        ("/opt/python", "'--enable-optimizations' '--with-lto'", Health.OK),
        ("/opt/python", None, Health.OK),
        ("/opt/python", "'--enable-shared'", Health.WARN),
    ],
)
def test_a_python_that_is_not_optimised_is_noticed(
    monkeypatch: pytest.MonkeyPatch, prefix: str, arguments: str | None, health: Health
) -> None:
    monkeypatch.setattr("sys.base_prefix", prefix)
    monkeypatch.setattr("sysconfig.get_config_var", lambda name: arguments)
    assert check_interpreter().health is health


def test_a_finding_is_one_line() -> None:
    line = Finding(Health.FAIL, "port", "nothing listens", "start a broker").line()
    assert line.startswith("fail")
    assert line.endswith("nothing listens: start a broker")


@pytest.mark.parametrize(("module", "health"), [("ottla.wire.batch", Health.OK), ("ottla.wire.missing", Health.WARN)])
def test_an_install_without_compiled_code_is_noticed(
    module: str, health: Health, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doctor_machine, "COMPILED", module)
    assert check_compiled().health is health
