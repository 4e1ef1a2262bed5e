"""Markers reach the leaders of their partitions, over real sockets, in few requests; what fails is told, not lost."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AsyncExitStack
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast
from uuid import UUID

from ottla.api import write_txn_markers
from ottla.cli.free_ports import free_port
from ottla.core.controller.image import BrokerImage, MetadataImage, PartitionImage, TopicImage
from ottla.core.controller.records import BrokerEndpoint
from ottla.core.transactions.commands import PendingMarkers
from ottla.model.configs.resolve import TopicConfig
from ottla.model.errors import ErrorCode
from ottla.model.ids import TopicPartition
from ottla.runtime.marker_sending import MARKERS_PER_REQUEST_MAX, MarkerSending
from ottla.runtime.marker_writing import MarkerWriter, Results
from ottla.runtime.peers import Peers
from ottla.runtime.tcp_network import TcpNetwork
from ottla.wire.messages.write_txn_markers import WriteTxnMarkersRequest, WriteTxnMarkersResponse
from ottla.wire.schema import Message, decode, encode
from tests.unit.runtime.far_ends import broker_like, far_end
from tests.unit.runtime.hosted import NODE_ID, TOPIC, Hosted

OTHER, THIRD = 2, 3


class OtherBroker:
    """A broker that leads all of a topic, and serves WriteTxnMarkers."""

    def __init__(self) -> None:
        self.hosted = Hosted()
        self.requests: list[WriteTxnMarkersRequest] = []
        self.gate = asyncio.Event()
        self.gate.set()
        writer = MarkerWriter(self.hosted.table, self.hosted.clock, self.hosted.flushes, _nobody)
        self._context = cast(Any, SimpleNamespace(services=SimpleNamespace(markers=writer)))

    async def answer(self, key: int, version: int, body: memoryview) -> bytes:
        request = decode(WriteTxnMarkersRequest, body, version)
        self.requests.append(request)
        await self.gate.wait()
        answer = write_txn_markers.handle(self._context, request)
        response = answer if isinstance(answer, Message) else await answer
        return encode(response, version)


def _nobody() -> Any:
    raise AssertionError("no offsets here")


class Cluster:
    """This broker, and who leads the partitions of the topic: 0, 1, 2, ..."""

    def __init__(self, ports: Mapping[int, int], *leaders: int) -> None:
        self.hosted = Hosted()
        self.image = MetadataImage(
            brokers={broker_id: _broker(broker_id, port) for broker_id, port in ports.items()},
            topics={TOPIC: TopicImage(TOPIC, UUID(int=100), _led_by(*leaders))},
        )
        self.peers = Peers(
            TcpNetwork(),
            client_id="tests",
            image=lambda: self.image,
            listener_name=lambda: "PLAINTEXT",
            leader=lambda: None,
            voters=lambda: (),
        )
        writer = MarkerWriter(self.hosted.table, self.hosted.clock, self.hosted.flushes, _nobody)
        self.sending = MarkerSending(writer, self.peers, lambda: self.image, node_id=NODE_ID)

    def lead(self, *leaders: int) -> None:
        self.image = replace(self.image, topics={TOPIC: TopicImage(TOPIC, UUID(int=100), _led_by(*leaders))})


def _broker(broker_id: int, port: int) -> BrokerImage:
    endpoint = BrokerEndpoint("PLAINTEXT", "127.0.0.1", port, 0)
    return BrokerImage(id=broker_id, epoch=1, incarnation_id=UUID(int=1), endpoints=(endpoint,))


def _led_by(*leaders: int) -> tuple[PartitionImage, ...]:
    return tuple(PartitionImage(replicas=(NODE_ID, OTHER, THIRD), isr=(leader,), leader=leader) for leader in leaders)


def pending(producer_id: int, *indexes: int, topic: str = TOPIC) -> PendingMarkers:
    return PendingMarkers(
        transactional_id=f"t-{producer_id}",
        producer_id=producer_id,
        producer_epoch=4,
        committed=True,
        partitions=tuple(TopicPartition(topic, index) for index in indexes),
        prepared_timestamp=1,
        transaction_version=2,
    )


async def settled(results: Results | Awaitable[Results]) -> dict[int, ErrorCode]:
    found = results if isinstance(results, Mapping) else await results
    return {tp.partition: code for tp, code in found.items()}


def run(story: Callable[[AsyncExitStack], Awaitable[None]]) -> None:
    async def whole() -> None:
        async with AsyncExitStack() as stack, asyncio.timeout(30):
            await story(stack)

    asyncio.run(whole())


async def serving(stack: AsyncExitStack, broker: OtherBroker) -> int:
    return await stack.enter_async_context(far_end(broker_like({27: (1, 2)}, broker.answer)))


def test_each_partition_gets_its_marker_where_it_is_led() -> None:
    async def story(stack: AsyncExitStack) -> None:
        other, third = OtherBroker(), OtherBroker()
        ports = {OTHER: await serving(stack, other), THIRD: await serving(stack, third)}
        cluster = Cluster(ports, NODE_ID, OTHER, THIRD)
        stack.callback(cluster.peers.close)
        results = await settled(cluster.sending.send(pending(7, 0, 1, 2), 9))
        assert results == dict.fromkeys((0, 1, 2), ErrorCode.NONE)
        assert cluster.hosted.partition(0).log.log_end_offset == 1
        assert [other.hosted.partition(index).log.log_end_offset for index in range(3)] == [0, 1, 0]
        assert [third.hosted.partition(index).log.log_end_offset for index in range(3)] == [0, 0, 1]
        (marker,) = third.requests[0].markers
        assert (marker.producer_id, marker.producer_epoch, marker.transaction_result) == (7, 4, True)
        assert (marker.coordinator_epoch, marker.transaction_version) == (9, 2)

    run(story)


def test_what_is_all_here_is_written_at_once() -> None:
    async def story(stack: AsyncExitStack) -> None:
        cluster = Cluster({}, NODE_ID, NODE_ID)
        stack.callback(cluster.peers.close)
        assert isinstance(cluster.sending.send(pending(7, 0, 1), 9), Mapping)

    run(story)


def test_markers_of_many_transactions_share_requests() -> None:
    async def story(stack: AsyncExitStack) -> None:
        other = OtherBroker()
        cluster = Cluster({OTHER: await serving(stack, other)}, OTHER, OTHER)
        stack.callback(cluster.peers.close)
        other.gate.clear()
        count = MARKERS_PER_REQUEST_MAX + 50
        waiting = [asyncio.ensure_future(settled(cluster.sending.send(pending(n, n % 2), 9))) for n in range(count)]
        while not other.requests:  # noqa: ASYNC110
            await asyncio.sleep(0.001)
        other.gate.set()
        codes = await asyncio.gather(*waiting)
        assert codes == [{n % 2: ErrorCode.NONE} for n in range(count)]
        assert sum(len(request.markers) for request in other.requests) == count
        assert len(other.requests) <= 3
        assert not cluster.sending._tasks

    run(story)


def test_what_a_leader_refuses_and_what_nobody_leads_is_told() -> None:
    async def story(stack: AsyncExitStack) -> None:
        other = OtherBroker()
        other.hosted.end(7, committed=True, epoch=9, index=1)
        cluster = Cluster({OTHER: await serving(stack, other)}, OTHER, OTHER, -1, OTHER)
        stack.callback(cluster.peers.close)
        results = await settled(cluster.sending.send(pending(7, 0, 1, 2, 3, 8), 9))
        assert results == {
            0: ErrorCode.NONE,
            1: ErrorCode.INVALID_PRODUCER_EPOCH,
            2: ErrorCode.LEADER_NOT_AVAILABLE,
            3: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            8: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        }

    run(story)


def test_a_broker_that_is_gone_costs_only_its_own_partitions_and_leadership_is_followed() -> None:
    async def story(stack: AsyncExitStack) -> None:
        other = OtherBroker()
        cluster = Cluster({OTHER: await serving(stack, other), THIRD: free_port()}, OTHER, THIRD)
        stack.callback(cluster.peers.close)
        results = await settled(cluster.sending.send(pending(7, 0, 1), 9))
        assert results == {0: ErrorCode.NONE, 1: ErrorCode.NETWORK_EXCEPTION}
        cluster.lead(OTHER, OTHER)
        assert await settled(cluster.sending.send(pending(7, 1), 9)) == {1: ErrorCode.NONE}

    run(story)


def test_an_answer_that_leaves_something_out_is_no_success() -> None:
    async def answer(key: int, version: int, body: memoryview) -> bytes:
        return encode(WriteTxnMarkersResponse(markers=[]), version)

    async def story(stack: AsyncExitStack) -> None:
        port = await stack.enter_async_context(far_end(broker_like({27: (1, 2)}, answer)))
        cluster = Cluster({OTHER: port}, OTHER)
        stack.callback(cluster.peers.close)
        assert await settled(cluster.sending.send(pending(7, 0), 9)) == {0: ErrorCode.NETWORK_EXCEPTION}

    run(story)


def test_whoever_waits_at_a_stop_is_told() -> None:
    async def story(stack: AsyncExitStack) -> None:
        other = OtherBroker()
        other.gate.clear()
        cluster = Cluster({OTHER: await serving(stack, other)}, OTHER)
        stack.callback(cluster.peers.close)
        first = asyncio.ensure_future(settled(cluster.sending.send(pending(1, 0), 9)))
        while not other.requests:  # noqa: ASYNC110
            await asyncio.sleep(0.001)
        second = asyncio.ensure_future(settled(cluster.sending.send(pending(2, 0), 9)))
        await asyncio.sleep(0)
        await cluster.sending.close()
        assert [await first, await second] == [{0: ErrorCode.NETWORK_EXCEPTION}] * 2

    run(story)


def test_markers_of_one_request_wait_for_the_followers_together() -> None:
    async def story(stack: AsyncExitStack) -> None:
        other = OtherBroker()
        state = PartitionImage(replicas=(NODE_ID, OTHER), isr=(NODE_ID, OTHER), leader=NODE_ID, partition_epoch=1)
        other.hosted.table.host(TopicImage(TOPIC, UUID(int=100), (state,)), TopicConfig())
        cluster = Cluster({OTHER: await serving(stack, other)}, OTHER)
        stack.callback(cluster.peers.close)
        waiting = [asyncio.ensure_future(settled(cluster.sending.send(pending(n, 0), 9))) for n in range(3)]
        partition = other.hosted.partition(0)
        while partition.log.log_end_offset < 3:  # noqa: ASYNC110
            await asyncio.sleep(0.001)
        assert not any(item.done() for item in waiting)
        partition.follower_fetched(OTHER, -1, 3, 0, other.hosted.table.neighbours.now_ms())
        assert [await item for item in waiting] == [{0: ErrorCode.NONE}] * 3

    run(story)
