"""Metadata that was answered is there after any restart, and nothing is answered before it is on disk."""

from __future__ import annotations

import asyncio
import errno
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from ottla.core.controller.commands import CreatedTopic, CreateTopics, DeleteTopics, NewTopic, TopicReference
from ottla.core.controller.image import ImageDelta, MetadataImage
from ottla.log.disk import RealDisk
from ottla.model.errors import ApiError, CorruptLogError, ErrorCode, StorageError
from ottla.runtime.controller import ControllerDriver
from tests.unit.runtime.metadata import DIRECTORY_ID, Node, running

SMALL = {"metadata.log.max.record.bytes.between.snapshots": "2000"}


async def create(controller: ControllerDriver, *names: str) -> list[CreatedTopic]:
    return await controller.submit(CreateTopics([NewTopic(name) for name in names]))


async def restarted(path: Path, properties: dict[str, str] | None = None) -> Node:
    node = Node(path, properties)
    await node.quorum.start()
    return node


def log_file(path: Path) -> Path:
    return max((path / "__cluster_metadata-0").glob("*.log"))


@pytest.mark.parametrize("clean", [True, False], ids=["closed", "killed"])
def test_metadata_survives_a_restart(tmp_path: Path, clean: bool) -> None:
    async def scenario() -> None:
        async with running(tmp_path) as (node, controller):
            await create(controller, "a", "b")
            await controller.submit(DeleteTopics([TopicReference("a")]))
            if clean:
                await node.quorum.close()
        again = await restarted(tmp_path)
        assert again.quorum.image.topics == node.quorum.image.topics
        assert again.quorum.image.brokers == node.quorum.image.brokers
        assert again.quorum.image.features == {
            "metadata.version": 30,
            "transaction.version": 2,
            "group.version": 1,
            "eligible.leader.replicas.version": 1,
        }

    asyncio.run(scenario())


def test_each_start_is_a_new_epoch(tmp_path: Path) -> None:
    async def scenario() -> None:
        for epoch in (1, 2, 3):
            node = await restarted(tmp_path)
            assert (node.quorum.epoch, node.quorum.image.epoch) == (epoch, epoch)
            assert json.loads((node.directory / "quorum-state").read_text())["leaderEpoch"] == epoch

    asyncio.run(scenario())


