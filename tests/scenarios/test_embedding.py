"""A broker inside a program: comes and goes, and leaves nothing behind."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import tempfile
import threading
import time
import warnings
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path

import pytest

import ottla
from ottla import embed
from ottla.client.admin import Admin
from ottla.embed import ServerError
from ottla.model.configs.definition import ResourceType
from ottla.model.errors import ConfigError
from tests.measured import least, open_files
from tests.scenarios.raw_client import RawClient

CYCLES = 100


def use(server: ottla.Server) -> None:
    """Enough to have connections, logs and a topic."""
    client = RawClient.connect(server.bootstrap_servers)
    client.create_topic("t")
    assert client.produce("t", b"x") == (0, 0)
    client.close()


def test_a_hundred_starts_and_stops_leak_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with ottla.Server() as server:
        use(server)
    threads = threading.active_count()

    def opened() -> int:
        before = open_files()
        for _ in range(CYCLES):
            with ottla.Server() as server:
                use(server)
        return open_files() - before

    assert least(opened, enough=1) <= 0
    assert threading.active_count() == threads
    assert list(tmp_path.iterdir()) == [], "temporary directories are left"


def test_what_was_deleted_a_moment_ago_is_no_reason_to_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The files of a deleted topic wait for their removal; a temporary directory does not."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with ottla.Server() as server:
        use(server)
        with Admin.connect(server.bootstrap_servers) as admin:
            admin.delete_topic("t")
        assert list(server.data.glob("t-0.*-delete"))
    assert list(tmp_path.iterdir()) == []


def test_a_forked_process_neither_ends_the_broker_nor_keeps_what_it_had(tmp_path: Path) -> None:
    """It has a copy of everything: of the `with` block that it leaves, of the lock, and of the port."""
    with ottla.Server(data=tmp_path) as server:
        leaves = forked(server.stop)
        assert os.waitpid(leaves, 0)[1] == 0
        assert partitions_of_a_new_topic(server.bootstrap_servers) == 1
        stays = forked(lambda: time.sleep(100))
        port = int(server.bootstrap_servers.rsplit(":", 1)[1])
    try:
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", port), timeout=10)
        with ottla.Server(data=tmp_path, port=port) as server, Admin.connect(server.bootstrap_servers) as admin:
            assert len(admin.list_topics()) == 1
    finally:
        os.kill(stays, signal.SIGKILL)
        os.waitpid(stays, 0)


@pytest.mark.parametrize("process", [False, True])
def test_a_directory_that_nobody_named_outlives_a_forked_process(process: bool) -> None:
    with ottla.Server(process=process) as server:
        assert os.waitpid(forked(server.stop), 0)[1] == 0
        assert server.data.exists()
        assert partitions_of_a_new_topic(server.bootstrap_servers) == 1


def forked(work: Callable[[], None]) -> int:
    """The id of a process that was forked from this one, and does only that."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # That threads run here is the point.
        child = os.fork()
    if child == 0:
        try:
            work()
        finally:
            os._exit(0)
    return child


def test_async_with_works_and_config_is_kafkas() -> None:
    async def story() -> int:
        async with ottla.Server(config={"num.partitions": 3, "auto.create.topics.enable": True}) as server:
            return await asyncio.to_thread(partitions_of_a_new_topic, server.bootstrap_servers)

    assert asyncio.run(story()) == 3


def test_the_first_consumer_of_a_group_waits_for_nobody_unless_told_to() -> None:
    key = "group.initial.rebalance.delay.ms"
    for config, expected in (({}, "0"), ({key: 250}, "250")):
        with ottla.Server(config=config) as server, Admin.connect(server.bootstrap_servers) as admin:
            (entry,) = admin.describe_configs(ResourceType.BROKER, "1", [key])
        assert entry.value == expected


def partitions_of_a_new_topic(bootstrap_servers: str) -> int:
    with Admin.connect(bootstrap_servers) as admin:
        admin.create_topic("t")
        return len(admin.describe_topic("t").partitions)


