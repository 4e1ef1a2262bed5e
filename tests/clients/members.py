"""Group members of several makes behind one face, so that a test says once what all of them must do."""

from __future__ import annotations

import asyncio
import contextlib
import re
import threading
import time
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import Future
from typing import Any, NamedTuple, Protocol, TypeAlias

import aiokafka
import kafka
from confluent_kafka import Consumer, KafkaException, TopicPartition
from kafka.structs import OffsetAndMetadata

SECONDS_MAX = 9.0
POLL_SECONDS = 0.02

Place: TypeAlias = tuple[str, int]
"""A topic and the number of a partition."""
MAKES = ["confluent-classic", "confluent-consumer", "kafka-python", "aiokafka"]
"""The clients; the first one in both protocols, the others know the classic one only."""


class Read(NamedTuple):
    place: Place
    offset: int
    value: bytes | None


class Member(Protocol):
    """A consumer in a group. `poll` waits a moment; what it got is in `reads`."""

    reads: list[Read]

    def poll(self) -> None: ...

    def assignment(self) -> set[Place]: ...

    def commit(self, offsets: dict[Place, int] | None = None) -> None: ...

    def committed(self, place: Place) -> int | None: ...

    def seek(self, place: Place, offset: int) -> None: ...

    def position(self, place: Place) -> int: ...

    def close(self) -> None: ...


class ConfluentMember:
    """librdkafka, in either protocol."""

    def __init__(self, topics: list[str], **settings: Any) -> None:
        self.reads: list[Read] = []
        self.errors: list[KafkaException] = []
        self.gained: list[Place] = []
        self.lost: list[Place] = []
        self.consumer = Consumer(
            {"enable.auto.commit": False, "auto.offset.reset": "earliest", "fetch.wait.max.ms": 50} | settings
        )
        self.consumer.subscribe(topics, on_assign=self._on_assign, on_revoke=self._on_revoke)

    def _on_assign(self, _: Consumer, partitions: list[TopicPartition]) -> None:
        self.gained += [(partition.topic, partition.partition) for partition in partitions]

    def _on_revoke(self, _: Consumer, partitions: list[TopicPartition]) -> None:
        self.lost += [(partition.topic, partition.partition) for partition in partitions]

    def poll(self) -> None:
        for message in self.consumer.consume(500, POLL_SECONDS):
            if message.error() is None:
                self.reads.append(Read((message.topic(), message.partition()), message.offset(), message.value()))
            else:
                self.errors.append(message.error())

    def assignment(self) -> set[Place]:
        return {(partition.topic, partition.partition) for partition in self.consumer.assignment()}

    def commit(self, offsets: dict[Place, int] | None = None) -> None:
        if offsets is None:
            self.consumer.commit(asynchronous=False)
        else:
            given = [TopicPartition(*place, offset) for place, offset in offsets.items()]
            for partition in self.consumer.commit(offsets=given, asynchronous=False):
                assert partition.error is None, partition.error

    def committed(self, place: Place) -> int | None:
        (partition,) = self.consumer.committed([TopicPartition(*place)], timeout=SECONDS_MAX)
        assert partition.error is None, partition.error
        return partition.offset if partition.offset >= 0 else None

    def seek(self, place: Place, offset: int) -> None:
        self.consumer.seek(TopicPartition(*place, offset))

    def position(self, place: Place) -> int:
        return int(self.consumer.position([TopicPartition(*place)])[0].offset)

    def close(self) -> None:
        self.consumer.close()


class KafkaPythonMember:
    """kafka-python."""

    def __init__(self, topics: list[str], **settings: Any) -> None:
        self.reads: list[Read] = []
        given = {"enable_auto_commit": False, "auto_offset_reset": "earliest", "heartbeat_interval_ms": 100}
        pattern = topics[0].startswith("^")
        self.consumer = kafka.KafkaConsumer(*([] if pattern else topics), **given | settings)
        if pattern:
            self.consumer.subscribe(pattern=topics[0])
        else:
            # As leader it divides what it knows of a topic, which may be nothing yet: it shall know before it joins.
            until(lambda: all(self.consumer.partitions_for_topic(topic) for topic in topics))

    def poll(self) -> None:
        for records in self.consumer.poll(timeout_ms=int(POLL_SECONDS * 1000)).values():
            self.reads += [Read((record.topic, record.partition), record.offset, record.value) for record in records]

    def assignment(self) -> set[Place]:
        return {(partition.topic, partition.partition) for partition in self.consumer.assignment()}

    def commit(self, offsets: dict[Place, int] | None = None) -> None:
        given = {kafka.TopicPartition(*at): OffsetAndMetadata(offset, "", -1) for at, offset in (offsets or {}).items()}
        self.consumer.commit(given or None)

    def committed(self, place: Place) -> int | None:
        offset: int | None = self.consumer.committed(kafka.TopicPartition(*place))
        return offset

    def seek(self, place: Place, offset: int) -> None:
        self.consumer.seek(kafka.TopicPartition(*place), offset)

    def position(self, place: Place) -> int:
        return int(self.consumer.position(kafka.TopicPartition(*place)))

    def close(self) -> None:
        self.consumer.close()