def test_an_epoch_whose_file_was_lost_is_not_used_again(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with running(tmp_path) as (node, _):
            await node.quorum.close()
        (node.directory / "quorum-state").unlink()
        assert (await restarted(tmp_path)).quorum.epoch == 2

    asyncio.run(scenario())


@pytest.mark.parametrize("lost", [1, 30, 70])
def test_a_torn_batch_at_the_end_is_cut_off(tmp_path: Path, lost: int) -> None:
    async def scenario() -> None:
        async with running(tmp_path) as (_, controller):
            await create(controller, "kept")
            await create(controller, "torn")
        data = log_file(tmp_path).read_bytes()
        log_file(tmp_path).write_bytes(data[:-lost])
        again = await restarted(tmp_path)
        assert set(again.quorum.image.topics) == {"kept"}
        await create(again.controller(), "later")
        assert set((await restarted(tmp_path)).quorum.image.topics) == {"kept", "later"}

    asyncio.run(scenario())


@pytest.mark.parametrize("tail", [b"\0" * 4096, b"garbage" * 30], ids=["zeros", "garbage"])
def test_a_tail_that_is_no_batch_is_cut_off(tmp_path: Path, tail: bytes) -> None:
    async def scenario() -> None:
        async with running(tmp_path) as (_, controller):
            await create(controller, "kept")
        with log_file(tmp_path).open("ab") as file:
            file.write(tail)
        assert set((await restarted(tmp_path)).quorum.image.topics) == {"kept"}

    asyncio.run(scenario())


def test_damage_to_what_was_safe_stops_the_start(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with running(tmp_path) as (node, controller):
            await create(controller, "kept")
            await node.quorum.close()
        data = bytearray(log_file(tmp_path).read_bytes())
        data[-5] ^= 1
        log_file(tmp_path).write_bytes(data)
        with pytest.raises(CorruptLogError):
            await restarted(tmp_path)
        log_file(tmp_path).write_bytes(data[:200])
        with pytest.raises(CorruptLogError):
            await restarted(tmp_path)
        log_file(tmp_path).unlink()
        with pytest.raises(CorruptLogError):
            await restarted(tmp_path)

    asyncio.run(scenario())


def test_a_quorum_state_that_cannot_be_read_stops_the_start(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with running(tmp_path) as (node, _):
            (node.directory / "quorum-state").write_text("{")
        with pytest.raises(CorruptLogError, match="quorum-state"):
            await restarted(tmp_path)

    asyncio.run(scenario())


def test_nothing_is_answered_or_shown_before_it_is_synced(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with running(tmp_path) as (node, controller):
            seen: list[bool] = []

            def look(name: str) -> None:
                seen.append(answer.done() or "a" in node.quorum.image.topics)

            answer = asyncio.ensure_future(create(controller, "a"))
            node.offload.gate = look
            [created] = await answer
            assert created.outcome.code is ErrorCode.NONE
            assert seen == [False]

    asyncio.run(scenario())


def test_subscribers_know_before_the_answer_leaves(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with running(tmp_path) as (node, controller):
            events: list[str] = []

            def follow(image: MetadataImage, delta: ImageDelta) -> None:
                events.extend(f"hosted {topic.name}" for topic in delta.topics_created)
                assert image is node.quorum.image

            node.quorum.subscribe(follow)
            await create(controller, "a")
            events.append("answered")
            assert events == ["hosted a", "answered"]

    asyncio.run(scenario())


def test_commands_that_arrive_together_share_a_sync(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with running(tmp_path) as (node, controller):
            node.offload.calls.clear()
            await asyncio.gather(*(create(controller, f"t{i}") for i in range(50)))
            assert node.offload.calls.count("sync_until") <= 2
            assert len(node.quorum.image.topics) == 50

    asyncio.run(scenario())


def test_a_second_command_sees_the_first_before_the_disk_has_it(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with running(tmp_path) as (_, controller):
            [[first], [second]] = await asyncio.gather(create(controller, "a"), create(controller, "a"))
            assert first.outcome.code is ErrorCode.NONE
            assert second.outcome.code is ErrorCode.TOPIC_ALREADY_EXISTS

    asyncio.run(scenario())


def test_a_client_that_goes_away_takes_nobody_with_it(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with running(tmp_path) as (node, controller):
            gone = asyncio.ensure_future(create(controller, "a"))
            waiting = asyncio.ensure_future(create(controller, "a"))
            await asyncio.sleep(0)
            gone.cancel()
            [answer] = await waiting
            assert answer.outcome.code is ErrorCode.TOPIC_ALREADY_EXISTS
            assert set(node.quorum.image.topics) == {"a"}

    asyncio.run(scenario())


def test_a_failed_sync_is_final(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with running(tmp_path) as (node, controller):

            def fail(name: str) -> None:
                raise StorageError(str(tmp_path), "the disk is gone")

            node.offload.gate = fail
            answers = await asyncio.gather(*(create(controller, name) for name in "ab"), return_exceptions=True)
            node.offload.gate = lambda name: None
            answers += await asyncio.gather(create(controller, "c"), return_exceptions=True)
            assert [getattr(answer, "code", None) for answer in answers] == [ErrorCode.NOT_CONTROLLER] * 3
            assert [type(failure) for failure in node.failures] == [StorageError]
            assert dict(node.quorum.image.topics) == {}

    asyncio.run(scenario())


def test_a_subscriber_that_fails_stops_the_node(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with running(tmp_path) as (node, controller):
            node.quorum.subscribe(lambda image, delta: 1 / 0)  # type: ignore[arg-type]
            with pytest.raises(ApiError) as refused:
                await create(controller, "a")
            assert refused.value.code is ErrorCode.NOT_CONTROLLER
            assert [type(failure) for failure in node.failures] == [ZeroDivisionError]

    asyncio.run(scenario())


class FullDisk(RealDisk):
    """A disk that has no space left when told so."""

    __slots__ = ("full",)

    def __init__(self) -> None:
        self.full = False

    def open(self, path: str, *, create: bool = False, write: bool = True) -> Any:
        return FullableFile(self, super().open(path, create=create, write=write))


class FullableFile:
    """Passes everything on, except writes to a full disk."""

    def __init__(self, disk: FullDisk, file: Any) -> None:
        self._disk = disk
        self._file = file

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    def pwrite(self, data: bytes, position: int) -> None:
        if self._disk.full:
            raise OSError(errno.ENOSPC, "No space left on device")
        self._file.pwrite(data, position)

    def pwritev(self, pieces: Sequence[bytes], position: int) -> None:
        self.pwrite(b"".join(pieces), position)


def test_without_space_nothing_is_decided_and_with_space_again_all_goes_on(tmp_path: Path) -> None:
    async def scenario() -> None:
        disk = FullDisk()
        async with running(tmp_path, disk=disk) as (node, controller):
            disk.full = True
            with pytest.raises(ApiError, match="no space") as refused:
                await create(controller, "a.b")
            assert refused.value.code is ErrorCode.KAFKA_STORAGE_ERROR
            disk.full = False
            [created] = await create(controller, "a_b")
            assert created.outcome.code is ErrorCode.NONE
            await node.quorum.close()
        assert set((await restarted(tmp_path)).quorum.image.topics) == {"a_b"}

    asyncio.run(scenario())


def test_a_snapshot_takes_the_place_of_an_old_log(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with running(tmp_path, SMALL) as (node, controller):
            for i in range(60):
                await create(controller, f"t{i}")
            await node.quorum.close()
        names = sorted(path.name for path in node.directory.iterdir())
        assert sum(name.endswith(".checkpoint") for name in names) == 1
        first_segment = min(int(name.split(".")[0]) for name in names if name.endswith(".log"))
        assert first_segment > 0
        again = await restarted(tmp_path, SMALL)
        assert again.quorum.image.topics == node.quorum.image.topics
        assert again.quorum.epoch == 2
        [created] = await create(again.controller(), "later")
        assert created.outcome.code is ErrorCode.NONE

    asyncio.run(scenario())


def test_a_snapshot_is_due_after_a_while_too(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with running(tmp_path, {"metadata.log.max.snapshot.interval.ms": "1000"}) as (node, controller):
            await create(controller, "a")
            assert not list(node.directory.glob("*.checkpoint"))
            node.clock.ms += 1000
            await create(controller, "b")
            await node.quorum.close()
            assert len(list(node.directory.glob("*.checkpoint"))) == 1

    asyncio.run(scenario())


def test_a_crash_while_a_snapshot_is_written_costs_nothing(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with running(tmp_path, SMALL) as (node, controller):

            def crash(name: str) -> None:
                if name == "write_snapshot":
                    (node.directory / "00000000000000000009-0000000001.checkpoint.part").write_bytes(b"half")
                    raise StorageError(str(tmp_path), "crash")

            node.offload.gate = crash
            for i in range(30):
                await create(controller, f"t{i}")
            assert node.failures == []
        again = await restarted(tmp_path, SMALL)
        assert again.quorum.image.topics == node.quorum.image.topics

    asyncio.run(scenario())


def test_a_damaged_snapshot_stops_the_start(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with running(tmp_path, SMALL) as (node, controller):
            for i in range(60):
                await create(controller, f"t{i}")
            await node.quorum.close()
        [snapshot] = node.directory.glob("*.checkpoint")
        whole = snapshot.read_bytes()
        for damaged in (whole[:-1], whole[:-100], whole[:99] + b"x" + whole[100:], b""):
            snapshot.write_bytes(damaged)
            with pytest.raises(CorruptLogError):
                await restarted(tmp_path, SMALL)
        snapshot.unlink()
        with pytest.raises(CorruptLogError):
            await restarted(tmp_path, SMALL)

    asyncio.run(scenario())


def test_the_quorum_describes_itself(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with running(tmp_path) as (node, _):
            described = node.quorum.describe()
            assert (described.leader_id, described.leader_epoch) == (1, 1)
            assert described.high_watermark == node.quorum.next_offset == node.quorum.image.offset + 1
            [voter] = described.voters
            assert (voter.replica_id, voter.directory_id, voter.log_end_offset) == (
                1,
                DIRECTORY_ID,
                described.high_watermark,
            )
            assert described.observers == ()

    asyncio.run(scenario())
