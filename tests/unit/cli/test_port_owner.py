"""Who holds the port is the first thing to know when a broker does not start."""

from __future__ import annotations

import os
import socket
import sys
from pathlib import Path

import pytest

from ottla.cli.free_ports import free_port
from ottla.cli.port_owner import is_local, port_owner

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux has /proc")


def test_the_process_that_listens_is_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        owner = port_owner(listener.getsockname()[1])
    assert owner is not None
    assert owner.pid == os.getpid()
    assert str(os.getpid()) in str(owner)


def test_a_free_port_has_no_owner() -> None:
    assert port_owner(free_port()) is None


def test_a_machine_without_proc_says_nothing(tmp_path: Path) -> None:
    assert port_owner(9092, tmp_path) is None


def test_a_process_of_somebody_else_is_not_guessed(tmp_path: Path) -> None:
    (tmp_path / "net").mkdir()
    row = "0: 0100007F:2384 00000000:0000 0A 00000000:00000000 00:00000000 00000000 0 0 4242 1"
    (tmp_path / "net" / "tcp").write_text(f"header\n{row}\n")
    owner = port_owner(0x2384, tmp_path)
    assert owner is not None
    assert "another user" in str(owner)


def test_a_command_line_with_line_ends_and_escapes_is_one_plain_line(tmp_path: Path) -> None:
    program = tmp_path / "42"
    (program / "fd").mkdir(parents=True)
    (program / "fd" / "3").symlink_to("socket:[4242]")
    (program / "cmdline").write_bytes(b"python3\0-c\0\nimport x\n\x1b[2J\0")
    (tmp_path / "net").mkdir()
    row = "0: 0100007F:2384 00000000:0000 0A 00000000:00000000 00:00000000 00000000 0 0 4242 1"
    (tmp_path / "net" / "tcp").write_text(f"header\n{row}\n")
    assert str(port_owner(0x2384, tmp_path)) == "process 42 (python3 -c import x [2J)"


@pytest.mark.parametrize(("host", "local"), [("127.0.0.1", True), ("localhost", True), ("192.0.2.1", False)])
def test_this_machine_is_known_by_its_addresses(host: str, local: bool) -> None:
    assert is_local(host) is local
