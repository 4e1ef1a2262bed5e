"""A broker whose process is gone is fenced at once; one that only cannot be reached is not."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from uuid import uuid4

from ottla.core.controller.cluster_commands import BrokerHeartbeat
from ottla.runtime.broker_watch import BrokerWatch
from ottla.runtime.controller import ControllerDriver
from ottla.runtime.network import PeerError, StreamHandler
from tests.unit.core.controller.cluster import EMPTY
from tests.unit.runtime.scripted_quorum import ScriptedQuorum
from tests.unit.runtime.test_controller import config, fenced, registration, run


class Line:
    """An open stream."""

    def __init__(self, handler: StreamHandler) -> None:
        self.handler = handler
        self.closed = False

    def send(self, frame: bytes | bytearray) -> None:
        raise AssertionError("nothing is asked")

    def close(self) -> None:
        self.closed = True


class Net:
    """Ports on which somebody listens, refuses (False), or does not answer (None)."""

    def __init__(self, *ports: int) -> None:
        self.ports: dict[int, bool | None] = dict.fromkeys(ports, True)
        self.lines: dict[int, list[Line]] = {}
        self.tried: list[int] = []
        self._tried = asyncio.Event()

    async def connect(self, host: str, port: int, handler: StreamHandler) -> Line:
        assert host == "127.0.0.1"
        self.tried.append(port)
        self._tried.set()
        await asyncio.sleep(0)
        answer = self.ports.get(port, False)
        if not answer:
            raise PeerError(f"{host}:{port}", "no", refused=answer is False)
        line = Line(handler)
        self.lines.setdefault(port, []).append(line)
        return line

    def break_line(self, port: int) -> None:
        line = self.lines[port][-1]
        line.handler.stream_closed(PeerError(str(port), "broken"))

    async def attempts(self, port: int, count: int) -> None:
        while self.tried.count(port) < count:
            self._tried.clear()
            await self._tried.wait()
        for _ in range(4):
            await asyncio.sleep(0)


Story = Callable[[ScriptedQuorum, ControllerDriver, Net], Awaitable[None]]


def play(story: Story, *, leads: bool = True) -> None:
    """Brokers 1 (here), 2 and 3, and a watch of them."""

    async def told() -> None:
        quorum = ScriptedQuorum(EMPTY)
        driver = ControllerDriver(quorum, config(), uuid4)
        for broker_id in (1, 2, 3):
            await driver.submit(registration(broker_id))
        if not leads:
            quorum.lead(False)
        net = Net(9001, 9002, 9003)
        watch = BrokerWatch(driver, quorum, net, lambda: "PLAINTEXT")
        try:
            await story(quorum, driver, net)
        finally:
            await watch.close()
            driver.close()
        assert all(line.closed for lines in net.lines.values() for line in lines)

    run(told)


async def heartbeat(quorum: ScriptedQuorum, driver: ControllerDriver, broker_id: int) -> None:
    await driver.submit(
        BrokerHeartbeat(
            broker_id=broker_id,
            broker_epoch=quorum.image.brokers[broker_id].epoch,
            current_metadata_offset=quorum.image.offset,
            want_fence=False,
            want_shut_down=False,
        )
    )


def test_a_process_that_is_gone_is_fenced_at_once() -> None:
    async def story(quorum: ScriptedQuorum, _driver: ControllerDriver, net: Net) -> None:
        await net.attempts(9002, 1)
        await net.attempts(9003, 1)
        assert 9001 not in net.tried
        net.ports[9002] = False
        net.break_line(9002)
        await fenced(quorum, 2)
        assert not quorum.image.brokers[3].fenced
        assert not net.lines[9003][0].closed

    play(story)


def test_a_broken_line_is_opened_again_and_nothing_happens() -> None:
    async def story(quorum: ScriptedQuorum, _driver: ControllerDriver, net: Net) -> None:
        await net.attempts(9002, 1)
        net.break_line(9002)
        await net.attempts(9002, 2)
        assert not quorum.image.brokers[2].fenced

    play(story)


def test_who_does_not_answer_is_left_to_its_session() -> None:
    async def story(quorum: ScriptedQuorum, _driver: ControllerDriver, net: Net) -> None:
        await net.attempts(9002, 1)
        net.ports[9002] = None
        net.break_line(9002)
        await net.attempts(9002, 3)
        assert not quorum.image.brokers[2].fenced
        net.ports[9002] = False
        await fenced(quorum, 2)

    play(story)


def test_a_new_controller_looks_at_once() -> None:
    async def story(quorum: ScriptedQuorum, _driver: ControllerDriver, net: Net) -> None:
        assert net.tried == []
        net.ports[9003] = False
        quorum.lead(True)
        await fenced(quorum, 3)
        assert not quorum.image.brokers[2].fenced
        quorum.lead(False)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert net.lines[9002][0].closed

    play(story, leads=False)


def test_a_broker_that_lives_behind_an_address_that_is_wrong_here_is_not_fenced_again_and_again() -> None:
    async def story(quorum: ScriptedQuorum, driver: ControllerDriver, net: Net) -> None:
        await net.attempts(9002, 1)
        net.ports[9002] = False
        net.break_line(9002)
        await fenced(quorum, 2)
        tried = net.tried.count(9002)
        await heartbeat(quorum, driver, 2)
        await net.attempts(9002, tried + 2)
        assert not quorum.image.brokers[2].fenced
        net.ports[9002] = True
        await net.attempts(9002, tried + 3)
        net.ports[9002] = False
        net.break_line(9002)
        await fenced(quorum, 2)

    play(story)


def test_a_broker_that_was_fenced_and_is_back_in_one_piece_of_metadata_is_watched_again() -> None:
    async def story(quorum: ScriptedQuorum, driver: ControllerDriver, net: Net) -> None:
        await net.attempts(9002, 1)
        quorum.at_once = False
        net.ports[9002] = False
        net.break_line(9002)
        await net.attempts(9002, 2)
        net.ports[9002] = True
        back = asyncio.ensure_future(heartbeat(quorum, driver, 2))
        await asyncio.sleep(0)
        assert quorum.writes_pending == 2
        quorum.commit_in_one_piece()
        await back
        quorum.at_once = True
        assert not quorum.image.brokers[2].fenced
        tried = net.tried.count(9002)
        await net.attempts(9002, tried + 1)
        net.ports[9002] = False
        net.break_line(9002)
        await fenced(quorum, 2)

    play(story)


def test_another_life_of_a_broker_has_another_watch() -> None:
    async def story(quorum: ScriptedQuorum, driver: ControllerDriver, net: Net) -> None:
        await net.attempts(9002, 1)
        await driver.submit(registration(2))
        await net.attempts(9002, 2)
        assert [line.closed for line in net.lines[9002]] == [True, False]

    play(story)
