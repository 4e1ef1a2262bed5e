from __future__ import annotations

import socket
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