class AioMember:
    """aiokafka, on a loop in a thread of its own, where its heartbeats go on between polls."""

    def __init__(self, topics: list[str], **settings: Any) -> None:
        self.reads: list[Read] = []
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        given = {"enable_auto_commit": False, "auto_offset_reset": "earliest", "heartbeat_interval_ms": 100}
        self.consumer: aiokafka.AIOKafkaConsumer = self._run(self._make(topics, given | settings))
        # It starts with its first assignment, for which the other members may have to be polled.
        self._started = asyncio.run_coroutine_threadsafe(self.consumer.start(), self._loop)
        self._reading: Future[Any] | None = None

    async def _make(self, topics: list[str], settings: dict[str, Any]) -> aiokafka.AIOKafkaConsumer:
        consumer = aiokafka.AIOKafkaConsumer(**settings)
        if topics[0].startswith("^"):
            consumer.subscribe(pattern=topics[0])
        else:
            consumer.subscribe(topics)
        return consumer

    def _run(self, work: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(SECONDS_MAX * 2)

    def poll(self) -> None:
        try:
            self._started.result(POLL_SECONDS)
        except TimeoutError:
            return
        if self._reading is None:
            work = self.consumer.getmany(timeout_ms=int(POLL_SECONDS * 1000))
            self._reading = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            # During a rebalance it waits for the others, who may have to be polled: it is asked again next time.
            found = self._reading.result(2 * POLL_SECONDS)
        except TimeoutError:
            return
        self._reading = None
        for records in found.values():
            self.reads += [Read((record.topic, record.partition), record.offset, record.value) for record in records]

    def assignment(self) -> set[Place]:
        if not self._started.done():
            return set()
        return {(partition.topic, partition.partition) for partition in self.consumer.assignment()}

    def commit(self, offsets: dict[Place, int] | None = None) -> None:
        given = {aiokafka.TopicPartition(*place): offset for place, offset in (offsets or {}).items()}
        self._run(self.consumer.commit(given or None))

    def committed(self, place: Place) -> int | None:
        offset: int | None = self._run(self.consumer.committed(aiokafka.TopicPartition(*place)))
        return offset

    def seek(self, place: Place, offset: int) -> None:
        self.consumer.seek(aiokafka.TopicPartition(*place), offset)

    def position(self, place: Place) -> int:
        return int(self._run(self.consumer.position(aiokafka.TopicPartition(*place))))

    def close(self) -> None:
        if self._thread.is_alive():
            if self._reading is not None:
                self._reading.cancel()
            self._run(self.consumer.stop())
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(SECONDS_MAX)
            self._loop.close()


class Members:
    """Makes members of one broker; those that a test left open are closed at its end."""

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap
        self._made: list[Member] = []

    def join(self, make: str, group_id: str, topics: str | list[str], **settings: Any) -> Member:
        """A member of `make`, with settings by librdkafka's names with underscores."""
        listed = [topics] if isinstance(topics, str) else topics
        member: Member
        match make:
            case "confluent-classic" | "confluent-consumer":
                member = self.confluent(make.removeprefix("confluent-"), group_id, listed, **settings)
            case "kafka-python":
                member = KafkaPythonMember(
                    listed, bootstrap_servers=self._bootstrap, group_id=group_id, **_snake(settings)
                )
            case _:
                member = AioMember(listed, bootstrap_servers=self._bootstrap, group_id=group_id, **_snake(settings))
        self._made.append(member)
        return member

    def confluent(self, protocol: str, group_id: str, topics: list[str], **settings: Any) -> ConfluentMember:
        given = {key.replace("_", "."): value for key, value in settings.items()}
        if protocol == "classic":
            given = {"heartbeat.interval.ms": 100} | given
        member = ConfluentMember(
            topics, **{"bootstrap.servers": self._bootstrap, "group.id": group_id, "group.protocol": protocol} | given
        )
        self._made.append(member)
        return member

    def close(self) -> None:
        for member in self._made:
            with contextlib.suppress(RuntimeError):
                member.close()


def _snake(settings: dict[str, Any]) -> dict[str, Any]:
    renamed = {"topic_metadata_refresh_interval_ms": "metadata_max_age_ms"}
    return {renamed.get(key, key): value for key, value in settings.items()}


@contextlib.contextmanager
def members_of(bootstrap: str) -> Iterator[Members]:
    members = Members(bootstrap)
    try:
        yield members
    finally:
        members.close()


def until(true: Callable[[], object], *polled: Member, seconds: float = SECONDS_MAX) -> None:
    """Poll the members until it is true."""
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline, f"it did not come to pass: {[member.assignment() for member in polled]}"
        for member in polled:
            member.poll()
        if not polled:
            time.sleep(POLL_SECONDS)


def values(*members: Member) -> list[int]:
    """Numbers that the members read, sorted."""
    return sorted(int(read.value or b"-1") for member in members for read in member.reads)


def readable(name: str) -> str:
    """A test's name as a topic's."""
    return re.sub(r"[^a-zA-Z0-9._-]", "-", name)[:80]
