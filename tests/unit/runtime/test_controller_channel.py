"""A command finds the active controller, wherever it is by then, or its caller hears why not."""

from __future__ import annotations

import asyncio
import random
import struct
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from ottla.cli.free_ports import free_port
from ottla.core.controller.commands import AllocateProducerIds, Command, ProducerIdBlock
from ottla.core.controller.image import MetadataImage
from ottla.model.configs.resolve import BrokerConfig
from ottla.model.errors import ApiError, ErrorCode
from ottla.runtime import controller_channel
from ottla.runtime.controller_channel import ControllerChannel, encode_host, encode_principal
from ottla.runtime.network import PeerError
from ottla.runtime.peer_targets import Address
from ottla.runtime.peers import Peers
from ottla.runtime.tcp_network import TcpNetwork
from ottla.wire.messages.allocate_producer_ids import AllocateProducerIdsResponse
from ottla.wire.messages.envelope import EnvelopeRequest, EnvelopeResponse
from ottla.wire.schema import decode, encode
from tests.unit.runtime.far_ends import Behaviour, broker_like, far_end

COMMAND = AllocateProducerIds(1, 5)
VERSIONS = {58: (0, 0), 67: (0, 0)}


class Node:
    """This node: it may be the controller, and may know who is."""

    node_id = 1

    def __init__(self) -> None:
        self.is_active = False
        self.leader_id = -1
        self.leader: Address | None = None
        self.voters: list[Address] = []
        self.local: list[Command[Any]] = []
        self.local_error: ApiError | None = None
        self._listeners: list[Callable[[], None]] = []
        self.peers = Peers(
            TcpNetwork(),
            client_id="node-1",
            image=MetadataImage,
            listener_name=lambda: "PLAINTEXT",
            leader=self.address_of_leader,
            voters=lambda: self.voters,
        )
        config = BrokerConfig.from_properties({"controller.socket.timeout.ms": "2000"})
        self.channel = ControllerChannel(self, self, self.peers, random.Random(1), lambda: config)

    def address_of_leader(self) -> Address | None:
        return self.leader

    def subscribe_leadership(self, listener: Callable[[], None]) -> None:
        self._listeners.append(listener)

    def elect(self, leader_id: int, leader: Address | None) -> None:
        self.leader_id, self.leader = leader_id, leader
        for listener in self._listeners:
            listener()

    async def submit(self, command: Command[Any]) -> Any:
        self.local.append(command)
        if self.local_error is not None:
            self.is_active = False
            raise self.local_error
        return ProducerIdBlock(1000, 10)


def run(story: Callable[[Node], Awaitable[None]]) -> None:
    async def whole() -> None:
        node = Node()
        try:
            await asyncio.wait_for(story(node), 30)
        finally:
            node.peers.close()

    asyncio.run(whole())


def controller(first: int, error: ErrorCode = ErrorCode.NONE) -> Behaviour:
    async def answer(key: int, version: int, body: memoryview) -> bytes:
        if key == 67:
            return encode(
                AllocateProducerIdsResponse(error_code=error, producer_id_start=first, producer_id_len=10), version
            )
        envelope = decode(EnvelopeRequest, body, version)
        assert envelope.request_principal == encode_principal("User:ann")
        assert envelope.client_host_address == bytes([192, 0, 2, 1])
        data = None if error else b"%d:" % first + envelope.request_data
        return encode(EnvelopeResponse(response_data=data, error_code=error), version)

    return broker_like(VERSIONS, answer)


