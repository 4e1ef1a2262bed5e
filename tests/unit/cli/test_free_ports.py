from __future__ import annotations

import socket
import subprocess
import sys
from pathlib import Path

import pytest

from ottla.cli import free_ports as module
from ottla.cli.free_ports import free_port, free_ports, is_taken


def test_ports_are_different_and_can_be_listened_on() -> None:
    ports = free_ports(50)
    assert len(set(ports)) == 50
    for port in ports:
        socket.create_server(("127.0.0.1", port)).close()


def test_who_asks_the_system_for_any_port_is_not_given_one_of_these() -> None:
    with socket.create_server(("127.0.0.1", 0)) as anywhere:
        given = anywhere.getsockname()[1]
    assert max(free_ports(50)) < module._ephemeral_first() <= given


def test_a_port_that_is_taken_is_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    taken = free_port()
    with socket.create_server(("127.0.0.1", taken)):
        monkeypatch.setattr(module, "_FIRST", taken)
        (tmp_path / "range").write_text(f"{taken + 2}\t60999\n")
        monkeypatch.setattr(module, "_EPHEMERAL_RANGE", tmp_path / "range")
        assert free_port() != taken


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere nobody could listen on a port that is held")
def test_a_port_that_was_given_out_is_given_to_nobody_else_before_it_is_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = free_port()
    (tmp_path / "range").write_text(f"{given + 1}\t60999\n")
    again = (
        "import sys\nfrom pathlib import Path\nfrom ottla.cli import free_ports as module\n"
        "module._FIRST, module._EPHEMERAL_RANGE = int(sys.argv[1]), Path(sys.argv[2])\n"
        "print(*module.free_ports(1))\n"
    )
    command = [sys.executable, "-c", again, str(given), str(tmp_path / "range")]
    elsewhere = int(subprocess.run(command, check=True, capture_output=True, timeout=60).stdout)
    monkeypatch.setattr(module, "_FIRST", given)
    monkeypatch.setattr(module, "_EPHEMERAL_RANGE", tmp_path / "range")
    assert given not in (elsewhere, free_port())
    for _ in range(2):  # A broker that starts again finds its port as it left it.
        with socket.create_server(("127.0.0.1", given)):
            assert is_taken("127.0.0.1", given)


def test_so_many_ports_are_held_and_no_more() -> None:
    free_ports(module._HELD_MAX + 5)
    assert len(module._held) <= module._HELD_MAX


def test_where_the_system_may_give_every_port_it_is_asked_for_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "range").write_text("1024\t65535\n")
    monkeypatch.setattr(module, "_EPHEMERAL_RANGE", tmp_path / "range")
    assert len(set(free_ports(3))) == 3


def test_a_port_that_somebody_listens_on_is_known_to_be_taken() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        assert is_taken("127.0.0.1", listening.getsockname()[1])
    assert not is_taken("127.0.0.1", free_port())
    assert not is_taken("no.such.host.invalid", 9092)
