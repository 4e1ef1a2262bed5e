"""A broker has as many files as the system lets it have."""

from __future__ import annotations

import resource
import subprocess
import sys

import pytest

from ottla.model import open_files
from ottla.model.open_files import FILES_ELSEWHERE_MAX, FILES_WANTED_MAX

INFINITY = resource.RLIM_INFINITY


class Limits:
    """Of a system that refuses more than `allowed`."""

    def __init__(self, soft: int, hard: int, allowed: int) -> None:
        self.now = (soft, hard)
        self._allowed = allowed

    def get(self, _which: int) -> tuple[int, int]:
        return self.now

    def set(self, _which: int, limits: tuple[int, int]) -> None:
        if limits[0] > self._allowed:
            raise ValueError("current limit exceeds maximum limit")
        self.now = limits


@pytest.mark.parametrize(
    ("soft", "hard", "allowed", "taken"),
    [
        (1024, 524_288, 524_288, 524_288),
        (1024, INFINITY, FILES_WANTED_MAX, FILES_WANTED_MAX),
        (256, INFINITY, FILES_ELSEWHERE_MAX, FILES_ELSEWHERE_MAX),
        (256, INFINITY, 256, 256),
        (20_000, 20_000, 20_000, 20_000),
        (INFINITY, INFINITY, FILES_WANTED_MAX, FILES_WANTED_MAX),
    ],
)
def test_the_limit_is_raised_as_far_as_it_may_be(
    monkeypatch: pytest.MonkeyPatch, soft: int, hard: int, allowed: int, taken: int
) -> None:
    limits = Limits(soft, hard, allowed)
    monkeypatch.setattr(resource, "getrlimit", limits.get)
    monkeypatch.setattr(resource, "setrlimit", limits.set)
    assert open_files.take_all() == taken
    assert limits.now[0] in (taken, INFINITY)
    assert limits.now[1] == hard


def test_a_real_process_gets_them() -> None:
    program = """
import resource
from ottla.model import open_files
_, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (64, hard))
assert open_files.take_all() == open_files.obtainable() == resource.getrlimit(resource.RLIMIT_NOFILE)[0] > 64
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=30)
