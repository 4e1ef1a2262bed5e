"""Peers over real sockets: answers to whom they belong, and a PeerError in time whatever the other side does."""

from __future__ import annotations

import asyncio
import contextlib
import struct
from collections.abc import Awaitable, Callable, Sequence
from uuid import UUID

import pytest

from ottla.cli.free_ports import free_port
from ottla.core.controller.image import BrokerImage, MetadataImage
from ottla.core.controller.records import BrokerEndpoint
from ottla.runtime import peers as peers_module
from ottla.runtime.network import PeerError
from ottla.runtime.peer_link import IN_FLIGHT_MAX
from ottla.runtime.peer_targets import Address
from ottla.runtime.peers import Peer, Peers
from ottla.runtime.tcp_network import TcpNetwork
from ottla.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from ottla.wire.schema import decode, encode
from tests.unit.runtime.far_ends import Behaviour, broker_like, far_end, framed, read_frame

HEARTBEAT = 12
SERVED = {HEARTBEAT: (0, 3)}


class Cluster:
    """What Peers asks: an image with brokers, and who leads the quorum."""

    def __init__(self) -> None:
        self.ports: dict[int, int] = {}
        self.epoch = 1
        self.leader: Address | None = None
        self.voters: Sequence[Address] = ()
        self.peers = Peers(
            TcpNetwork(connect_timeout_ms=2000),
            client_id="tests",
            image=self.image,
            listener_name=lambda: "INTERNAL",
            leader=lambda: self.leader,
            voters=lambda: self.voters,
        )

    def image(self) -> MetadataImage:
        return MetadataImage(brokers={broker_id: self._broker(broker_id) for broker_id in self.ports})

    def _broker(self, broker_id: int) -> BrokerImage:
        endpoints = (
            BrokerEndpoint("CLIENTS", "127.0.0.1", 1, 0),
            BrokerEndpoint("INTERNAL", "127.0.0.1", self.ports[broker_id], 0),
        )
        return BrokerImage(id=broker_id, epoch=self.epoch, incarnation_id=UUID(int=1), endpoints=endpoints)


def run(story: Callable[[Cluster], Awaitable[None]]) -> None:
    async def whole() -> None:
        cluster = Cluster()
        try:
            await asyncio.wait_for(story(cluster), 30)
        finally:
            cluster.peers.close()

    asyncio.run(whole())


def generation(number: int) -> HeartbeatRequest:
    return HeartbeatRequest(group_id="g", generation_id=number, member_id="m")


async def echo_generation(key: int, version: int, body: memoryview) -> bytes:
    """A heartbeat's generation comes back as its error code."""
    return encode(HeartbeatResponse(error_code=decode(HeartbeatRequest, body, version).generation_id), version)


async def ask(peer: Peer, number: int, timeout_ms: int = 5000) -> int:
    return (await peer.request(generation(number), HeartbeatResponse, timeout_ms=timeout_ms)).error_code


async def ask_twice(peer: Peer) -> None:
    await ask(peer, 1)
    await ask(peer, 1)


async def until(condition: Callable[[], bool]) -> None:
    """A test's own deadline bounds this."""
    while not condition():  # noqa: ASYNC110
        await asyncio.sleep(0.001)


def test_answers_reach_those_who_asked_also_when_there_are_many() -> None:
    async def story(cluster: Cluster) -> None:
        async with far_end(broker_like(SERVED, echo_generation)) as port:
            cluster.ports[2] = port
            peer = cluster.peers.to_broker(2, "coordinator")
            assert peer is cluster.peers.to_broker(2, "coordinator")
            assert peer is not cluster.peers.to_broker(2, "replica-0")
            wanted = list(range(5 * IN_FLIGHT_MAX))
            assert await asyncio.gather(*(ask(peer, number) for number in wanted)) == wanted

    run(story)


