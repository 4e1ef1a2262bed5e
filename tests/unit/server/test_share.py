"""What clients may have of a process that may not open many files."""

from __future__ import annotations

import resource

import pytest

from ottla.log.disk import RealDisk
from ottla.log.handles import OpenFiles
from ottla.model.configs.resolve import BrokerConfig
from ottla.server.share import CONNECTIONS_MAX, SPARE_FILES_MIN, ConnectionLimits


def connections_max(soft: int, monkeypatch: pytest.MonkeyPatch, **properties: str) -> int:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (soft, soft))
    config = BrokerConfig.from_properties({name.replace("_", "."): value for name, value in properties.items()})
    return ConnectionLimits.of(config).connections_max


@pytest.mark.parametrize("soft", [256, 1024, 4096, 65_536])
def test_clients_leave_the_broker_enough_open_files_for_its_logs(soft: int, monkeypatch: pytest.MonkeyPatch) -> None:
    connections = connections_max(soft, monkeypatch)
    assert connections >= soft // 4
    assert connections + OpenFiles(RealDisk()).files_max + SPARE_FILES_MIN <= soft


def test_a_lower_limit_of_the_operator_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    assert connections_max(1024, monkeypatch, max_connections="7") == 7
    assert connections_max(resource.RLIM_INFINITY, monkeypatch) == CONNECTIONS_MAX
