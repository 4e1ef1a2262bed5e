"""Produce requests that are served together on real sockets: order, corks, and connections that end meanwhile."""

from __future__ import annotations

import asyncio
import select
import struct
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from types import SimpleNamespace
from typing import cast

import pytest
from structlog.testing import capture_logs

from ottla.api import produce_turn
from ottla.api.deferred import Deferred
from ottla.api.table import APIS
from ottla.model.chunks import Chunks
from ottla.model.configs.resolve import TopicConfig
from ottla.server.answering import OLDER_ANSWERS_MIN
from ottla.server.connection import Connection
from ottla.server.dispatch import Dispatcher, Peer
from ottla.server.frame_serving import FRAMES_PER_TURN_MAX
from ottla.server.transport import Transport
from ottla.wire.headers import request_header
from ottla.wire.produce_client import encode_request, parse_response
from tests.unit.api import replica_services
from tests.unit.log.support import batch_of
from tests.unit.runtime.hosted import TOPIC, Hosted
from tests.unit.runtime.replicas import Cluster
from tests.unit.server.conftest import Run
from tests.unit.server.loopback import Answers, Client, Serve, Server, numbered, until

VERSION = 9
OTHER_KEY = 1000
"""Of requests that this test answers, when it likes."""


class Site:
    """A server with a topic, and what it was asked besides Produce."""

    def __init__(self) -> None:
        self.hosted = Hosted()
        services = replica_services.services(cast(Cluster, SimpleNamespace(replicas={1: self.hosted})))
        self.services = services
        self.services.config = self.hosted.config
        self.dispatcher = Dispatcher(APIS, services)
        self.waiting: list[Deferred] = []
        self.ends: list[int] = []
        """Where the log ended when another request was dispatched."""
        self.produced = 0
        """By the ordinary way."""

    def dispatch(self, peer: Peer, request: memoryview) -> Chunks | Deferred | None:
        (key,) = struct.unpack_from(">h", request)
        if key != OTHER_KEY:
            self.produced += 1
            return self.dispatcher.dispatch(peer, request)
        self.ends.append(self.end_offset)
        (correlation_id,) = struct.unpack_from(">i", request, 4)
        if correlation_id > 0:
            return [struct.pack(">i", correlation_id)]
        self.waiting.append(Deferred())
        return self.waiting[-1]

    @property
    def end_offset(self) -> int:
        return self.hosted.partition().log.log_end_offset


def produce(correlation_id: int, index: int = 0) -> bytes:
    body = encode_request(VERSION, [(TOPIC, [(index, bytes(batch_of()))])], acks=1, timeout_ms=1000)
    return request_header(0, VERSION, correlation_id, "shop") + body


def other(correlation_id: int) -> bytes:
    return struct.pack(">hhi", OTHER_KEY, 0, correlation_id)


def base_offset(answer: bytes) -> int:
    ((_, (row,)),) = parse_response(memoryview(answer), 5, VERSION).topics
    assert row.error_code == 0
    return row.base_offset


def correlation_ids(answers: list[bytes]) -> list[int]:
    return [int.from_bytes(answer[:4], signed=True) for answer in answers]


@asynccontextmanager
async def site_and_client(serve: Serve) -> AsyncIterator[tuple[Site, Server, Client]]:
    """A client whose Produce requests are known by now, and a log that takes them in one piece."""
    site = Site()
    async with serve(site.dispatch, services=site.services) as server, await server.connect() as client:
        for correlation_id in (1, 2, 3):
            await client.ask(produce(correlation_id))
            await client.answer()
        assert site.produced < 3
        site.produced = 0
        yield site, server, client


def is_readable(descriptor: int) -> bool:
    """By `poll`, which takes the numbers of a process with many files, too."""
    looking = select.poll()
    looking.register(descriptor, select.POLLIN)
    return bool(looking.poll(0))


async def arrived(connection: Connection) -> None:
    """Until there is something to read on a connection that the loop does not look at."""
    await until(lambda: is_readable(connection._fd))


async def two_taken(server: Server, client: Client) -> Connection:
    """The connection, with the requests 11 and 12 taken in a turn that has not ended."""
    connection = server.connection
    server.share.loop.remove_reader(connection._fd)
    await client.ask(produce(11), produce(12))
    await arrived(connection)
    connection._readable()
    assert connection.taken == 2
    return connection


def test_requests_of_one_connection_are_answered_in_their_order(run: Run, serve: Serve) -> None:
    async def main() -> None:
        async with site_and_client(serve) as (site, server, client):
            await client.ask(produce(11), produce(12), other(13), produce(14), other(15), produce(16))
            answers = await client.answers(6)
            assert correlation_ids(answers) == [11, 12, 13, 14, 15, 16]
            assert [base_offset(answers[place]) for place in (0, 1, 3, 5)] == [3, 4, 5, 6]
            assert site.ends == [5, 6]  # What came before was written when it was dispatched.
            assert site.produced == 0
            assert server.connection.taken == 0

    run(main)


def test_nothing_is_taken_while_an_older_answer_is_owed(run: Run, serve: Serve) -> None:
    async def main() -> None:
        async with site_and_client(serve) as (site, _, client):
            await client.ask(produce(11), other(-12), produce(13), produce(14))
            assert correlation_ids([await client.answer()]) == [11]
            await until(lambda: site.end_offset == 6)
            assert site.produced == 2
            site.waiting[0].complete([struct.pack(">i", -12)])
            assert correlation_ids(await client.answers(3)) == [-12, 13, 14]

    run(main)


