"""Full, broken, foreign and shared directories: a clear error, and nothing lost."""

from __future__ import annotations

import asyncio
import errno
import os
import random
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

import pytest
from structlog.testing import capture_logs

import ottla
from ottla.broker import Broker
from ottla.broker_process import new_event_loop
from ottla.client.admin import Admin
from ottla.client.errors import ClientError
from ottla.embed import ServerError
from ottla.log.disk import Bytes, RealDisk, RealFile
from ottla.model.configs.resolve import BrokerConfig
from ottla.model.errors import ErrorCode, StorageError
from ottla.runtime.world import SystemClock, Threads, World
from tests.scenarios.raw_client import RawClient

NOWHERE = "PLAINTEXT://127.0.0.1:0"


class TroubledFile(RealFile):
    """A file whose writes fail when its disk is told so."""

    disk: TroubledDisk

    def pwrite(self, data: Bytes, position: int) -> None:
        code = self.disk.trouble_with(self.path)
        if code:
            if len(data) > 10:
                super().pwrite(memoryview(data)[:10], position)  # A part may get through before the failure.
            raise OSError(code, os.strerror(code))
        super().pwrite(data, position)

    def pwritev(self, pieces: Sequence[Bytes], position: int) -> None:
        self.pwrite(b"".join(pieces), position)

    def sync(self) -> None:
        code = self.disk.trouble_with(self.path)
        if code and code != errno.ENOSPC:
            raise OSError(code, os.strerror(code))
        super().sync()


class TroubledDisk(RealDisk):
    """A disk of which one directory can be made to fail."""

    def __init__(self) -> None:
        self.errno = 0
        self.below = ""

    def trouble_with(self, path: str) -> int:
        return self.errno if path.startswith(self.below) and path.endswith(".log") else 0

    def open(self, path: str, *, create: bool = False, write: bool = True) -> RealFile:
        flags = (os.O_RDWR if write else os.O_RDONLY) | (os.O_CREAT if create else 0)
        file = TroubledFile(path, flags)
        file.disk = self
        return file


def with_broker(directories: list[Path], disk: RealDisk, story: Callable[[Broker, RawClient], Awaitable[None]]) -> None:
    """Run a broker on a given disk, and a story against it."""

    async def run() -> None:
        config = BrokerConfig.from_properties({"log.dirs": ",".join(map(str, directories)), "listeners": NOWHERE})
        world = World(clock=SystemClock(), offload=Threads(), disk=disk, rng=random.Random(1))
        broker = Broker(config, world)
        await broker.start()
        try:
            host, port = broker.bootstrap_servers.split(":")
            client = await asyncio.to_thread(RawClient, host, int(port))
            try:
                await story(broker, client)
            finally:
                client.close()
        finally:
            await broker.stop()

    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        runner.run(asyncio.wait_for(run(), 60))


def test_a_full_disk_refuses_writes_and_recovers_when_there_is_room(tmp_path: Path) -> None:
    disk = TroubledDisk()

    async def story(broker: Broker, client: RawClient) -> None:
        await asyncio.to_thread(client.create_topic, "t")
        assert await asyncio.to_thread(client.produce, "t", b"before") == (ErrorCode.NONE, 0)
        disk.below, disk.errno = str(tmp_path / "t-0"), errno.ENOSPC
        code, _ = await asyncio.to_thread(client.produce, "t", b"too much")
        assert code == ErrorCode.KAFKA_STORAGE_ERROR
        assert await asyncio.to_thread(client.values, "t") == [b"before"]
        disk.errno = 0
        assert await asyncio.to_thread(client.produce, "t", b"after") == (ErrorCode.NONE, 1)
        assert await asyncio.to_thread(client.values, "t") == [b"before", b"after"]

    with_broker([tmp_path], disk, story)


