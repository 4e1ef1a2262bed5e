"""What a client may rely on: every request answered once, whole, and in the order in which it was asked."""

from __future__ import annotations

import asyncio
import socket
import struct
from types import SimpleNamespace
from typing import cast

import pytest
from structlog.testing import capture_logs

from ottla.api.deferred import Deferred
from ottla.model.chunks import Chunks
from ottla.model.limits import IN_FLIGHT_REQUESTS_MAX, OUTPUT_BYTES_PAUSE
from ottla.runtime.remembered_fetches import RememberedFetch
from ottla.server.dispatch import Peer
from ottla.server.frame_serving import FRAMES_PER_TURN_MAX
from ottla.server.receive import FIRST_LOOK_BYTES, LARGE_REST_BYTES, RECEIVE_TURN_BYTES
from ottla.server.share import ConnectionLimits
from tests.unit.server.conftest import Run
from tests.unit.server.loopback import Answers, Serve, echo, frame, numbered, until


def test_a_request_is_answered(run: Run, serve: Serve) -> None:
    async def main() -> None:
        async with serve(echo) as server, await server.connect() as client:
            await client.ask(b"a request")
            assert await client.answer() == b"a request"
            assert server.metrics.bytes_in == server.metrics.bytes_out == 13

    run(main)


def test_pipelined_requests_are_answered_in_order(run: Run, serve: Serve) -> None:
    async def main() -> None:
        async with serve(echo) as server, await server.connect() as client:
            count = 5 * FRAMES_PER_TURN_MAX + 7
            await client.ask(*(numbered(i) for i in range(count)))
            assert await client.answers(count) == [numbered(i) for i in range(count)]

    run(main)


def test_answers_leave_in_the_order_of_the_requests_whenever_they_are_ready(run: Run, serve: Serve) -> None:
    async def main() -> None:
        answers = Answers()
        async with serve(answers.dispatch) as server, await server.connect() as client:
            await client.ask(*(numbered(i) for i in range(5)))
            await until(lambda: len(answers.owed) == 5)
            answers.complete(3, 1, 4)
            assert server.metrics.bytes_out == 0
            answers.complete(0)
            assert await client.answers(2) == [numbered(0), numbered(1)]
            answers.complete(2)
            assert await client.answers(3) == [numbered(i) for i in (2, 3, 4)]

    run(main)


def test_an_answer_that_is_ready_waits_for_an_older_one(run: Run, serve: Serve) -> None:
    async def main() -> None:
        late = Deferred()
        first = True

        def dispatch(_: Peer, request: memoryview) -> Chunks | Deferred:
            nonlocal first
            was_first, first = first, False
            return late if was_first else [bytes(request)]

        async with serve(dispatch) as server, await server.connect() as client:
            await client.ask(numbered(0), numbered(1))
            await client.ask(numbered(2))
            await until(lambda: server.metrics.bytes_in == 36)
            assert server.metrics.bytes_out == 0
            late.complete([b"first"])
            assert await client.answers(3) == [b"first", numbered(1), numbered(2)]

    run(main)


def test_a_request_without_answer_leaves_no_gap(run: Run, serve: Serve) -> None:
    """acks=0: some requests are answered by nothing, at once or later."""

    async def main() -> None:
        silent = Deferred()

        def dispatch(_: Peer, request: memoryview) -> Chunks | Deferred | None:
            (number,) = struct.unpack_from(">4xi", request)
            return {0: None, 1: [], 2: silent}.get(number, [bytes(request)])

        async with serve(dispatch) as server, await server.connect() as client:
            await client.ask(*(numbered(i) for i in range(4)))
            await until(lambda: server.metrics.bytes_in == 48)
            silent.complete([])
            assert await client.answer() == numbered(3)
            assert server.metrics.bytes_out == 12

    run(main)