def test_more_than_one_turn_takes_are_answered_in_order(run: Run, serve: Serve) -> None:
    async def main() -> None:
        async with site_and_client(serve) as (site, _, client):
            count = 5 * FRAMES_PER_TURN_MAX + 7
            await client.ask(*(produce(number) for number in range(count)))
            answers = await client.answers(count)
            assert correlation_ids(answers) == list(range(count))
            assert [base_offset(answer) for answer in answers] == list(range(3, 3 + count))
            assert site.produced == 0

    run(main)


def test_many_clients_at_once(run: Run, serve: Serve) -> None:
    async def main() -> None:
        async with site_and_client(serve) as (site, server, _), AsyncExitStack() as stack:
            clients = [await stack.enter_async_context(await server.connect()) for _ in range(20)]
            offsets = []
            for turn in range(5):
                for client in clients:
                    await client.ask(produce(turn))
                answers = [await client.answer() for client in clients]
                assert correlation_ids(answers) == [turn] * len(clients)
                offsets += [base_offset(answer) for answer in answers]
            assert sorted(offsets) == list(range(3, 103))
            assert site.end_offset == 103
            assert site.produced == len(clients)  # The first of each.

    run(main)


def test_a_connection_that_is_drained_gets_its_answer(run: Run, serve: Serve) -> None:
    async def main() -> None:
        async with site_and_client(serve) as (site, server, client):
            connection = await two_taken(server, client)
            connection.drain()
            assert correlation_ids(await client.answers(2)) == [11, 12]
            assert await client.is_closed()
            assert site.end_offset == 5

    run(main)


def sends_of(connection: Connection) -> list[int]:
    """How many bytes each short answer, or several of them, took with it from now on."""
    sizes: list[int] = []
    transport = connection._output._transport

    class Counting:
        def __getattr__(self, name: str) -> object:
            return getattr(transport, name)

        def send(self, data: bytes | memoryview, flags: int) -> int:
            sizes.append(len(data))
            return transport.send(data, flags)

    counting = cast(Transport, Counting())
    connection._output._transport = counting
    connection._send = counting.send
    return sizes


def test_answers_that_become_true_together_leave_together_and_in_order(run: Run, serve: Serve) -> None:
    async def main() -> None:
        answers = Answers()
        async with serve(answers.dispatch) as server, await server.connect() as client:
            await client.ask(*(numbered(number) for number in range(6)))
            await until(lambda: len(answers.owed) == 6)
            behind = [answers.owed[number].is_behind for number in range(6)]
            assert behind == [False] * OLDER_ANSWERS_MIN + [True] * (6 - OLDER_ANSWERS_MIN)
            sizes = sends_of(server.connection)
            answers.complete(1, 2)
            await asyncio.sleep(0)
            assert not sizes  # The first one is missing.
            answers.complete(0, 3)
            assert not sizes  # Others may be about to be true.
            assert await client.answers(4) == [numbered(number) for number in range(4)]
            assert sizes == [4 * (4 + 8)]
            answers.complete(4)
            assert await client.answer() == numbered(4)
            answers.complete(5)
            assert len(sizes) == 3  # The only one that is owed leaves at once.
            assert await client.answer() == numbered(5)

    run(main)


@pytest.mark.parametrize("how", ["close", "refuse", "drain"])
def test_a_connection_that_ends_before_its_answers_leave(run: Run, serve: Serve, how: str) -> None:
    async def main() -> None:
        answers = Answers()
        async with serve(answers.dispatch) as server, await server.connect() as client:
            await client.ask(*(numbered(number) for number in range(3)))
            await until(lambda: len(answers.owed) == 3)
            connection = server.connection
            answers.complete(0, 1)
            if how == "close":
                connection.close()
            elif how == "refuse":
                connection.refuse("enough")
            else:
                connection.drain()
                assert await client.answers(2) == [numbered(0), numbered(1)]
                answers.complete(2)
                assert await client.answer() == numbered(2)
            assert await client.is_closed()
            assert answers.cancelled == ([] if how == "drain" else [2])

    run(main)


@pytest.mark.parametrize("how", ["close", "refuse", "reset"])
def test_a_connection_that_ends_meanwhile_harms_nobody(run: Run, serve: Serve, how: str) -> None:
    async def main() -> None:
        async with site_and_client(serve) as (site, server, client):
            connection = await two_taken(server, client)
            if how == "close":
                connection.close()
            elif how == "refuse":
                connection.refuse("enough")
            else:
                client.reset()
            async with await server.connect() as next_client:
                for correlation_id in (1, 2):
                    await next_client.ask(produce(correlation_id))
                    answer = await next_client.answer()
                assert base_offset(answer) == site.end_offset - 1 == 6
            if how == "reset":
                connection.close()
            await until(lambda: not server.listener.connections)

    run(main)


def test_what_is_taken_and_cannot_be_written_together_is_dispatched(run: Run, serve: Serve) -> None:
    async def main() -> None:
        async with site_and_client(serve) as (site, _, client):
            site.hosted.table.set_config(TOPIC, TopicConfig(segment_bytes=400))  # Two batches, no more.
            await client.ask(*(produce(number) for number in range(5)))
            answers = await client.answers(5)
            assert correlation_ids(answers) == list(range(5))
            assert [base_offset(answer) for answer in answers] == [3, 4, 5, 6, 7]
            assert site.produced == 5

    run(main)


def test_a_failure_closes_the_connection(run: Run, serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("a bug")

    async def main() -> None:
        async with site_and_client(serve) as (_, server, client):
            monkeypatch.setattr(produce_turn.Run, "write", fail)
            with capture_logs() as logs:
                await client.ask(produce(11))
                assert await client.is_closed()
            assert [line["event"] for line in logs] == ["connection failed"]
            await until(lambda: not server.listener.connections)

    run(main)
