"""A fetcher against a real leader's handler: what is committed, and what becomes of logs when leaders change."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from ottla.api import fetch
from ottla.api.context import Services
from ottla.api.deferred import Deferred
from ottla.core.controller.image import TopicImage
from ottla.model.chunks import Chunks, FileSlice
from ottla.runtime.partition import Partition
from ottla.runtime.replica_fetcher import ReplicaFetcher
from ottla.wire.batch import BatchHeader, read_header
from tests.unit.api.replica_services import context, services
from tests.unit.log.support import batch_of, read_all
from tests.unit.runtime.leader_stub import OWN, Following, LeaderStub
from tests.unit.runtime.replicas import TOPIC, TOPIC_ID, Cluster
from tests.unit.runtime.test_replica_fetcher import run

VERSION = 17
RESPONSE_HEADER_BYTES = 5


class HandlerPeer:
    """Hands requests to a broker's own handler, as its connection would."""

    def __init__(self, made: Services) -> None:
        self.services = made

    async def request_raw(
        self,
        api_key: int,
        version_max: int,
        body: Callable[[int], bytes],
        *,
        timeout_ms: int,
        version_min: int = 0,
        reply: Callable[[memoryview], bytes | None] | None = None,
    ) -> tuple[int, memoryview]:
        asked: bytes | None = body(VERSION)
        while asked is not None:
            answer = await self._answer(api_key, asked)
            asked = None if reply is None else reply(answer)
        return VERSION, answer

    async def _answer(self, api_key: int, body: bytes) -> memoryview:
        await asyncio.sleep(0)
        answer: Any = fetch.handle(context(self.services, api_key, VERSION), memoryview(body), 0)
        if isinstance(answer, Deferred):
            done = asyncio.Event()
            answer.listen(done.set)
            await done.wait()
            answer = answer.chunks
        return memoryview(joined(answer))[RESPONSE_HEADER_BYTES:]


def joined(chunks: Chunks) -> bytes:
    return b"".join(
        chunk.file.pread(chunk.length, chunk.position) if isinstance(chunk, FileSlice) else bytes(chunk)
        for chunk in chunks
    )


class Pair:
    """Broker 2 leads with the real code, broker 1 follows with the real fetcher."""

    def __init__(self) -> None:
        self.cluster = Cluster(2)
        self.cluster.change(leader=2)
        self.cluster.publish(2)
        self.leader = self.cluster.replicas[2]
        self.following = Following(LeaderStub())
        self.following.table.drop(self.following.partition().topic_id)
        peer: Any = HandlerPeer(services(self.cluster, 2))
        self.fetcher = ReplicaFetcher(2, peer, self.following.context, self.following.quota)
        object.__setattr__(self.following.context, "broker_epoch", lambda: self.cluster.brokers[OWN].epoch)
        self.follow()

    def follow(self) -> None:
        self.following.table.host(topic_of(self), self.cluster.config)
        self.fetcher.follow(self.own)

    @property
    def own(self) -> Partition:
        return self.following.table.hosted(TOPIC, 0)

    @property
    def led(self) -> Partition:
        return self.cluster.partition(2)

    def is_level(self) -> bool:
        own = self.own.log_or_none
        return own is not None and own.log_end_offset == self.led.log.log_end_offset == self.own.high_watermark


def test_what_the_follower_has_is_committed_and_both_know_it() -> None:
    async def scenario() -> None:
        pair = Pair()
        for _ in range(5):
            pair.cluster.produce(3)
            appended = pair.cluster.produce(2)
            await asyncio.wait_for(pair.led.replicated(appended.last_offset + 1), 5)
            assert pair.own.log.log_end_offset == appended.last_offset + 1
        pair.cluster.produce()
        await pair.following.until(pair.is_level)
        assert read_all(pair.own.log) == read_all(pair.led.log)
        await pair.fetcher.close()

    run(scenario)


def test_a_former_leader_gives_up_what_nobody_else_has() -> None:
    async def scenario() -> None:
        pair = Pair()
        pair.cluster.produce(4)
        await pair.following.until(pair.is_level)
        committed = pair.own.high_watermark
        # Broker 1 leads for an epoch and writes what nobody fetches; then broker 2 leads again.
        pair.cluster.change(leader=1)
        pair.fetcher.release((TOPIC_ID, 0))
        pair.following.table.host(topic_of(pair), pair.cluster.config)
        pair.own.append(*batch(), 0)
        assert pair.own.log.log_end_offset == committed + 1
        pair.cluster.change(leader=2)
        pair.cluster.publish(2)
        pair.cluster.produce(2)
        pair.follow()
        await pair.following.until(pair.is_level)
        assert read_all(pair.own.log) == read_all(pair.led.log)
        assert pair.own.log.epochs.entries == pair.led.log.epochs.entries
        assert pair.own.high_watermark == committed + 2
        await pair.fetcher.close()

    run(scenario)


def topic_of(pair: Pair) -> TopicImage:
    return TopicImage(TOPIC, TOPIC_ID, (pair.cluster.state,))


def batch() -> tuple[memoryview, BatchHeader]:
    made = batch_of(1)
    return memoryview(made), read_header(made)