@pytest.mark.parametrize("size", [8, 300, LARGE_REST_BYTES, RECEIVE_TURN_BYTES, 3_000_000])
def test_a_request_may_come_in_any_pieces(run: Run, serve: Serve, size: int) -> None:
    async def main() -> None:
        async with serve(echo) as server, await server.connect() as client:
            data = frame(numbered(1, size)) + frame(numbered(2))
            received = 0
            for end in (1, 3, 4, 5, size // 3, size // 2, len(data)):
                await client.send(data[received:end])
                received = max(received, end)
                await until(lambda received=received: server.metrics.bytes_in == received)  # type: ignore[misc]
            assert await client.answers(2) == [numbered(1, size), numbered(2)]

    run(main)


def test_a_client_that_sends_byte_by_byte_is_served(run: Run, serve: Serve) -> None:
    async def main() -> None:
        async with serve(echo) as server, await server.connect() as client:
            for byte in frame(numbered(7, 20)):
                await client.send(bytes([byte]))
                await asyncio.sleep(0)
            assert await client.answer() == numbered(7, 20)

    run(main)


@pytest.mark.parametrize("next_size", [8, 300, FIRST_LOOK_BYTES - 4, FIRST_LOOK_BYTES, 100_000, 700_000])
def test_what_follows_a_large_request_may_be_of_any_size_and_come_in_any_pieces(
    run: Run, serve: Serve, next_size: int
) -> None:
    async def main() -> None:
        async with serve(echo) as server, await server.connect() as client:
            large = numbered(0, 700_000)
            await client.ask(large)
            assert await client.answer() == large
            data = frame(numbered(1, next_size)) + frame(numbered(2)) + frame(large)
            received, before = 0, server.metrics.bytes_in
            for end in (2, 4, 5, next_size // 2, next_size + 4, len(data)):
                await client.send(data[received:end])
                received = max(received, end)
                await until(lambda received=received: server.metrics.bytes_in == before + received)  # type: ignore[misc]
            assert await client.answers(3) == [numbered(1, next_size), numbered(2), large]

    run(main)


def test_of_a_large_request_that_follows_another_only_the_begin_is_copied(run: Run, serve: Serve) -> None:
    async def main() -> None:
        async with serve(echo) as server, await server.connect() as client:
            large = numbered(0, 700_000)
            await client.ask(large)
            assert await client.answer() == large
            idle_bytes = server.connection._share.buffers.idle_bytes()
            before = server.metrics.bytes_in
            await client.send(frame(large)[:20_000])
            await until(lambda: server.metrics.bytes_in == before + 20_000)
            assert server.connection._large is not None, "though it is short as yet"
            assert server.connection._share.buffers.idle_bytes() < idle_bytes, "and nothing was allocated for it"
            await client.send(frame(large)[20_000:])
            assert await client.answer() == large
            await client.ask(numbered(1))
            assert await client.answer() == numbered(1)
            assert server.connection._receive_bytes == RECEIVE_TURN_BYTES, "a short one ends that"
            await client.ask(numbered(2, 100_000), numbered(3, 100_000))
            await client.answers(2)
            assert server.connection._receive_bytes == RECEIVE_TURN_BYTES, "where little is copied nobody looks first"

    run(main)


def test_a_length_that_is_announced_after_a_large_request_allocates_nothing(run: Run, serve: Serve) -> None:
    async def main() -> None:
        async with serve(echo) as server, await server.connect() as client, await server.connect() as other:
            for asker in (client, other):
                await asker.ask(numbered(0, 700_000))
                await asker.answer()
            before = server.metrics.bytes_in
            for asker in (client, other):
                await asker.send(struct.pack(">i", 700_000) + b"x" * 1000)
            await until(lambda: server.metrics.bytes_in == before + 2 * 1004)
            connections = server.listener.connections
            lent = [connection._large is not None for connection in connections]
            assert sorted(lent) == [False, True], "one buffer was idle"
            assert sorted(len(connection._kept) for connection in connections) == [0, 1004]

    run(main)


def test_large_requests_can_be_written_to_in_place(run: Run, serve: Serve) -> None:
    """Produce writes offsets into the batches where they were received."""

    async def main() -> None:
        def dispatch(_: Peer, request: memoryview) -> Chunks:
            request[0:4] = b"over"
            return [bytes(request[:8])]

        async with serve(dispatch) as server, await server.connect() as client:
            for size in (8, 100_000, 1_500_000):
                await client.ask(b"x" * size)
                assert await client.answer() == b"overxxxx"

    run(main)


def test_one_busy_client_does_not_keep_others_waiting(run: Run, serve: Serve) -> None:
    async def main() -> None:
        order: list[int] = []

        def dispatch(_: Peer, request: memoryview) -> Chunks:
            order.append(struct.unpack_from(">4xi", request)[0])
            return [b""]

        async with serve(dispatch) as server, await server.connect() as busy, await server.connect() as other:
            await busy.ask(*(numbered(0) for _ in range(4000)))
            await other.ask(numbered(1))
            await other.answer()
            await until(lambda: len(order) == 4001)
            assert order.index(1) <= 2 * FRAMES_PER_TURN_MAX

    run(main)


def test_requests_that_wait_for_their_turn_are_not_mixed_up_with_other_input(run: Run, serve: Serve) -> None:
    async def main() -> None:
        async with serve(echo) as server:
            clients = [await server.connect() for _ in range(3)]
            asked = [[numbered(1000 * i + j, 50 + i) for j in range(300)] for i in range(3)]
            for client, requests in zip(clients, asked, strict=True):
                await client.ask(*requests)
            for client, requests in zip(clients, asked, strict=True):
                assert await client.answers(300) == requests
                client.close()

    run(main)


def test_a_client_that_is_owed_many_answers_is_not_read_until_it_has_half_of_them(run: Run, serve: Serve) -> None:
    async def main() -> None:
        answers = Answers()
        async with serve(answers.dispatch) as server, await server.connect() as client:
            total = 2 * IN_FLIGHT_REQUESTS_MAX
            await client.ask(*(numbered(i) for i in range(total)))
            await until(lambda: server.metrics.reads_paused == 1)
            assert len(answers.owed) == IN_FLIGHT_REQUESTS_MAX
            half = IN_FLIGHT_REQUESTS_MAX // 2
            answers.complete(*range(half - 1))
            await client.answers(half - 1)
            assert len(answers.owed) == IN_FLIGHT_REQUESTS_MAX
            answers.complete(half - 1)
            await until(lambda: len(answers.owed) == IN_FLIGHT_REQUESTS_MAX + half)
            answers.complete(*range(half, total - half))
            await until(lambda: len(answers.owed) == total)
            answers.complete(*range(total - half, total))
            assert await client.answers(total - half + 1) == [numbered(i) for i in range(half - 1, total)]

    run(main)


def test_a_client_that_does_not_take_its_answers_is_not_read(run: Run, serve: Serve) -> None:
    async def main() -> None:
        asked = 0
        big = b"z" * 100_000

        def dispatch(_: Peer, request: memoryview) -> Chunks:
            nonlocal asked
            asked += 1
            return [big]

        async with (
            serve(dispatch, send_buffer_bytes=16_384) as server,
            await server.connect(receive_buffer_bytes=16_384) as client,
        ):
            total = 500
            await client.ask(*(numbered(i) for i in range(total)))
            await until(lambda: server.metrics.reads_paused == 1)
            assert asked * len(big) <= OUTPUT_BYTES_PAUSE + 1_000_000
            for _ in range(total):
                assert await client.answer() == big

    run(main)


@pytest.mark.parametrize(
    ("data", "named"),
    [
        (b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", "HTTP"),
        (bytes.fromhex("16030100f8010000f40303"), "TLS"),
        (b"SSH-2.0-OpenSSH_9\r\n", "SSH"),
        (struct.pack(">i", -1), "-1 bytes"),
        (struct.pack(">i", 0), "0 bytes"),
        (struct.pack(">i", 7) + b"1234567", "7 bytes"),
        (struct.pack(">i", 1001) + b"x" * 50, "1001 bytes"),
        (frame(numbered(0)) + b"\xff" * 100, "-1 bytes"),
    ],
)
def test_what_is_no_request_closes_the_connection_with_one_line(
    run: Run, serve: Serve, data: bytes, named: str
) -> None:
    async def main() -> None:
        async with serve(lambda *_: None, ConnectionLimits(request_bytes_max=1000)) as server:
            with capture_logs() as lines:
                for _ in range(3):
                    async with await server.connect() as client:
                        await client.send(data)
                        assert await client.is_closed()
            assert [named in line["reason"] for line in lines] == [True]
            assert lines[0]["peer"] == "127.0.0.1"
            assert server.metrics.connections_closed_protocol == 3
            assert server.metrics.connections_open == 0

    run(main)


def test_a_length_that_is_announced_allocates_nothing(run: Run, serve: Serve) -> None:
    async def main() -> None:
        async with serve(echo) as server:
            clients = [await server.connect() for _ in range(100)]
            for client in clients:
                await client.send(struct.pack(">i", 50_000_000) + b"x" * 1000)
            await until(lambda: server.metrics.bytes_in == 100 * 1004)
            kept = [connection._kept for connection in server.listener.connections]
            assert {len(rest) for rest in kept} == {1004}
            assert all(connection._large is None for connection in server.listener.connections)
            for client in clients:
                client.close()

    run(main)


def test_a_long_request_costs_at_most_twice_what_has_arrived(run: Run, serve: Serve) -> None:
    async def main() -> None:
        async with serve(echo) as server, await server.connect() as client:
            await client.send(struct.pack(">i", 90_000_000))
            sent = 4
            for size in (30_000, 10_000, 100_000, 1_000_000):
                await client.send(b"x" * size)
                sent += size
                await until(lambda sent=sent: server.metrics.bytes_in == sent)  # type: ignore[misc]
                large = server.connection._large
                allocated = len(large._buffer) if large else len(server.connection._kept)
                assert allocated <= 2 * sent

    run(main)


def test_a_client_that_goes_takes_its_waiting_requests_along(run: Run, serve: Serve) -> None:
    async def main() -> None:
        answers = Answers()
        async with serve(answers.dispatch) as server:
            for leave in ("close", "reset"):
                client = await server.connect()
                await client.ask(numbered(0), numbered(1), numbered(2))
                await until(lambda: len(answers.owed) == 3)
                answers.complete(1)
                getattr(client, leave)()
                await until(lambda: not server.listener.connections)
                assert answers.cancelled == [0, 2]
                answers.complete(0)
                answers.owed.clear()
                answers.cancelled.clear()
            assert server.metrics.connections_open == 0

    run(main)


def test_a_client_that_goes_in_the_middle_of_a_large_request_or_answer_leaves_nothing(run: Run, serve: Serve) -> None:
    async def main() -> None:
        async with serve(lambda *_: [b"y" * 20_000_000]) as server:
            client = await server.connect()
            await client.send(struct.pack(">i", 1_000_000) + b"x" * 300_000)
            await until(lambda: server.metrics.bytes_in == 300_004)
            client.close()
            await until(lambda: not server.listener.connections)
            assert server.share.buffers.idle_bytes() >= 1 << 19
            client = await server.connect()
            await client.ask(numbered(0))
            await client.read(100_000)
            client.reset()
            await until(lambda: not server.listener.connections)

    run(main)


def test_a_failing_dispatch_closes_that_connection_alone(run: Run, serve: Serve) -> None:
    async def main() -> None:
        def dispatch(_: Peer, request: memoryview) -> Chunks:
            if bytes(request) == numbered(13):
                raise KeyError("a mistake of ours")
            return [bytes(request)]

        async with serve(dispatch) as server, await server.connect() as good, await server.connect() as bad:
            with capture_logs() as lines:
                await bad.ask(numbered(13))
                assert await bad.is_closed()
            assert [line["event"] for line in lines] == ["connection failed"]
            await good.ask(numbered(1))
            assert await good.answer() == numbered(1)

    run(main)


def test_answers_to_requests_that_came_together_leave_together(run: Run, serve: Serve) -> None:
    async def main() -> None:
        async with serve(echo) as server, await server.connect() as client:
            await client.ask(numbered(0))
            await client.answer()
            sends = 0
            connection = server.connection
            transport = connection._transport

            def counting_send(data: bytes | bytearray | memoryview, flags: int) -> int:
                nonlocal sends
                sends += 1
                return send(data, flags)

            send, transport.send = transport.send, counting_send  # type: ignore[misc]
            connection._send = counting_send
            await client.ask(*(numbered(i) for i in range(FRAMES_PER_TURN_MAX)))
            await client.answers(FRAMES_PER_TURN_MAX)
            assert sends <= 2

    run(main)


def test_a_completion_may_come_from_another_clients_request(run: Run, serve: Serve) -> None:
    """A producer's request answers a waiting consumer, whose connection may be dead already."""

    async def main() -> None:
        waiting: list[Deferred] = []

        def dispatch(_: Peer, request: memoryview) -> Chunks | Deferred:
            if bytes(request) == numbered(1):
                waiting.append(Deferred())
                return waiting[-1]
            for deferred in waiting:
                deferred.complete([b"news" * 100_000])
            return [bytes(request)]

        async with serve(dispatch) as server, await server.connect() as producer, await server.connect() as consumer:
            dead = await server.connect()
            await dead.ask(numbered(1))
            await consumer.ask(numbered(1))
            await until(lambda: len(waiting) == 2)
            dead.socket.shutdown(socket.SHUT_RD)
            dead.reset()
            await producer.ask(numbered(2))
            assert await producer.answer() == numbered(2)
            assert await consumer.answer() == b"news" * 100_000
            await until(lambda: len(server.listener.connections) == 2)

    run(main)


def test_what_a_connection_remembers_goes_with_it(run: Run, serve: Serve) -> None:
    async def main() -> None:
        closed: list[bool] = []

        def dispatch(peer: Peer, request: memoryview) -> Chunks:
            remembered = SimpleNamespace(close=lambda: closed.append(True))
            peer.remembered_fetch = cast(RememberedFetch, remembered)
            return [bytes(request)]

        async with serve(dispatch) as server:
            async with await server.connect() as client:
                await client.ask(numbered(0))
                assert await client.answer() == numbered(0)
                assert not closed
            await until(lambda: closed == [True])

    run(main)
