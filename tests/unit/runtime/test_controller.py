"""The controller is active while its node leads, and no longer."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any
from uuid import UUID, uuid4

import pytest

from ottla.core.controller.cluster_commands import BrokerHeartbeat
from ottla.core.controller.commands import CreatedTopic, CreateTopics, NewTopic, RegisterBroker
from ottla.core.controller.features import REGISTERED_FEATURES
from ottla.core.controller.image import MetadataImage
from ottla.core.controller.records import BrokerEndpoint
from ottla.model.configs.resolve import BrokerConfig
from ottla.model.errors import ApiError, ErrorCode, StorageError
from ottla.runtime.controller import ControllerDriver
from tests.unit.core.controller.cluster import CLUSTER_ID, EMPTY
from tests.unit.runtime.scripted_quorum import ScriptedQuorum


def config(session_ms: int = 60_000) -> BrokerConfig:
    return BrokerConfig.from_properties(
        {"broker.session.timeout.ms": str(session_ms), "broker.heartbeat.interval.ms": str(session_ms // 2)}
    )


def registration(broker_id: int, *, fenced: bool = False) -> RegisterBroker:
    return RegisterBroker(
        broker_id=broker_id,
        incarnation_id=uuid4(),
        cluster_id=CLUSTER_ID,
        endpoints=[BrokerEndpoint("PLAINTEXT", "127.0.0.1", 9000 + broker_id, 0)],
        features=REGISTERED_FEATURES,
        log_dirs=[UUID(int=1000 + broker_id)],
        fenced=fenced,
    )


def create(name: str, replication: int = 1) -> CreateTopics:
    return CreateTopics([NewTopic(name, num_partitions=1, replication_factor=replication)])


async def code_of(answer: Awaitable[Any]) -> ErrorCode:
    with pytest.raises(ApiError) as refused:
        await answer
    return refused.value.code


def active(driver: ControllerDriver) -> bool:
    return driver.is_active


def run(story: Callable[[], Awaitable[None]]) -> None:
    async def told() -> None:
        async with asyncio.timeout(10):
            await story()

    asyncio.run(told())


def test_only_the_node_that_leads_decides() -> None:
    async def story() -> None:
        quorum = ScriptedQuorum(EMPTY, leads=False)
        driver = ControllerDriver(quorum, config(), uuid4)
        told: list[bool] = []
        driver.subscribe(lambda: told.append(driver.is_active))
        assert not active(driver)
        assert await code_of(driver.submit(registration(1))) is ErrorCode.NOT_CONTROLLER
        quorum.lead(True)
        assert active(driver)
        await driver.submit(registration(1))
        quorum.lead(False)
        assert await code_of(driver.submit(create("t"))) is ErrorCode.NOT_CONTROLLER
        quorum.lead(True)
        quorum.lead(True)
        assert told == [True, False, True, False, True]

    run(story)


def test_whoever_waits_when_leadership_goes_is_told_so() -> None:
    async def story() -> None:
        quorum = ScriptedQuorum(EMPTY)
        driver = ControllerDriver(quorum, config(), uuid4)
        await driver.submit(registration(1))
        quorum.at_once = False
        writer = asyncio.ensure_future(driver.submit(create("t")))
        reader = asyncio.ensure_future(driver.submit(create("t")))
        await asyncio.sleep(0)
        assert "t" in driver.image.topics
        quorum.lead(False)
        assert await code_of(writer) is ErrorCode.NOT_CONTROLLER
        assert await code_of(reader) is ErrorCode.NOT_CONTROLLER
        assert "t" not in driver.image.topics

    run(story)


def test_a_new_term_has_forgotten_what_was_not_committed() -> None:
    async def story() -> None:
        quorum = ScriptedQuorum(EMPTY)
        driver = ControllerDriver(quorum, config(), uuid4)
        await driver.submit(registration(1))
        quorum.at_once = False
        lost = asyncio.ensure_future(driver.submit(create("t")))
        await asyncio.sleep(0)
        quorum.lead(True)
        assert await code_of(lost) is ErrorCode.NOT_CONTROLLER
        quorum.at_once = True
        [created] = await driver.submit(create("t"))
        assert created.outcome.code is ErrorCode.NONE

    run(story)


def test_who_stops_waiting_takes_nothing_away() -> None:
    async def story() -> None:
        quorum = ScriptedQuorum(EMPTY)
        driver = ControllerDriver(quorum, config(), uuid4)
        await driver.submit(registration(1))
        quorum.at_once = False
        impatient = asyncio.ensure_future(driver.submit(create("t")))
        await asyncio.sleep(0)
        impatient.cancel()
        with pytest.raises(asyncio.CancelledError):
            await impatient
        quorum.commit()
        assert "t" in quorum.image.topics

    run(story)


def test_an_answer_waits_for_what_it_rests_on() -> None:
    async def story() -> None:
        quorum = ScriptedQuorum(EMPTY)
        driver = ControllerDriver(quorum, config(), uuid4)
        await driver.submit(registration(1))
        quorum.at_once = False
        first = asyncio.ensure_future(driver.submit(create("t")))
        second: asyncio.Future[list[CreatedTopic]] = asyncio.ensure_future(driver.submit(create("t")))
        for _ in range(5):
            await asyncio.sleep(0)
        assert not first.done()
        assert not second.done()
        quorum.commit()
        [answer] = await second
        assert answer.outcome.code is ErrorCode.TOPIC_ALREADY_EXISTS

    run(story)


def test_what_could_not_be_written_was_not_decided() -> None:
    async def story() -> None:
        quorum = ScriptedQuorum(EMPTY)
        driver = ControllerDriver(quorum, config(), uuid4)
        await driver.submit(registration(1))
        quorum.refusal = StorageError("/disk", "is full")
        assert await code_of(driver.submit(create("t"))) is ErrorCode.KAFKA_STORAGE_ERROR
        quorum.refusal = None
        [created] = await driver.submit(create("t"))
        assert created.outcome.code is ErrorCode.NONE

    run(story)


async def fenced(quorum: ScriptedQuorum, broker_id: int) -> None:
    seen = asyncio.Event()

    def look(image: MetadataImage, _delta: object) -> None:
        if image.brokers[broker_id].fenced:
            seen.set()

    quorum.subscribe(look)
    await seen.wait()


def test_a_silent_broker_is_fenced_and_the_one_in_the_same_process_is_not() -> None:
    async def story() -> None:
        quorum = ScriptedQuorum(EMPTY)
        driver = ControllerDriver(quorum, config(session_ms=40), uuid4)
        loop = asyncio.get_running_loop()
        started = loop.time()
        for broker_id in (1, 2, 3):
            await driver.submit(registration(broker_id))
        await driver.submit(create("t", replication=3))
        watching = [asyncio.ensure_future(fenced(quorum, broker_id)) for broker_id in (2, 3)]
        await asyncio.gather(*watching)
        assert loop.time() - started >= 0.04
        partition = quorum.image.topics["t"].partitions[0]
        assert (partition.leader, partition.isr) == (1, (1,))
        assert not quorum.image.brokers[1].fenced
        driver.close()

    run(story)


def test_heartbeats_keep_a_broker_alive() -> None:
    async def story() -> None:
        quorum = ScriptedQuorum(EMPTY, node_id=9)
        driver = ControllerDriver(quorum, config(session_ms=200), uuid4)
        epochs = {broker_id: await driver.submit(registration(broker_id)) for broker_id in (1, 2)}
        gone = asyncio.ensure_future(fenced(quorum, 2))
        while not gone.done():
            await driver.submit(
                BrokerHeartbeat(
                    broker_id=1,
                    broker_epoch=epochs[1],
                    current_metadata_offset=quorum.image.offset,
                    want_fence=False,
                    want_shut_down=False,
                )
            )
            await asyncio.sleep(0.01)
        assert not quorum.image.brokers[1].fenced
        driver.close()

    run(story)


def test_a_new_controller_gives_everybody_a_full_session_and_then_fences() -> None:
    async def story() -> None:
        quorum = ScriptedQuorum(EMPTY, node_id=9)
        driver = ControllerDriver(quorum, config(session_ms=40), uuid4)
        await driver.submit(registration(1))
        quorum.lead(False)
        quorum.lead(True)
        await fenced(quorum, 1)
        driver.close()
        assert await code_of(driver.submit(create("t"))) is ErrorCode.NOT_CONTROLLER

    run(story)


def test_a_broker_that_could_not_be_fenced_is_tried_again() -> None:
    async def story() -> None:
        quorum = ScriptedQuorum(EMPTY, node_id=9)
        driver = ControllerDriver(quorum, config(session_ms=20), uuid4)
        await driver.submit(registration(1))
        quorum.refusal = StorageError("/disk", "is full")
        asyncio.get_running_loop().call_later(0.1, setattr, quorum, "refusal", None)
        await fenced(quorum, 1)
        driver.close()

    run(story)
