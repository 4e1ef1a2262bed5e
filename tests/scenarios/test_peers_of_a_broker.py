"""A broker as its peers meet it: what nodes ask of each other, over real sockets, answered by a real broker."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, cast
from uuid import UUID

import pytest

from ottla.broker import Broker
from ottla.core.controller.commands import AllocateProducerIds, Command, CreateTopics, NewTopic
from ottla.core.controller.image import BrokerImage, MetadataImage, PartitionImage, TopicImage
from ottla.core.controller.records import BrokerEndpoint
from ottla.core.transactions.commands import PendingMarkers
from ottla.model.configs.resolve import BrokerConfig
from ottla.model.errors import ApiError, ErrorCode
from ottla.model.ids import TRANSACTION_STATE_TOPIC, TopicPartition
from ottla.runtime.controller_channel import ControllerChannel
from ottla.runtime.marker_sending import MarkerSending
from ottla.runtime.marker_writing import MarkerWriter
from ottla.runtime.network import PeerError
from ottla.runtime.peers import Peers
from ottla.runtime.remote_transactions import RemoteTransactions
from ottla.runtime.tcp_network import TcpNetwork
from ottla.wire.headers import encode_request, parse_response_header
from ottla.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from ottla.wire.messages.envelope import EnvelopeRequest
from ottla.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from ottla.wire.schema import decode

BROKER_ID, OWN_ID = 1, 9


class Neighbour:
    """A node that is no controller, next to a broker that is."""

    node_id = OWN_ID
    leader_id = BROKER_ID
    is_active = False

    def __init__(self, port: int) -> None:
        self.port = port
        endpoint = BrokerEndpoint("PLAINTEXT", "127.0.0.1", port, 0)
        broker = BrokerImage(id=BROKER_ID, epoch=1, incarnation_id=UUID(int=1), endpoints=(endpoint,))
        led = PartitionImage(replicas=(BROKER_ID,), isr=(BROKER_ID,), leader=BROKER_ID)
        names = ("data", TRANSACTION_STATE_TOPIC)
        self.image = MetadataImage(
            brokers={BROKER_ID: broker}, topics={name: TopicImage(name, UUID(int=2), (led,)) for name in names}
        )
        self.peers = Peers(
            TcpNetwork(),
            client_id=f"node-{OWN_ID}",
            image=lambda: self.image,
            listener_name=lambda: "PLAINTEXT",
            leader=self.address_of_leader,
            voters=lambda: (),
        )
        config = BrokerConfig.from_properties({"controller.socket.timeout.ms": "300"})
        self.channel = ControllerChannel(self, self, self.peers, random.Random(1), lambda: config)

    def address_of_leader(self) -> tuple[str, int]:
        return "127.0.0.1", self.port

    def subscribe_leadership(self, listener: Callable[[], None]) -> None:
        pass

    async def submit(self, command: Command[Any]) -> Any:
        raise AssertionError("it is not the controller")


def run(path: Path, story: Callable[[Broker, Neighbour], Awaitable[None]]) -> None:
    async def whole() -> None:
        broker = Broker.from_properties({"transaction.state.log.num.partitions": "1"}, data=str(path), port=0)
        await broker.start()
        neighbour = Neighbour(int(broker.bootstrap_servers.rpartition(":")[2]))
        try:
            async with asyncio.timeout(30):
                await story(broker, neighbour)
        finally:
            neighbour.peers.close()
            await broker.stop()

    asyncio.run(whole())


def create_request(name: str) -> bytes:
    topic = CreatableTopic(name=name, num_partitions=1, replication_factor=1)
    return encode_request(CreateTopicsRequest(topics=[topic]), 7, 4711, "a client")


async def forward(neighbour: Neighbour, frame: bytes) -> bytes:
    answer = await neighbour.channel.forward(frame, principal="User:ann", host="192.0.2.1")
    assert answer is not None
    return answer


def test_a_client_of_a_node_that_is_no_controller_creates_a_topic(tmp_path: Path) -> None:
    async def story(_broker: Broker, neighbour: Neighbour) -> None:
        for expected in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
            frame = await forward(neighbour, create_request("data"))
            correlation_id, position = parse_response_header(19, 7, frame)
            assert correlation_id == 4711
            (created,) = decode(CreateTopicsResponse, frame, 7, position).topics
            assert (created.name, created.error_code) == ("data", expected)

    run(tmp_path, story)


def test_an_envelope_in_an_envelope_is_refused(tmp_path: Path) -> None:
    async def story(_broker: Broker, neighbour: Neighbour) -> None:
        inner = EnvelopeRequest(request_data=create_request("x"), request_principal=None, client_host_address=bytes(4))
        with pytest.raises(ApiError) as refused:
            await forward(neighbour, encode_request(inner, 0, 1, None))
        assert refused.value.code is ErrorCode.INVALID_REQUEST

    run(tmp_path, story)


def test_commands_of_brokers_are_answered(tmp_path: Path) -> None:
    async def story(_broker: Broker, neighbour: Neighbour) -> None:
        (created,) = await neighbour.channel.submit(CreateTopics([NewTopic("t", 2, 1)]))
        assert (created.outcome.code, created.num_partitions) == (ErrorCode.NONE, 2)
        with pytest.raises(ApiError) as refused:
            await neighbour.channel.submit(AllocateProducerIds(OWN_ID, 1))
        assert refused.value.code in (ErrorCode.BROKER_ID_NOT_REGISTERED, ErrorCode.STALE_BROKER_EPOCH)

    run(tmp_path, story)


def test_transactions_between_brokers(tmp_path: Path) -> None:
    async def story(_broker: Broker, neighbour: Neighbour) -> None:
        data = TopicPartition("data", 0)
        await neighbour.channel.submit(CreateTopics([NewTopic("data", 1, 1)]))
        remote = RemoteTransactions(neighbour.peers, lambda: neighbour.image, node_id=OWN_ID)
        producer_id = await initialized(neighbour)

        async def verify(*, add: bool) -> ErrorCode:
            asked = remote.verify(0, "tx", producer_id, 0, [data], add=add)
            assert asked is not None
            return (await asked)[data]

        assert await verify(add=False) is ErrorCode.TRANSACTION_ABORTABLE
        assert await verify(add=True) is ErrorCode.NONE
        assert await verify(add=False) is ErrorCode.NONE
        sending = MarkerSending(cast(MarkerWriter, None), neighbour.peers, lambda: neighbour.image, node_id=OWN_ID)
        markers = PendingMarkers("tx", producer_id, 1, True, (data,), 2, 0)
        sent = sending.send(markers, 0)
        assert isinstance(sent, Awaitable)
        assert await sent == {data: ErrorCode.NONE}

    run(tmp_path, story)


def test_a_broker_that_stops_is_an_error_in_time(tmp_path: Path) -> None:
    async def whole() -> None:
        broker = Broker.from_properties({}, data=str(tmp_path), port=0)
        await broker.start()
        neighbour = Neighbour(int(broker.bootstrap_servers.rpartition(":")[2]))
        await neighbour.channel.submit(CreateTopics([NewTopic("t", 1, 1)]))
        await broker.stop()
        with pytest.raises(PeerError):
            await neighbour.channel.submit(CreateTopics([NewTopic("u", 1, 1)]))
        with pytest.raises(ApiError) as refused:
            await forward(neighbour, create_request("u"))
        assert refused.value.code is ErrorCode.NOT_CONTROLLER
        neighbour.peers.close()

    asyncio.run(whole())


async def initialized(neighbour: Neighbour) -> int:
    """The producer id of a new transactional id; its coordinator's topic is made on the way."""
    await neighbour.channel.submit(
        CreateTopics([NewTopic(TRANSACTION_STATE_TOPIC, 1, 1, (), [("cleanup.policy", "compact")])])
    )
    request = InitProducerIdRequest(
        transactional_id="tx", transaction_timeout_ms=60_000, producer_id=-1, producer_epoch=-1
    )
    peer = neighbour.peers.to_broker(BROKER_ID, "coordinator")
    answer = await peer.request(request, InitProducerIdResponse, timeout_ms=5000)
    assert answer.error_code == 0
    return answer.producer_id
