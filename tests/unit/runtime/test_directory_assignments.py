"""The controller hears where replicas are until it knows, and nothing that it knows already."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast
from uuid import UUID

import pytest

from ottla.core.controller.cluster_commands import AssignReplicasToDirectories, ReplicaDirectory
from ottla.core.controller.commands import Outcome
from ottla.core.controller.image import MetadataImage, PartitionImage, TopicImage
from ottla.model.errors import ApiError, ErrorCode
from ottla.model.ids import TopicPartition
from ottla.runtime import directory_assignments
from ottla.runtime.directory_assignments import DirectoryAssignments

FIRST, SECOND, TOPIC = UUID(int=101), UUID(int=102), UUID(int=7)
NODE = 2


class Lab:
    """A broker with some directories, a metadata image, and a controller that takes what it is told."""

    def __init__(self, directories: int = 2) -> None:
        online = [SimpleNamespace(directory_id=UUID(int=101 + n), online=True) for n in range(directories)]
        self.places: dict[TopicPartition, Any] = {}
        self.directories = SimpleNamespace(
            online=online, directory_of=self.places.get, on_placed=lambda tp: None, place=self.place_anew
        )
        self.may_lie_elsewhere = False
        partitions = tuple(
            PartitionImage(
                replicas=(1, NODE, 3),
                isr=(1, NODE, 3),
                leader=1,
                directories=(UUID(int=1), UUID(int=0), UUID(int=3)),
            )
            for _ in range(3)
        )
        topic = TopicImage(name="orders", id=TOPIC, partitions=partitions)
        self.image = MetadataImage(topics={"orders": topic}, topics_by_id={TOPIC: topic})
        self.told: list[list[ReplicaDirectory]] = []
        self.script: list[ErrorCode | Exception] = []
        self.news = asyncio.Event()
        self.assignments = DirectoryAssignments(
            cast(Any, self.directories), self, node_id=NODE, broker_epoch=lambda: 5, image=lambda: self.image
        )

    async def submit(self, command: AssignReplicasToDirectories) -> list[tuple[ReplicaDirectory, Outcome]]:
        assert (command.broker_id, command.broker_epoch) == (NODE, 5)
        await asyncio.sleep(0)
        self.told.append(list(command.replicas))
        self.news.set()
        answer = self.script.pop(0) if self.script else ErrorCode.NONE
        if isinstance(answer, Exception):
            raise answer
        return [(replica, Outcome(answer)) for replica in command.replicas]

    def place(self, partition: int, directory: int) -> TopicPartition:
        tp = TopicPartition("orders", partition)
        self.places[tp] = self.directories.online[directory]
        self.directories.on_placed(tp)
        return tp

    def place_anew(self, tp: TopicPartition) -> None:
        if self.may_lie_elsewhere:
            raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR, "it may lie in a directory that is offline")
        self.place(tp.partition, 0)

    def with_sole_replicas(self, *directories: UUID) -> list[TopicPartition]:
        """Partitions that are only here, in these directories as far as the metadata says."""
        partitions = tuple(
            PartitionImage(replicas=(NODE,), isr=(), elr=(NODE,), leader=-1, directories=(at,)) for at in directories
        )
        topic = TopicImage(name="orders", id=TOPIC, partitions=partitions)
        self.image = MetadataImage(topics={"orders": topic}, topics_by_id={TOPIC: topic})
        return [TopicPartition("orders", index) for index in range(len(partitions))]

    async def has_told(self) -> list[ReplicaDirectory]:
        await self.news.wait()
        self.news.clear()
        for _ in range(4):
            await asyncio.sleep(0)
        return self.told[-1]


def in_lab(story: Callable[[Lab], Awaitable[None]], directories: int = 2) -> None:
    async def main() -> None:
        lab = Lab(directories)
        try:
            await asyncio.wait_for(story(lab), 10)
        finally:
            await lab.assignments.stop()

    asyncio.run(main())


@pytest.fixture(autouse=True)
def no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(directory_assignments, "RETRY_SECONDS", 0.001)


def test_each_new_place_is_told() -> None:
    async def story(lab: Lab) -> None:
        lab.assignments.start([])
        lab.place(1, 1)
        assert await lab.has_told() == [ReplicaDirectory(TOPIC, 1, SECOND)]
        lab.place(2, 0)
        assert await lab.has_told() == [ReplicaDirectory(TOPIC, 2, FIRST)]

    in_lab(story)


def test_at_the_start_only_what_differs_is_told() -> None:
    async def story(lab: Lab) -> None:
        found = [lab.place(partition, 1) for partition in range(3)]
        topic = lab.image.topics["orders"]
        known = replace(topic.partitions[0], directories=(UUID(int=1), SECOND, UUID(int=3)))
        elsewhere = replace(topic.partitions[2], replicas=(1, 3), directories=())
        lab.image = replace(
            lab.image, topics={"orders": replace(topic, partitions=(known, topic.partitions[1], elsewhere))}
        )
        lab.assignments.start([*found, TopicPartition("gone", 0), TopicPartition("orders", 9)])
        assert await lab.has_told() == [ReplicaDirectory(TOPIC, 1, SECOND)]

    in_lab(story)


@pytest.mark.parametrize("failure", [ApiError(ErrorCode.NOT_CONTROLLER, "try again"), RuntimeError("a bug")])
def test_it_is_told_again_until_a_controller_has_heard_it(failure: Exception) -> None:
    async def story(lab: Lab) -> None:
        lab.script = [failure, failure]
        lab.assignments.start([])
        lab.place(0, 1)
        for _ in range(3):
            assert await lab.has_told() == [ReplicaDirectory(TOPIC, 0, SECOND)]
        assert len(lab.told) == 3

    in_lab(story)


def test_what_is_in_a_directory_that_has_failed_meanwhile_is_told_all_the_same() -> None:
    async def story(lab: Lab) -> None:
        lab.assignments.start([])
        lab.place(0, 1)
        lab.directories.online[1].online = False
        assert await lab.has_told() == [ReplicaDirectory(TOPIC, 0, SECOND)]

    in_lab(story)


def test_a_refused_one_is_not_told_again() -> None:
    async def story(lab: Lab) -> None:
        lab.script = [ErrorCode.INVALID_REQUEST]
        lab.assignments.start([])
        lab.place(0, 1)
        await lab.has_told()
        lab.place(1, 1)
        assert await lab.has_told() == [ReplicaDirectory(TOPIC, 1, SECOND)]

    in_lab(story)


def test_with_one_directory_there_is_nothing_to_tell() -> None:
    async def story(lab: Lab) -> None:
        lab.assignments.start([lab.place(0, 0)])
        lab.place(1, 0)
        await asyncio.sleep(0.01)
        assert not lab.told

    in_lab(story, directories=1)


@pytest.mark.parametrize("directories", [1, 2])
def test_a_sole_replica_whose_directory_is_gone_gets_another_and_it_is_told(directories: int) -> None:
    gone, not_chosen = UUID(int=900), UUID(int=0)

    async def story(lab: Lab) -> None:
        lab.assignments.start(lab.with_sole_replicas(FIRST, gone, not_chosen))
        assert await lab.has_told() == [ReplicaDirectory(TOPIC, 1, FIRST)]
        assert list(lab.places) == [TopicPartition("orders", 1)]

    in_lab(story, directories)


def test_one_that_was_moved_to_the_only_directory_by_hand_is_told() -> None:
    async def story(lab: Lab) -> None:
        (tp,) = lab.with_sole_replicas(UUID(int=900))
        lab.place(0, 0)
        lab.assignments.start([tp])
        assert await lab.has_told() == [ReplicaDirectory(TOPIC, 0, FIRST)]

    in_lab(story, directories=1)


def test_one_that_may_lie_in_a_directory_that_could_not_be_opened_is_left_alone() -> None:
    async def story(lab: Lab) -> None:
        lab.may_lie_elsewhere = True
        lab.assignments.start(lab.with_sole_replicas(UUID(int=900)))
        for _ in range(10):
            await asyncio.sleep(0)
        assert (lab.told, lab.places) == ([], {})

    in_lab(story, directories=1)