def test_the_newest_version_that_both_know_is_used() -> None:
    async def story(cluster: Cluster) -> None:
        seen: list[int] = []

        async def note(key: int, version: int, body: memoryview) -> bytes:
            seen.append(version)
            return await echo_generation(key, version, body)

        for served in ((0, 2), (0, 99)):
            async with far_end(broker_like({HEARTBEAT: served}, note)) as port:
                assert await ask(cluster.peers.to_address("127.0.0.1", port, "quorum"), 7) == 7
        assert seen == [2, HeartbeatRequest.__schema__.versions[1]]  # type: ignore[union-attr]
        unusable: list[tuple[dict[int, tuple[int, int]], str]] = [
            ({}, "does not serve"),
            ({HEARTBEAT: (90, 99)}, "versions 90 to 99"),
        ]
        for versions, words in unusable:
            async with far_end(broker_like(versions, note)) as port:
                with pytest.raises(PeerError, match=words):
                    await ask(cluster.peers.to_address("127.0.0.1", port, "quorum"), 7)

    run(story)


def test_a_raw_answer_may_be_kept() -> None:
    async def story(cluster: Cluster) -> None:
        bodies = [bytes([n]) * 300_000 for n in range(3)]
        asked: list[bytes] = []

        async def answer(key: int, version: int, body: memoryview) -> bytes:
            asked.append(bytes(body))
            return bodies[len(asked) - 1]

        async with far_end(broker_like({1: (4, 17)}, answer)) as port:
            peer = cluster.peers.to_address("127.0.0.1", port, "replica-0")
            got = [await peer.request_raw(1, 16, lambda v: b"fetch %d" % v, timeout_ms=5000) for _ in bodies]
        assert [(version, bytes(body)) for version, body in got] == [(16, body) for body in bodies]
        assert asked == [b"fetch 16"] * 3

    run(story)


def test_a_conversation_goes_on_until_an_answer_ends_it() -> None:
    async def story(cluster: Cluster) -> None:
        asked: list[bytes] = []

        async def answer(key: int, version: int, body: memoryview) -> bytes:
            asked.append(bytes(body))
            if len(asked) == 6:
                await asyncio.Event().wait()
            return b"answer %d" % len(asked)

        def reply(body: memoryview) -> bytes | None:
            number = int(bytes(body).split()[-1])
            return None if number == 3 else b"question %d" % (number + 1)

        async with far_end(broker_like({1: (4, 17)}, answer)) as port:
            peer = cluster.peers.to_address("127.0.0.1", port, "replica-0")
            _, last = await peer.request_raw(1, 16, lambda v: b"question 1", timeout_ms=5000, reply=reply)
            assert (bytes(last), asked) == (b"answer 3", [b"question 1", b"question 2", b"question 3"])
            # Each question has its own time, and what is not answered in it ends the connection.
            with pytest.raises(PeerError, match="no answer within 100 ms"):
                await peer.request_raw(1, 16, lambda v: b"again", timeout_ms=100, reply=reply)
            assert asked[3:] == [b"again", b"question 5", b"question 6"]
            assert peer._link is not None
            assert peer._link.failure is not None

    run(story)


def test_a_refusal_says_so_and_the_next_request_connects_again() -> None:
    async def story(cluster: Cluster) -> None:
        port = free_port()
        cluster.ports[2] = port
        peer = cluster.peers.to_broker(2, "coordinator")
        for _ in range(2):
            with pytest.raises(PeerError) as caught:
                await ask(peer, 1)
            assert caught.value.refused
        async with far_end(broker_like(SERVED, echo_generation), port):
            assert await ask(peer, 5) == 5
        with pytest.raises(PeerError):
            await ask_twice(peer)  # The first may find the old connection broken, the second finds nobody.

    run(story)


def test_a_broker_that_moves_is_found_at_its_new_address() -> None:
    async def story(cluster: Cluster) -> None:
        async def hundred(key: int, version: int, body: memoryview) -> bytes:
            return encode(HeartbeatResponse(error_code=100), version)

        async with (
            far_end(broker_like(SERVED, echo_generation)) as first,
            far_end(broker_like(SERVED, hundred)) as second,
        ):
            peer = cluster.peers.to_broker(2, "coordinator")
            with pytest.raises(PeerError, match="not registered"):
                await ask(peer, 1)
            cluster.ports[2] = first
            assert await ask(peer, 1) == 1
            cluster.ports[2] = second
            assert await ask(peer, 1) == 100
            del cluster.ports[2]
            with pytest.raises(PeerError, match="not registered"):
                await ask(peer, 1)

    run(story)


