"""Streams over real sockets: whole frames in order, and an end that is told once, whatever the other side does."""

from __future__ import annotations

import asyncio
import random
import socket
import struct

import pytest

from ottla.cli.free_ports import free_port
from ottla.runtime import tcp_network
from ottla.runtime.network import PeerError
from ottla.runtime.tcp_network import TcpNetwork
from tests.unit.runtime.far_ends import Listening, far_end, framed, read_frame


async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while True:
        writer.write(framed(await read_frame(reader)))


def test_frames_of_every_size_come_back_whole_and_in_order() -> None:
    async def story() -> None:
        sizes = [0, 1, 100, 32_764, 32_768, 70_000, 524_284, 524_288, 600_000, 3_000_000, 5, 9_000_000, 0, 1]
        sent = [random.Random(size).randbytes(size) for size in sizes]
        async with far_end(echo) as port:
            handler = Listening()
            stream = await TcpNetwork().connect("127.0.0.1", port, handler)
            for frame in sent:
                stream.send(frame)
            assert await handler.until(len(sent)) == sent
            stream.send(bytearray(b"once more"))
            assert (await handler.until(len(sent) + 1))[-1] == b"once more"
            stream.close()

    asyncio.run(story())


def test_frames_that_come_byte_by_byte_are_whole() -> None:
    async def drip(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for byte in framed(b"abc") + framed(b"") + framed(b"defgh"):
            writer.write(bytes([byte]))
            await writer.drain()
            await asyncio.sleep(0)
        await reader.read()

    async def story() -> None:
        async with far_end(drip) as port:
            handler = Listening()
            stream = await TcpNetwork().connect("127.0.0.1", port, handler)
            assert await handler.until(3) == [b"abc", b"", b"defgh"]
            stream.close()

    asyncio.run(story())


def test_a_port_where_nobody_listens_refuses() -> None:
    async def story() -> None:
        port = free_port()
        for host in ("127.0.0.1", "localhost"):
            with pytest.raises(PeerError, match="nothing listens there") as caught:
                await TcpNetwork().connect(host, port, Listening())
            assert caught.value.refused

    asyncio.run(story())


def test_a_socket_that_meets_itself_is_a_refusal() -> None:
    async def story() -> None:
        port = free_port()
        real_socket = socket.socket

        def bound_to_the_port(family: int, kind: int) -> socket.socket:
            made = real_socket(family, kind)
            made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            made.bind(("127.0.0.1", port))
            return made

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("ottla.runtime.tcp_network.socket.socket", bound_to_the_port)
            with pytest.raises(PeerError) as caught:
                await tcp_network.TcpNetwork().connect("127.0.0.1", port, Listening())
        assert caught.value.refused

    asyncio.run(story())


def test_who_does_not_answer_a_connection_is_not_refusing() -> None:
    async def story() -> None:
        with socket.socket() as full:
            full.bind(("127.0.0.1", 0))
            full.listen(0)
            port = full.getsockname()[1]
            network, open_streams = TcpNetwork(connect_timeout_ms=200), []

            async def connect_too_often() -> None:
                for _ in range(50):  # The queue of a listener that never accepts fills up.
                    open_streams.append(await network.connect("127.0.0.1", port, Listening()))

            with pytest.raises(PeerError, match="no answer within 200 ms") as caught:
                await connect_too_often()
            assert not caught.value.refused
            for stream in open_streams:
                stream.close()

    asyncio.run(story())


def test_an_address_that_nothing_answers_does_not_keep_the_next_one_of_the_host_from_being_tried(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As with a host that has an IPv6 address where the network has no way for it."""
    connect = tcp_network._connect
    tried: list[tuple[str, int]] = []

    async def with_a_hole(family: int, address: tuple[str, int]) -> socket.socket:
        tried.append(address)
        if len(tried) == 1:
            await asyncio.get_running_loop().create_future()
        return await connect(family, address)

    async def two_addresses(_host: str, port: int) -> list[tuple[int, tuple[str, int]]]:
        return [(socket.AF_INET, ("127.0.0.2", port)), (socket.AF_INET, ("127.0.0.1", port))]

    monkeypatch.setattr(tcp_network, "_connect", with_a_hole)
    monkeypatch.setattr(tcp_network, "_addresses", two_addresses)

    async def story() -> None:
        async with far_end(echo) as port:
            stream = await TcpNetwork(connect_timeout_ms=2000).connect("two-addresses", port, Listening())
            assert tried == [("127.0.0.2", port), ("127.0.0.1", port)]
            stream.close()

    asyncio.run(story())


def test_a_name_that_nobody_knows() -> None:
    async def story() -> None:
        with pytest.raises(PeerError, match="not known here") as caught:
            await TcpNetwork().connect("no-such-host.invalid", 9, Listening())
        assert not caught.value.refused

    asyncio.run(story())


@pytest.mark.parametrize(
    ("sent", "reason"),
    [
        (struct.pack(">i", -1), "a frame of -1 bytes was announced"),
        (struct.pack(">i", 1 << 30), "a frame of 1073741824 bytes was announced"),
        (b"HTTP/1.1 400 Bad Request\r\n", "bytes was announced"),
        (struct.pack(">i", 10) + b"half", "closed by the other side"),
        (struct.pack(">i", 1_000_000) + b"x" * 400_000, "closed by the other side"),
        (b"", "closed by the other side"),
    ],
)
def test_what_is_no_frame_ends_the_stream(sent: bytes, reason: str) -> None:
    async def misbehave(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(framed(b"good") + sent)
        await writer.drain()
        writer.write_eof()
        await reader.read()

    async def story() -> None:
        async with far_end(misbehave) as port:
            handler = Listening()
            stream = await TcpNetwork().connect("127.0.0.1", port, handler)
            error = await asyncio.wait_for(handler.closed, 10)
            assert reason in str(error)
            assert not error.refused
            assert handler.frames == [b"good"]
            stream.send(b"into the void")
            stream.close()

    asyncio.run(story())


def test_an_announced_size_allocates_nothing() -> None:
    async def announce(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(struct.pack(">i", 100 << 20) + b"x" * 40_000)
        await reader.read()

    async def story() -> None:
        async with far_end(announce) as port:
            stream = await TcpNetwork().connect("127.0.0.1", port, Listening())
            while not stream._large_wanted:  # noqa: ASYNC110
                await asyncio.sleep(0.001)
            assert stream._large is not None
            assert len(stream._large) < 200_000
            stream.close()

    asyncio.run(story())


def test_a_reset_is_told_and_a_close_of_ones_own_is_not() -> None:
    async def reset(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readexactly(1)
        connected = writer.get_extra_info("socket")
        connected.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        writer.transport.abort()

    async def story() -> None:
        async with far_end(reset) as port:
            handler = Listening()
            stream = await TcpNetwork().connect("127.0.0.1", port, handler)
            stream.send(b"?")
            assert "connection was" in str(await asyncio.wait_for(handler.closed, 10))
        async with far_end(echo) as port:
            handler = Listening()
            stream = await TcpNetwork().connect("127.0.0.1", port, handler)
            stream._fail("found broken, but its owner is faster")
            stream.close()
            stream.close()
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            assert not handler.closed.done()

    asyncio.run(story())


def test_a_peer_that_does_not_read_is_given_up_at_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tcp_network, "UNSENT_BYTES_MAX", 1 << 20)

    async def sit(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.transport.pause_reading()  # type: ignore[attr-defined]
        await asyncio.Event().wait()

    async def story() -> None:
        async with far_end(sit) as port:
            handler = Listening()
            stream = await TcpNetwork().connect("127.0.0.1", port, handler)
            for _ in range(200):
                stream.send(bytes(100_000))
            assert "wait for it to read" in str(await asyncio.wait_for(handler.closed, 10))

    asyncio.run(story())


def test_a_handler_that_fails_ends_its_stream_only() -> None:
    class Failing(Listening):
        def frame_received(self, frame: memoryview) -> None:
            raise ValueError("cannot take it")

    async def story() -> None:
        async with far_end(echo) as port:
            network, failing, well = TcpNetwork(), Failing(), Listening()
            bad = await network.connect("127.0.0.1", port, failing)
            good = await network.connect("127.0.0.1", port, well)
            bad.send(b"x")
            assert "cannot take it" in str(await asyncio.wait_for(failing.closed, 10))
            good.send(b"y")
            assert await well.until(1) == [b"y"]
            good.close()

    asyncio.run(story())
