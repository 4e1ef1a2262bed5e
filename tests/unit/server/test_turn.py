"""Short answers of a turn that brings many leave together when it ends, each connection's in their order."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AsyncExitStack
from typing import cast

import pytest

from ottla.api.deferred import Deferred
from ottla.api.produce_turn import ProduceTurn
from ottla.server.answering import LEAVING_BYTES_MAX
from ottla.server.connection import Connection
from ottla.server.output import JOINED_BYTES_MAX
from ottla.server.turn import Leaving, Turn
from tests.unit.server.conftest import Run
from tests.unit.server.loopback import Client, Serve, Server, echo, numbered, until

LONG = b"?" * (LEAVING_BYTES_MAX + 1)
LONGER = b"?" * (JOINED_BYTES_MAX + 1)


async def served(server: Server, client: Client) -> Connection:
    """The only connection, while turns bring many answers."""
    await client.ask(b"hello there")
    await client.answer()
    server.share.turn.has_many = True
    return server.connection


def test_a_kept_answer_leaves_when_the_turn_ends(run: Run, serve: Serve) -> None:
    async def main() -> None:
        async with serve(echo) as server, await server.connect() as client:
            connection = await served(server, client)
            before = server.metrics.bytes_out
            connection._take_answer([b"an answer"])
            assert (len(server.share.turn.leaving), server.metrics.bytes_out) == (1, before)
            assert await client.answer() == b"an answer"
            assert (len(server.share.turn.leaving), server.metrics.bytes_out) == (0, before + 13)
            assert not server.share.turn.has_many  # It was the only one.

    run(main)


@pytest.mark.parametrize("second", [b"another one", LONG, LONGER])
def test_it_leaves_before_the_next_one(run: Run, serve: Serve, second: bytes) -> None:
    async def main() -> None:
        async with serve(echo) as server, await server.connect() as client:
            connection = await served(server, client)
            connection._take_answer([b"an answer"])
            connection._take_answer([second])
            assert await client.answers(2) == [b"an answer", second]

    run(main)


def test_it_leaves_before_one_that_has_two_pieces(run: Run, serve: Serve) -> None:
    async def main() -> None:
        async with serve(echo) as server, await server.connect() as client:
            connection = await served(server, client)
            connection._take_answer([b"an answer"])
            connection._take_answer([b"one", b"two"])
            assert await client.answers(2) == [b"an answer", b"onetwo"]

    run(main)


@pytest.mark.parametrize("count", [1, 2])
def test_it_leaves_before_those_that_come_late(run: Run, serve: Serve, count: int) -> None:
    async def main() -> None:
        async with serve(echo) as server, await server.connect() as client:
            connection = await served(server, client)
            connection._take_answer([b"an answer"])
            late = [Deferred() for _ in range(count)]
            for answer in late:
                connection._take_answer(answer)
            for answer in late:
                answer.complete([b"late"])
            assert await client.answers(1 + count) == [b"an answer"] + [b"late"] * count

    run(main)


def test_it_leaves_before_that_of_a_request_that_was_taken(run: Run, serve: Serve) -> None:
    async def main() -> None:
        async with serve(echo) as server, await server.connect() as client:
            connection = await served(server, client)
            connection._take_answer([b"an answer"])
            connection.taken = 2
            connection.settled(b"\0\0\0\3one")
            connection.settled(b"\0\0\0\3two")
            assert await client.answers(3) == [b"an answer", b"one", b"two"]

    run(main)


def test_a_drained_connection_sends_it(run: Run, serve: Serve) -> None:
    async def main() -> None:
        async with serve(echo) as server, await server.connect() as client:
            connection = await served(server, client)
            connection._take_answer([b"an answer"])
            connection.drain()
            assert await client.answer() == b"an answer"
            assert await client.is_closed()

    run(main)


@pytest.mark.parametrize("how", ["close", "refuse"])
def test_a_connection_that_ends_meanwhile_sends_nothing(run: Run, serve: Serve, how: str) -> None:
    async def main() -> None:
        async with serve(echo) as server, await server.connect() as client:
            connection = await served(server, client)
            connection._take_answer([b"an answer"])
            if how == "close":
                connection.close()
            else:
                connection.refuse("enough")
            assert await client.is_closed()
            await until(lambda: not server.share.turn.leaving)

    run(main)


def test_many_clients_at_once(run: Run, serve: Serve) -> None:
    async def main() -> None:
        async with serve(echo) as server, AsyncExitStack() as stack:
            clients = [await stack.enter_async_context(await server.connect()) for _ in range(10)]
            for number in range(20):
                for client in clients:
                    await client.ask(numbered(number, 20), numbered(-number, 30))
                for client in clients:
                    assert await client.answers(2) == [numbered(number, 20), numbered(-number, 30)]
            assert server.metrics.bytes_out == server.metrics.bytes_in == 20 * 10 * (24 + 34)

    run(main)


def test_what_was_kept_leaves_even_if_producers_fail() -> None:
    class Failing:
        requests = 1

        def end(self) -> None:
            raise RuntimeError("a bug")

    left: list[str] = []

    class Connected:
        def leave(self) -> None:
            left.append("left")

    turn = Turn(cast(ProduceTurn, Failing()))
    connections: Sequence[Leaving] = [Connected(), Connected()]
    turn.leaving += connections
    turn.answers = 2
    with pytest.raises(RuntimeError):
        turn.end()
    assert (left, turn.leaving, turn.has_many, turn.answers) == (["left", "left"], [], True, 0)
