"""What the figures were taken on: an absolute time means nothing without it."""

from __future__ import annotations

import os
import platform
import re
from pathlib import Path

import ottla
from bench.errors import NotMeasured
from bench.tools import java_version
from ottla.cli.doctor_machine import how_compiled


def describe() -> dict[str, str]:
    processor = first(r"model name\s*:\s*(.+)", "/proc/cpuinfo")
    memory_kb = int(first(r"MemTotal:\s*(\d+)", "/proc/meminfo") or 0)
    distribution = first(r'PRETTY_NAME="?([^"\n]+)', "/etc/os-release")
    return {
        "CPU": f"{os.cpu_count()} x {processor}",
        "memory": f"{memory_kb / 1e6:.0f} GB",
        "system": f"{distribution}, Linux {platform.release()}",
        "virtual machine": "yes" if "hypervisor" in first(r"flags\s*:\s*(.+)", "/proc/cpuinfo") else "no",
        "Python": f"{platform.python_version()} ({platform.python_implementation()}, {how_compiled()})",
        "Java": java(),
        "Ottla": ottla.__version__,
    }


def first(pattern: str, path: str) -> str:
    """What the pattern's group matches in a file, or nothing."""
    try:
        found = re.search(pattern, Path(path).read_text())
    except OSError:
        return ""
    return found[1].strip() if found else ""


def java() -> str:
    try:
        return java_version()
    except NotMeasured as reason:
        return str(reason)