def test_a_process_of_its_own_serves_and_stops() -> None:
    with ottla.Server(process=True) as server:
        use(server)
        directory = server.data
    assert not directory.exists()


def test_portable_fallbacks_serve_as_well(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTTLA_PORTABLE", "1")
    with ottla.Server(data=tmp_path, process=True) as server:
        client = RawClient.connect(server.bootstrap_servers)
        client.create_topic("t")
        values = [b"%d" % number * 1000 for number in range(300)]
        for value in values:
            client.produce("t", value)
        assert client.values("t") == values
        client.close()


def test_a_wrong_config_is_named() -> None:
    with pytest.raises(ConfigError, match=r"no\.such\.key"):
        ottla.Server(config={"no.such.key": 1}).start()
    with pytest.raises(ServerError, match=r"log\.retention\.ms"):
        ottla.Server(config={"log.retention.ms": "soon"}, process=True).start()


def has_ipv6() -> bool:
    try:
        with socket.create_server(("::1", 0), family=socket.AF_INET6):
            return True
    except OSError:
        return False


@pytest.mark.skipif(not has_ipv6(), reason="this machine has no IPv6")
@pytest.mark.parametrize("process", [False, True])
def test_the_address_of_a_broker_on_ipv6_can_be_handed_to_a_client(process: bool) -> None:
    with ottla.Server(host="::1", process=process) as server:
        assert server.bootstrap_servers.startswith("[::1]:")
        assert partitions_of_a_new_topic(server.bootstrap_servers) == 1


@pytest.mark.parametrize("process", [False, True])
def test_listeners_may_be_named_by_kafkas_key(process: bool) -> None:
    listeners = "PLAINTEXT://localhost:0,OTHER://127.0.0.1:0"
    protocols = "PLAINTEXT:PLAINTEXT,OTHER:PLAINTEXT"
    config = {"listeners": listeners, "listener.security.protocol.map": protocols}
    with ottla.Server(config=config, process=process) as server:
        assert server.bootstrap_servers.startswith("localhost:")
        assert partitions_of_a_new_topic(server.bootstrap_servers) == 1


def test_using_a_server_that_does_not_run_says_so() -> None:
    with pytest.raises(ServerError, match="not running"):
        _ = ottla.Server().bootstrap_servers


@pytest.mark.parametrize("ottla_topic", [4], indirect=True)
def test_fixtures_give_a_topic_with_as_many_partitions_as_asked(ottla_server: ottla.Server, ottla_topic: str) -> None:
    with Admin.connect(ottla_server.bootstrap_servers) as admin:
        assert len(admin.describe_topic(ottla_topic).partitions) == 4


def test_a_test_may_delete_its_topic_itself(ottla_server: ottla.Server, ottla_topic: str) -> None:
    """What comes after the test must not fail it."""
    with Admin.connect(ottla_server.bootstrap_servers) as admin:
        admin.delete_topic(ottla_topic)


def of_servers() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name.startswith("ottla")]


@pytest.mark.parametrize("turns", [1, 2, 50])
def test_a_start_that_is_cancelled_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, turns: int
) -> None:
    """A time-out around `async with` is enough to cancel it."""
    before = of_servers()

    async def cancel_a_start() -> None:
        starting = asyncio.create_task(ottla.Server().__aenter__())
        for _ in range(turns):
            await asyncio.sleep(0)
        starting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await starting

    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    asyncio.run(cancel_a_start())
    assert list(tmp_path.iterdir()) == []
    assert of_servers() == before


class Interrupted(Future[str]):
    """What a start waits for, when Ctrl-C comes meanwhile."""

    def result(self, timeout: float | None = None) -> str:
        raise KeyboardInterrupt


def test_ctrl_c_during_a_start_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = of_servers()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(embed, "Future", Interrupted)
    with pytest.raises(KeyboardInterrupt):
        ottla.Server().start()
    assert list(tmp_path.iterdir()) == []
    assert of_servers() == before