def test_nobody_waits_for_a_broker_that_was_started_anew() -> None:
    """Its host went down without a word: the old connection stands, and nothing ever comes over it."""

    async def story(cluster: Cluster) -> None:
        asked: list[int] = []

        async def silent_at_first(key: int, version: int, body: memoryview) -> bytes:
            asked.append(cluster.epoch)
            if cluster.epoch == 1:
                await asyncio.Event().wait()
            return await echo_generation(key, version, body)

        async with far_end(broker_like(SERVED, silent_at_first)) as cluster.ports[2]:
            peer = cluster.peers.to_broker(2, "replica-0")
            waiting = asyncio.ensure_future(ask(peer, 1, timeout_ms=60_000))
            await until(lambda: bool(asked))
            cluster.peers.brokers_changed(cluster.image())
            await asyncio.sleep(0)
            assert not waiting.done()
            cluster.epoch = 2
            cluster.peers.brokers_changed(cluster.image())
            with pytest.raises(PeerError, match="started anew"):
                await waiting
            assert await ask(peer, 7) == 7

    run(story)


def test_a_reply_that_falls_over_ends_the_conversation() -> None:
    async def story(cluster: Cluster) -> None:
        async def answer(key: int, version: int, body: memoryview) -> bytes:
            return b"answer"

        def reply(body: memoryview) -> bytes | None:
            raise RuntimeError("not foreseen")

        async with far_end(broker_like({1: (4, 17)}, answer)) as port:
            peer = cluster.peers.to_address("127.0.0.1", port, "replica-0")
            with pytest.raises(PeerError, match="not foreseen"):
                await peer.request_raw(1, 16, lambda v: b"question", timeout_ms=60_000, reply=reply)

    run(story)


def test_the_controller_is_the_leader_or_else_each_voter_in_turn() -> None:
    async def story(cluster: Cluster) -> None:
        def saying(code: int) -> Behaviour:
            async def answer(key: int, version: int, body: memoryview) -> bytes:
                return encode(HeartbeatResponse(error_code=code), version)

            return broker_like(SERVED, answer)

        peer = cluster.peers.to_controller("controller")
        with pytest.raises(PeerError, match="no controller is known"):
            await ask(peer, 0)
        async with far_end(saying(1)) as one, far_end(saying(2)) as two:
            cluster.voters = [("127.0.0.1", one), ("127.0.0.1", free_port()), ("127.0.0.1", two)]
            assert await ask(peer, 0) == 1
            assert await ask(peer, 0) == 1
            peer.reset("it is not the controller")
            with pytest.raises(PeerError):
                await ask(peer, 0)
            assert await ask(peer, 0) == 2
            cluster.leader = ("127.0.0.1", one)
            assert await ask(peer, 0) == 1

    run(story)


async def half_open(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await asyncio.Event().wait()


def test_a_peer_that_never_answers_costs_the_time_that_was_given() -> None:
    async def story(cluster: Cluster) -> None:
        async with far_end(half_open) as port:
            peer = cluster.peers.to_address("127.0.0.1", port, "quorum")
            with pytest.raises(PeerError, match="no answer within 50 ms") as caught:
                await ask(peer, 1, timeout_ms=50)
            assert not caught.value.refused

    run(story)


def test_a_negotiation_that_hangs_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peers_module, "NEGOTIATION_TIMEOUT_MS", 50)

    async def story(cluster: Cluster) -> None:
        async with far_end(half_open) as port:
            with pytest.raises(PeerError, match="no answer within 50 ms"):
                await ask(cluster.peers.to_address("127.0.0.1", port, "quorum"), 1)

    run(story)


