"""A broker's registration, heartbeats and goodbye, with a controller that says what a test wants."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest

from ottla.core.controller.cluster_commands import BrokerHeartbeat, HeartbeatAnswer
from ottla.core.controller.commands import RegisterBroker
from ottla.core.controller.image import BrokerImage, MetadataImage
from ottla.model.configs.resolve import BrokerConfig
from ottla.model.errors import ApiError, ErrorCode
from ottla.runtime import broker_lifecycle
from ottla.runtime.broker_lifecycle import BrokerLifecycle, RegistrationError
from ottla.runtime.network import PeerError

ME, OTHER = 1, 2


def broker(broker_id: int, epoch: int, *, fenced: bool = False) -> BrokerImage:
    return BrokerImage(id=broker_id, epoch=epoch, incarnation_id=UUID(int=broker_id), endpoints=(), fenced=fenced)


class Cluster:
    """A controller as one broker sees it; `errors` are what it says first."""

    def __init__(self, **config: str) -> None:
        keys = {key.replace("_", "."): value for key, value in config.items()}
        self.config = BrokerConfig.from_properties(keys)
        self.image = MetadataImage(offset=0, brokers={OTHER: broker(OTHER, 1)})
        self.errors: list[Exception] = []
        self.registrations: list[RegisterBroker] = []
        self.heartbeats: list[BrokerHeartbeat] = []
        self.epochs: list[int] = []
        self.failures: list[Exception] = []
        self.silent = False
        self.lifecycle = BrokerLifecycle(
            self,
            self._registration,
            config=lambda: self.config,
            image=lambda: self.image,
            on_registered=self.epochs.append,
            on_failure=self.failures.append,
        )

    def _registration(self, previous_epoch: int) -> RegisterBroker:
        return RegisterBroker(
            broker_id=ME, incarnation_id=UUID(int=1), cluster_id="c", endpoints=(), previous_broker_epoch=previous_epoch
        )

    async def submit(self, command: Any) -> Any:
        await asyncio.sleep(0)
        if self.silent:
            raise PeerError("controller", "gone")
        if self.errors:
            raise self.errors.pop(0)
        if isinstance(command, RegisterBroker):
            self.registrations.append(command)
            self._commit(broker(ME, self.image.offset + 1, fenced=True))
            return self.image.offset
        assert isinstance(command, BrokerHeartbeat)
        self.heartbeats.append(command)
        me = self.image.brokers[ME]
        if me.fenced is not command.want_fence:
            self._commit(replace(me, fenced=command.want_fence))
        return HeartbeatAnswer(True, command.want_fence, command.want_shut_down)

    def _commit(self, me: BrokerImage) -> None:
        self.image = replace(self.image, offset=self.image.offset + 1, brokers={**self.image.brokers, ME: me})
        self.lifecycle.metadata_changed()

    def fence(self) -> None:
        self._commit(replace(self.image.brokers[ME], fenced=True))


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(5):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.001)


async def started(**config: str) -> Cluster:
    cluster = Cluster(**config)
    await cluster.lifecycle.register()
    await cluster.lifecycle.caught_up()
    await cluster.lifecycle.unfence()
    return cluster


def run(story: Any) -> None:
    asyncio.run(story())


def test_a_broker_is_fenced_until_it_may_lead() -> None:
    async def story() -> None:
        cluster = Cluster()
        await cluster.lifecycle.register()
        await until(lambda: bool(cluster.heartbeats))
        assert cluster.heartbeats[0].want_fence
        await cluster.lifecycle.unfence()
        assert not cluster.lifecycle.is_fenced
        assert cluster.epochs == [cluster.lifecycle.epoch] == [1]
        await cluster.lifecycle.close()

    run(story)


def test_a_controller_that_is_not_there_yet_is_asked_again() -> None:
    async def story() -> None:
        cluster = Cluster()
        cluster.errors = [PeerError("x", "refused"), ApiError(ErrorCode.NOT_CONTROLLER, "later")]
        await cluster.lifecycle.register()
        assert len(cluster.registrations) == 1
        await cluster.lifecycle.close()

    run(story)


def test_without_a_majority_the_start_fails_and_names_the_voters() -> None:
    async def story() -> None:
        cluster = Cluster(
            initial_broker_registration_timeout_ms="50", controller_quorum_voters="1@a:1,2@b:1,3@c:1", node_id="1"
        )
        cluster.silent = True
        with pytest.raises(RegistrationError, match=r"majority of the voters.*1@a:1, 2@b:1, 3@c:1"):
            await cluster.lifecycle.register()

    run(story)


def test_a_foreign_cluster_is_refused_at_once() -> None:
    async def story() -> None:
        cluster = Cluster()
        cluster.errors = [ApiError(ErrorCode.INCONSISTENT_CLUSTER_ID, "Expected cluster ID x")]
        with pytest.raises(RegistrationError, match=r"belong to cluster c, .*Expected cluster ID x"):
            await cluster.lifecycle.register()

    run(story)


def test_a_second_process_with_the_same_id_gives_up_after_two_sessions() -> None:
    async def story() -> None:
        cluster = Cluster(broker_session_timeout_ms="20", broker_heartbeat_interval_ms="5")
        cluster.errors = [ApiError(ErrorCode.DUPLICATE_BROKER_REGISTRATION, "in use")] * 1000
        with pytest.raises(RegistrationError, match=r"another live broker has node\.id 1"):
            await cluster.lifecycle.register()

    run(story)


def test_a_broker_that_was_fenced_comes_back() -> None:
    async def story() -> None:
        cluster = await started()
        before = len(cluster.heartbeats)
        cluster.fence()
        await until(lambda: not cluster.image.brokers[ME].fenced)
        assert len(cluster.heartbeats) > before
        await cluster.lifecycle.close()

    run(story)


def test_a_broker_that_was_forgotten_registers_again() -> None:
    async def story() -> None:
        cluster = await started(broker_heartbeat_interval_ms="5")
        cluster.errors = [ApiError(ErrorCode.STALE_BROKER_EPOCH, "who?")]
        await until(lambda: len(cluster.registrations) == 2)
        assert cluster.registrations[1].previous_broker_epoch == cluster.epochs[0]
        await until(lambda: not cluster.image.brokers[ME].fenced)
        assert cluster.epochs[1] > cluster.epochs[0]
        await cluster.lifecycle.close()

    run(story)


def test_who_is_replaced_by_another_with_its_id_stops() -> None:
    async def story() -> None:
        cluster = await started(broker_session_timeout_ms="20", broker_heartbeat_interval_ms="5")
        duplicate = ApiError(ErrorCode.DUPLICATE_BROKER_REGISTRATION, "in use")
        cluster.errors = [ApiError(ErrorCode.STALE_BROKER_EPOCH, "who?"), *[duplicate] * 1000]
        await until(lambda: bool(cluster.failures))
        assert isinstance(cluster.failures[0], RegistrationError)
        await cluster.lifecycle.close()

    run(story)


def test_a_planned_stop_hands_over_first() -> None:
    async def story() -> None:
        cluster = await started()
        await cluster.lifecycle.shut_down()
        assert cluster.heartbeats[-1].want_shut_down
        await cluster.lifecycle.close()

    run(story)


def test_a_stop_does_not_wait_for_a_controller_that_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(broker_lifecycle, "SHUTDOWN_SILENCE_SECONDS_MAX", 0.05)

    async def story() -> None:
        cluster = await started()
        cluster.silent = True
        async with asyncio.timeout(2):
            await cluster.lifecycle.shut_down()
        await cluster.lifecycle.close()

    run(story)


def test_the_last_broker_has_nobody_to_hand_over_to() -> None:
    async def story() -> None:
        cluster = await started()
        cluster.image = replace(cluster.image, brokers={ME: cluster.image.brokers[ME]})
        await cluster.lifecycle.shut_down()
        assert not cluster.heartbeats[-1].want_shut_down
        await cluster.lifecycle.close()

    run(story)
