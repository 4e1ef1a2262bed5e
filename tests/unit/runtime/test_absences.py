"""What clients are told while a broker is gone and the metadata does not know it yet."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from uuid import UUID

from ottla.core.controller.image import BrokerImage, MetadataImage
from ottla.core.controller.records import BrokerEndpoint
from ottla.runtime import absences as module
from ottla.runtime.absences import Absences
from tests.unit.core.controller.cluster import EMPTY
from tests.unit.runtime.test_broker_watch import Net

PORT = 9002
SECOND = BrokerImage(
    id=2, epoch=5, incarnation_id=UUID(int=2), endpoints=(BrokerEndpoint("PLAINTEXT", "127.0.0.1", PORT, 0),)
)


class Story:
    """Broker 2 as the metadata shows it, and as the network does."""

    def __init__(self) -> None:
        self.image: MetadataImage = replace(EMPTY, brokers={2: SECOND})
        self.net = Net(PORT)
        self.absences = Absences(self.net, lambda: self.image, lambda _: ("127.0.0.1", PORT))
        self.absences.brokers_changed(self.image)

    def change(self, broker_image: BrokerImage) -> None:
        self.image = replace(self.image, brokers={2: broker_image})
        self.absences.brokers_changed(self.image)


def play(told: Callable[[Story], Awaitable[None]]) -> None:
    async def run() -> None:
        story = Story()
        try:
            async with asyncio.timeout(10):
                await told(story)
        finally:
            story.absences.close()

    asyncio.run(run())


def test_an_answer_waits_until_the_metadata_knows() -> None:
    async def told(story: Story) -> None:
        story.net.ports[PORT] = False
        story.absences.connection_lost(2)
        waiting = asyncio.create_task(story.absences.settled())
        await story.net.attempts(PORT, 1)
        assert 2 in story.absences.brokers
        assert not waiting.done()
        story.change(replace(SECOND, fenced=True))
        await waiting
        assert 2 not in story.absences.brokers
        assert story.absences.is_shown(2)

    play(told)


def test_an_answer_does_not_wait_for_ever() -> None:
    async def told(story: Story) -> None:
        story.net.ports[PORT] = False
        story.absences.connection_lost(2)
        loop = asyncio.get_running_loop()
        began = loop.time()
        await story.absences.settled()
        assert loop.time() - began < module.ANSWERS_WAIT_SECONDS_MAX + 1
        assert 2 in story.absences.brokers, "it is refused all the time"
        await story.absences.settled()

    play(told)


def test_a_broker_that_listens_is_not_absent() -> None:
    async def told(story: Story) -> None:
        story.absences.connection_lost(2)
        await story.absences.settled()
        assert not story.absences.brokers

    play(told)


def test_a_connection_that_breaks_again_proves_nothing() -> None:
    async def told(story: Story) -> None:
        story.absences.connection_lost(2)
        await story.net.attempts(PORT, 1)
        story.net.ports[PORT] = False
        story.net.break_line(PORT)
        await story.net.attempts(PORT, 2)
        assert 2 in story.absences.brokers

    play(told)


def test_a_broker_that_cannot_be_reached_is_left_to_the_controller() -> None:
    async def told(story: Story) -> None:
        story.net.ports[PORT] = None
        story.absences.connection_lost(2)
        await story.absences.settled()
        assert not story.absences.brokers

    play(told)


def test_one_that_meant_to_stop_is_shown_too() -> None:
    async def told(story: Story) -> None:
        story.change(replace(SECOND, in_controlled_shutdown=True))
        assert not story.absences.is_shown(2)
        story.change(replace(SECOND, in_controlled_shutdown=True, fenced=True))
        assert story.absences.is_shown(2)

    play(told)


def test_one_that_starts_fenced_is_not_shown() -> None:
    async def told(story: Story) -> None:
        story.change(SECOND)
        starting = replace(SECOND, id=3, fenced=True)
        story.image = replace(story.image, brokers={2: SECOND, 3: starting})
        story.absences.brokers_changed(story.image)
        assert not story.absences.is_shown(3)

    play(told)


def test_a_node_that_starts_takes_no_broker_from_clients() -> None:
    async def told(story: Story) -> None:
        story.image = replace(story.image, brokers={2: replace(SECOND, fenced=True)})
        fresh = Absences(story.net, lambda: story.image, lambda _: None)
        fresh.brokers_changed(story.image)
        assert fresh.is_shown(2)
        fresh.close()

    play(told)


def test_nobody_is_absent_in_a_cluster_that_is_well() -> None:
    async def told(story: Story) -> None:
        await story.absences.settled()
        assert not story.net.tried

    play(told)
