"""Connections are accepted up to the limits, closed when idle, and allowed to finish when the broker stops."""

from __future__ import annotations

import asyncio
import errno
import gc
import os
import socket
import struct

import pytest
from structlog.testing import capture_logs

from ottla.model.configs.listeners import Endpoint
from ottla.model.configs.resolve import BrokerConfig
from ottla.server.listener import Listener
from ottla.server.platform import Platform
from ottla.server.share import ConnectionLimits, LoopShare
from tests.measured import least, open_files
from tests.unit.server.conftest import Run
from tests.unit.server.loopback import Answers, Client, Serve, echo, make_services, numbered, until


def test_more_connections_than_allowed_wait_until_one_goes(run: Run, serve: Serve) -> None:
    async def main() -> None:
        async with serve(echo, ConnectionLimits(connections_max=2)) as server:
            first, second = await server.connect(), await server.connect()
            third = await server.connect()
            await third.ask(numbered(3))
            await second.ask(numbered(2))
            await second.answer()
            await asyncio.sleep(0)
            assert len(server.listener.connections) == 2
            assert not server.listener._accepting, "waits without being called in vain"
            first.close()
            assert await third.answer() == numbered(3)
            second.close()
            third.close()
            await until(lambda: not server.listener.connections)
            assert server.metrics.connections_accepted == 3

    run(main)


def test_a_raised_limit_lets_those_in_who_wait(run: Run, serve: Serve) -> None:
    async def main() -> None:
        async with (
            serve(echo, ConnectionLimits(connections_max=1)) as server,
            await server.connect() as first,
            await server.connect() as second,
        ):
            await first.ask(numbered(1))
            await first.answer()
            await second.ask(numbered(2))
            server.share.limits = ConnectionLimits(connections_max=2)
            assert await second.answer() == numbered(2)

    run(main)


def test_clients_may_connect_before_they_are_accepted(run: Run, platform: Platform) -> None:
    async def main() -> None:
        share = LoopShare(make_services(), ConnectionLimits(), platform)
        listener = Listener("PLAINTEXT", "127.0.0.1", 0, echo, share)
        await listener.bind()
        async with await Client.connect(listener.port) as client:
            await client.ask(numbered(1))
            assert not listener.connections
            listener.accept()
            assert await client.answer() == numbered(1)
        await listener.close()
        await share.close()

    run(main)


def test_the_config_says_how_much_a_socket_holds(run: Run, platform: Platform) -> None:
    async def main() -> None:
        properties = {"socket.send.buffer.bytes": "20000", "socket.receive.buffer.bytes": "30000"}
        share = LoopShare(make_services(), ConnectionLimits(), platform)
        endpoint = Endpoint("PLAINTEXT", "127.0.0.1", 0, "PLAINTEXT")
        listener = Listener.of(endpoint, BrokerConfig.from_properties(properties), echo, share)
        await listener.start()
        async with await Client.connect(listener.port) as client:
            await client.ask(numbered(1))
            await client.answer()
            (connection,) = listener.connections
            with socket.socket(fileno=os.dup(connection._fd)) as accepted:
                sizes = [accepted.getsockopt(socket.SOL_SOCKET, key) for key in (socket.SO_SNDBUF, socket.SO_RCVBUF)]
            # Linux keeps twice as much, for its own use.
            assert sizes in ([40000, 60000], [20000, 30000])
        await listener.close()
        await share.close()

    run(main)


def test_one_host_may_not_hold_too_many_connections(run: Run, serve: Serve) -> None:
    async def main() -> None:
        async with serve(echo, ConnectionLimits(connections_per_host_max=2)) as server:
            with capture_logs() as lines:
                async with await server.connect() as kept, await server.connect() as gone:
                    async with await server.connect() as refused:
                        assert await refused.is_closed()
                    gone.close()
                    await until(lambda: len(server.listener.connections) == 1)
                    async with await server.connect() as again:
                        for client in (kept, again):
                            await client.ask(numbered(1))
                            assert await client.answer() == numbered(1)
            assert ["holds 2 connections" in line["reason"] for line in lines] == [True]
            assert server.metrics.connections_refused == 1

    run(main)


def test_a_host_may_be_allowed_more(run: Run, serve: Serve) -> None:
    async def main() -> None:
        limits = ConnectionLimits(connections_per_host_max=0, connections_per_host_overrides={"127.0.0.1": 1})
        async with serve(echo, limits) as server, await server.connect() as client:
            await client.ask(numbered(1))
            assert await client.answer() == numbered(1)

    run(main)


def test_an_idle_connection_is_closed_and_a_busy_one_is_not(run: Run, serve: Serve) -> None:
    async def main() -> None:
        async with (
            serve(echo, ConnectionLimits(idle_ms_max=100)) as server,
            await server.connect() as busy,
            await server.connect() as idle,
        ):
            closing = asyncio.create_task(idle.is_closed())
            while not closing.done():
                await busy.ask(numbered(1))
                assert await busy.answer() == numbered(1)
                await asyncio.sleep(0.001)
            assert closing.result()
            assert server.metrics.connections_closed_idle == 1

    run(main)