async def frozen(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await asyncio.Event().wait()


def test_a_controller_in_this_process_is_asked_directly() -> None:
    async def story(node: Node) -> None:
        node.is_active = True
        assert await node.channel.submit(COMMAND) == (1000, 10)
        assert node.local == [COMMAND]
        assert await node.channel.forward(b"request", principal="User:ann", host="192.0.2.1") is None

    run(story)


def test_the_leader_elsewhere_is_asked() -> None:
    async def story(node: Node) -> None:
        async with far_end(controller(7)) as port:
            node.elect(2, ("127.0.0.1", port))
            assert await node.channel.submit(COMMAND) == (7, 10)
            assert await node.channel.forward(b"request", principal="User:ann", host="192.0.2.1") == b"7:request"
        assert not node.local

    run(story)


def test_voters_are_asked_in_turn_while_nobody_is_known_to_lead() -> None:
    async def story(node: Node) -> None:
        async with (
            far_end(controller(1, ErrorCode.NOT_CONTROLLER)) as follower,
            far_end(controller(7)) as leader,
        ):
            node.voters = [("127.0.0.1", port) for port in (follower, free_port(), leader)]
            assert await node.channel.submit(COMMAND) == (7, 10)
            assert await node.channel.forward(b"request", principal="User:ann", host="192.0.2.1") == b"7:request"

    run(story)


def test_a_refusal_is_final() -> None:
    async def story(node: Node) -> None:
        async with far_end(controller(1, ErrorCode.STALE_BROKER_EPOCH)) as port:
            node.elect(2, ("127.0.0.1", port))
            with pytest.raises(ApiError, match="STALE_BROKER_EPOCH") as caught:
                await node.channel.submit(COMMAND)
            assert caught.value.code is ErrorCode.STALE_BROKER_EPOCH

    run(story)


def test_an_error_code_of_a_newer_node_is_an_error_too() -> None:
    async def answer(key: int, version: int, body: memoryview) -> bytes:
        return struct.pack(">ihqib", 0, 9999, 0, 0, 0)

    async def story(node: Node) -> None:
        async with far_end(broker_like(VERSIONS, answer)) as port:
            node.elect(2, ("127.0.0.1", port))
            with pytest.raises(ApiError, match="9999") as caught:
                await node.channel.submit(COMMAND)
            assert caught.value.code is ErrorCode.UNKNOWN_SERVER_ERROR

    run(story)


def test_who_waits_for_a_frozen_controller_is_served_by_its_successor() -> None:
    async def story(node: Node) -> None:
        async with far_end(frozen) as old, far_end(controller(7)) as new:
            node.elect(2, ("127.0.0.1", old))
            command = asyncio.ensure_future(node.channel.submit(COMMAND))
            request = asyncio.ensure_future(node.channel.forward(b"request", principal="User:ann", host="192.0.2.1"))
            await asyncio.sleep(0.02)
            node.elect(-1, None)
            node.elect(3, ("127.0.0.1", new))
            assert await command == (7, 10)
            assert await request == b"7:request"

    run(story)


def test_a_node_that_becomes_the_controller_meanwhile_serves_itself() -> None:
    async def story(node: Node) -> None:
        node.elect(1, ("127.0.0.1", free_port()))
        command = asyncio.ensure_future(node.channel.submit(COMMAND))
        request = asyncio.ensure_future(node.channel.forward(b"request", principal="User:ann", host="192.0.2.1"))
        await asyncio.sleep(0.02)
        assert not command.done()
        node.is_active = True
        node.elect(1, node.leader)
        assert await command == (1000, 10)
        assert await request is None

    run(story)


def test_a_controller_that_loses_its_office_leaves_the_command_to_the_next() -> None:
    async def story(node: Node) -> None:
        async with far_end(controller(7)) as port:
            node.is_active = True
            node.local_error = ApiError(ErrorCode.NOT_CONTROLLER, "lost")
            node.elect(2, ("127.0.0.1", port))
            assert await node.channel.submit(COMMAND) == (7, 10)
            assert len(node.local) == 1

    run(story)


def test_without_a_controller_the_time_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(controller_channel, "FORWARD_MS_MAX", 100)

    async def story(node: Node) -> None:
        with pytest.raises(PeerError, match="no controller is known"):
            await node.channel.submit(COMMAND, timeout_ms=100)
        node.voters = [("127.0.0.1", free_port())]
        with pytest.raises(PeerError, match="nothing listens there"):
            await node.channel.submit(COMMAND, timeout_ms=100)
        with pytest.raises(ApiError, match="nothing listens there") as caught:
            await node.channel.forward(b"request", principal="User:ann", host="192.0.2.1")
        assert caught.value.code is ErrorCode.NOT_CONTROLLER
        async with far_end(controller(1, ErrorCode.NOT_CONTROLLER)) as port:
            node.elect(2, ("127.0.0.1", port))
            with pytest.raises(ApiError) as caught:
                await node.channel.submit(COMMAND, timeout_ms=100)
            assert caught.value.code is ErrorCode.NOT_CONTROLLER

    run(story)


def test_addresses_in_envelopes() -> None:
    assert encode_host("10.0.0.1") == bytes([10, 0, 0, 1])
    assert encode_host("::1") == bytes(15) + b"\1"
    assert encode_host("fe80::1%eth0")[:2] == b"\xfe\x80"
    assert encode_host("somewhere") == bytes(4)