def test_an_operator_is_told_of_a_full_disk_once_and_not_with_every_batch(tmp_path: Path) -> None:
    disk = TroubledDisk()

    async def story(broker: Broker, client: RawClient) -> None:
        await asyncio.to_thread(client.create_topic, "t")
        assert await asyncio.to_thread(client.produce, "t", b"before") == (ErrorCode.NONE, 0)
        disk.below, disk.errno = str(tmp_path / "t-0"), errno.ENOSPC
        for _ in range(3):
            code, _ = await asyncio.to_thread(client.produce, "t", b"too much")
            assert code == ErrorCode.KAFKA_STORAGE_ERROR

    with capture_logs() as lines:
        with_broker([tmp_path], disk, story)
    (line,) = [line for line in lines if "full" in line["event"]]
    assert (line["log_level"], line["directory"]) == ("error", str(tmp_path))
    assert "No space left" in line["reason"]


def test_a_broken_directory_goes_offline_alone(tmp_path: Path) -> None:
    disk, directories = TroubledDisk(), [tmp_path / "one", tmp_path / "two"]

    async def story(broker: Broker, client: RawClient) -> None:
        await asyncio.to_thread(client.create_topic, "a")
        await asyncio.to_thread(client.create_topic, "b")
        for topic in ("a", "b"):
            assert (await asyncio.to_thread(client.produce, topic, b"x"))[0] == ErrorCode.NONE
        places = {topic: next(d for d in directories if (d / f"{topic}-0").exists()) for topic in ("a", "b")}
        assert places["a"] != places["b"], "new partitions go where the fewest are"
        disk.below, disk.errno = str(places["b"]), errno.EIO
        assert (await asyncio.to_thread(client.produce, "b", b"y"))[0] == ErrorCode.KAFKA_STORAGE_ERROR
        disk.errno = 0
        code, _ = await asyncio.to_thread(client.produce, "b", b"y")
        assert code in (ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.NOT_LEADER_OR_FOLLOWER), "EIO is final"
        assert await asyncio.to_thread(client.produce, "a", b"y") == (ErrorCode.NONE, 1)
        await until_led(broker, "b", -1)

    async def see_it_again(broker: Broker, client: RawClient) -> None:
        for topic in ("a", "b"):
            await until_led(broker, topic, 1)
            assert (await asyncio.to_thread(client.values, topic))[0] == b"x"

    with_broker(directories, disk, story)
    with_broker(directories, disk, see_it_again)


def test_what_may_lie_in_a_directory_that_does_not_open_has_no_leader_until_it_does(tmp_path: Path) -> None:
    disk, directories = RealDisk(), [tmp_path / "one", tmp_path / "two"]

    async def write(broker: Broker, client: RawClient) -> None:
        for topic in ("a", "b"):
            await asyncio.to_thread(client.create_topic, topic)
            assert (await asyncio.to_thread(client.produce, topic, b"x"))[0] == ErrorCode.NONE
        # The directory must be on record: only then can the controller tell what is in it.
        await asyncio.to_thread(wait_until, lambda: all(has_a_place(broker, topic) for topic in ("a", "b")))

    with_broker(directories, disk, write)
    (missing,) = [path.name.split("-")[0] for path in directories[1].glob("?-0")]
    directories[1].rename(tmp_path / "unplugged")
    directories[1].write_text("no directory")

    async def miss(broker: Broker, client: RawClient) -> None:
        await until_led(broker, missing, -1)
        await until_led(broker, {"a": "b", "b": "a"}[missing], 1)

    async def read(broker: Broker, client: RawClient) -> None:
        await until_led(broker, missing, 1)
        assert await asyncio.to_thread(client.values, missing) == [b"x"]

    with_broker(directories, disk, miss)
    directories[1].unlink()
    (tmp_path / "unplugged").rename(directories[1])
    with_broker(directories, disk, read)


def has_a_place(broker: Broker, topic: str) -> bool:
    return broker._services.image.topics[topic].partitions[0].directories[0].int > 0


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