def test_what_is_owed_is_sent_before_the_broker_stops(run: Run, serve: Serve) -> None:
    async def main() -> None:
        answers = Answers()
        async with serve(answers.dispatch) as server:
            client, idle = await server.connect(), await server.connect()
            await client.ask(numbered(1), numbered(2))
            await until(lambda: len(answers.owed) == 2)
            closing = asyncio.create_task(server.listener.close(grace_seconds=10))
            assert await idle.is_closed()
            await client.ask(numbered(3))
            answers.complete(2, 1)
            assert await client.answers(2) == [numbered(1), numbered(2)]
            assert await client.read(1) == b"", "closed in order, although a third request was never read"
            await closing
            assert 3 not in answers.owed
            with pytest.raises(ConnectionRefusedError):
                await server.connect()
            client.close()
            idle.close()

    run(main)


def test_a_large_answer_is_sent_whole_before_the_broker_stops(run: Run, serve: Serve) -> None:
    async def main() -> None:
        async with serve(lambda *_: [b"x" * 30_000_000]) as server, await server.connect() as client:
            await client.ask(numbered(1))
            await client.read(4)
            closing = asyncio.create_task(server.listener.close(grace_seconds=10))
            assert len(await client.read(30_000_000)) == 30_000_000
            assert await client.is_closed()
            await closing

    run(main)


def test_stopping_does_not_wait_for_ever(run: Run, serve: Serve) -> None:
    async def main() -> None:
        answers = Answers()
        async with serve(answers.dispatch) as server, await server.connect() as client:
            await client.ask(numbered(1))
            await until(lambda: len(answers.owed) == 1)
            await server.listener.close(grace_seconds=0.05)
            assert answers.cancelled == [1]
            assert await client.is_closed()
            assert server.metrics.connections_open == 0

    run(main)


def test_nothing_is_left_behind_by_a_hundred_starts_and_stops(run: Run, serve: Serve) -> None:
    async def cycle(number: int) -> None:
        answers = Answers()
        async with serve(answers.dispatch) as server:
            clients = [await server.connect() for _ in range(3)]
            await clients[0].ask(numbered(0))
            await clients[1].send(struct.pack(">i", 1_000_000) + b"x" * 100_000)
            await until(lambda: len(answers.owed) == 1)
            if number % 2:
                answers.complete(0)
            clients[2].close()
            await server.listener.close(grace_seconds=0.001)
            for client in clients:
                client.close()

    async def main() -> None:
        for number in range(100):
            await cycle(number)
        await asyncio.sleep(0.01)
        assert len(asyncio.all_tasks()) == 1

    def opened() -> int:
        before = open_files()
        run(main)
        gc.collect()
        return open_files() - before

    assert least(opened, enough=1) <= 0


def test_a_taken_port_is_an_error(run: Run, serve: Serve) -> None:
    async def main() -> None:
        async with serve(echo) as server:
            second = Listener("OTHER", "127.0.0.1", server.listener.port, echo, server.share)
            with pytest.raises(OSError, match=r"[Aa]ddress"):
                await second.start()
            await second.close()

    run(main)


def test_a_name_is_served_on_all_its_addresses(run: Run, platform: Platform) -> None:
    async def main() -> None:
        share = LoopShare(make_services(), ConnectionLimits(), platform)
        listener = Listener("PLAINTEXT", "localhost", 0, echo, share)
        await listener.start()
        async with await Client.connect(listener.port) as client:
            await client.ask(numbered(1))
            assert await client.answer() == numbered(1)
        await listener.close()
        await share.close()

    run(main)


def test_running_out_of_files_is_survived(run: Run, serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        async with serve(echo) as server:
            real = socket.socket.accept
            failures = [OSError(errno.EMFILE, "too many open files"), OSError(errno.EPROTO, "lost")]

            def accept(bound: socket.socket) -> object:
                if failures:
                    raise failures.pop(0)
                return real(bound)

            monkeypatch.setattr("ottla.server.listener.NO_FILES_PAUSE_SECONDS", 0.01)
            monkeypatch.setattr(socket.socket, "accept", accept)
            with capture_logs() as lines:
                async with await server.connect() as client:
                    await client.ask(numbered(1))
                    assert await client.answer() == numbered(1)
            assert [line["event"] for line in lines] == [
                "cannot accept connections",
                "connection lost while it was accepted",
            ]

    run(main)


def test_two_listeners_share_one_limit(run: Run, serve: Serve) -> None:
    async def main() -> None:
        async with serve(echo, ConnectionLimits(connections_max=1)) as server:
            second = Listener("SECOND", "127.0.0.1", 0, echo, server.share)
            await second.start()
            first_client = await server.connect()
            await first_client.ask(numbered(1))
            await first_client.answer()
            async with await Client.connect(second.port) as client:
                await client.ask(numbered(2))
                await asyncio.sleep(0.01)
                assert not second.connections
                first_client.close()
                assert await client.answer() == numbered(2)
            await second.close()

    run(main)