def test_a_slow_answer_ends_its_connection_and_those_behind_it() -> None:
    async def story(cluster: Cluster) -> None:
        connections: list[asyncio.Event] = []

        async def sleepy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            released = asyncio.Event()
            connections.append(released)

            async def answer(key: int, version: int, body: memoryview) -> bytes:
                await released.wait()
                return await echo_generation(key, version, body)

            await broker_like(SERVED, answer)(reader, writer)

        async with far_end(sleepy) as port:
            peer = cluster.peers.to_address("127.0.0.1", port, "controller")
            behind = asyncio.ensure_future(asyncio.wait_for(_after(peer), 10))
            with pytest.raises(PeerError, match="no answer within 100 ms"):
                await ask(peer, 1, timeout_ms=100)
            with pytest.raises(PeerError, match="no answer within 100 ms"):
                await behind
            later = asyncio.ensure_future(ask(peer, 3))
            await until(lambda: len(connections) == 2)
            connections[1].set()
            assert await later == 3

    async def _after(peer: Peer) -> int:
        await asyncio.sleep(0)
        return await ask(peer, 2, timeout_ms=60_000)

    run(story)


def test_who_gives_up_waiting_leaves_the_connection_whole() -> None:
    async def story(cluster: Cluster) -> None:
        gate = asyncio.Event()

        async def answer(key: int, version: int, body: memoryview) -> bytes:
            await gate.wait()
            return await echo_generation(key, version, body)

        async with far_end(broker_like(SERVED, answer)) as port:
            peer = cluster.peers.to_address("127.0.0.1", port, "controller")
            given_up = asyncio.ensure_future(ask(peer, 1))
            patient = asyncio.ensure_future(ask(peer, 2))
            await until(lambda: peer._link is not None and len(peer._link._owed) == 2)
            given_up.cancel()
            await asyncio.gather(given_up, return_exceptions=True)
            gate.set()
            assert await patient == 2

    run(story)


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (framed(struct.pack(">i", 77) + b"\0" * 40), "answered request 77 where 1 was next"),
        (framed(b"\0\0"), "could not be read"),
        (framed(struct.pack(">i", 1) + b"\xff" * 9), "could not be read"),
        (framed(struct.pack(">i", 1) + b"\0" * 7) * 2, None),
        (struct.pack(">i", 1 << 30), "bytes was announced"),
        (b"", "closed by the other side"),
    ],
)
def test_garbage_is_an_error_and_not_an_answer(answer: bytes, reason: str | None) -> None:
    async def misbehave(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        negotiated = asyncio.StreamReader()
        negotiated.feed_data(framed(await read_frame(reader)))
        negotiated.feed_eof()
        with contextlib.suppress(asyncio.IncompleteReadError):
            await broker_like({HEARTBEAT: (1, 1)}, echo_generation)(negotiated, writer)
        await read_frame(reader)
        writer.write(answer)
        await writer.drain()
        writer.write_eof()
        await reader.read()

    async def story(cluster: Cluster) -> None:
        async with far_end(misbehave) as port:
            peer = cluster.peers.to_address("127.0.0.1", port, "quorum")
            if reason is None:  # One answer too many comes after a good one: the connection is not used again.
                with pytest.raises(PeerError):
                    await ask_twice(peer)
                return
            with pytest.raises(PeerError, match=reason):
                await ask(peer, 1)

    run(story)


def test_a_peer_that_is_closed_wakes_who_waits_and_takes_nothing_more() -> None:
    async def story(cluster: Cluster) -> None:
        async with far_end(half_open) as port:
            connecting = cluster.peers.to_address("127.0.0.1", port, "quorum")
            waiting = asyncio.ensure_future(ask(connecting, 1))
            await asyncio.sleep(0.05)
            cluster.peers.close()
            with pytest.raises(PeerError, match="closed"):
                await waiting
            with pytest.raises(PeerError, match="closed"):
                await ask(connecting, 1)
            with pytest.raises(PeerError, match="closed"):
                await ask(cluster.peers.to_address("127.0.0.1", port, "other"), 1)

    run(story)