async def until_led(broker: Broker, topic: str, leader: int) -> None:
    """Wait for what clients are told of the leader of a topic's only partition."""

    def described() -> tuple[int, list[int], ErrorCode]:
        with Admin.connect(broker.bootstrap_servers) as admin:
            (partition,) = admin.describe_topic(topic).partitions
        return partition.leader, list(partition.offline), partition.error

    expected = (-1, [1], ErrorCode.LEADER_NOT_AVAILABLE) if leader == -1 else (leader, [], ErrorCode.NONE)
    await asyncio.to_thread(wait_until, lambda: described() == expected)


def test_two_brokers_cannot_share_a_directory(tmp_path: Path) -> None:
    with ottla.Server(data=tmp_path), pytest.raises(StorageError, match="in use"):
        ottla.Server(data=tmp_path).start()


def test_two_brokers_cannot_share_one_of_several_directories(tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    first = BrokerConfig.from_properties({"log.dirs": f"{tmp_path / 'one'},{shared}", "listeners": NOWHERE})
    second = BrokerConfig.from_properties({"log.dirs": f"{tmp_path / 'two'},{shared}", "listeners": NOWHERE})

    async def run() -> None:
        broker = Broker(first, World(clock=SystemClock(), offload=Threads(), disk=RealDisk(), rng=random.Random(1)))
        await broker.start()
        try:
            world = World(clock=SystemClock(), offload=Threads(), disk=RealDisk(), rng=random.Random(2))
            with pytest.raises(StorageError, match=f"{shared}: already in use"):
                await Broker(second, world).start()
        finally:
            await broker.stop()

    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        runner.run(asyncio.wait_for(run(), 60))


def test_a_second_process_on_the_directory_says_so_in_one_line(tmp_path: Path) -> None:
    with ottla.Server(data=tmp_path):
        command = [sys.executable, "-m", "ottla", "serve", "--data", str(tmp_path), "--port", "0"]
        second = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)

    assert second.returncode == 1
    assert len(second.stderr.strip().splitlines()) == 1
    assert "in use" in second.stderr


def test_a_taken_port_is_named(tmp_path: Path) -> None:
    with ottla.Server() as server:
        second = ottla.Server(data=tmp_path, port=int(server.bootstrap_servers.rsplit(":", 1)[1]), process=True)
        with pytest.raises(ServerError, match=server.bootstrap_servers):
            second.start()


def test_the_directory_of_another_node_is_refused(tmp_path: Path) -> None:
    with ottla.Server(data=tmp_path, config={"node.id": 1}):
        pass
    with pytest.raises(StorageError, match="belongs to node 1"):
        ottla.Server(data=tmp_path, config={"node.id": 2}).start()


def test_everything_is_there_after_a_clean_restart(tmp_path: Path) -> None:
    with ottla.Server(data=tmp_path) as server, Admin.connect(server.bootstrap_servers) as admin:
        admin.create_topic("t", partitions=2)
    with ottla.Server(data=tmp_path) as server, Admin.connect(server.bootstrap_servers) as admin:
        assert [topic.name for topic in admin.list_topics()] == ["t"]
    assert (tmp_path / ".kafka_cleanshutdown").exists()


def test_a_directory_without_an_owner_is_kept_under_another_name(tmp_path: Path) -> None:
    with ottla.Server(data=tmp_path):
        pass
    stray = tmp_path / "nobodys-0"
    stray.mkdir()
    (stray / "00000000000000000000.log").write_bytes(b"precious")
    with ottla.Server(data=tmp_path):
        pass

    renamed = list(tmp_path.glob("nobodys-0.*-stray"))
    assert len(renamed) == 1
    assert (renamed[0] / "00000000000000000000.log").read_bytes() == b"precious"


def test_clients_report_an_unreachable_broker() -> None:
    with pytest.raises(ClientError), Admin.connect("127.0.0.1:1") as admin:
        admin.list_topics()
