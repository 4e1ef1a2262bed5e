"""The metrics server as Prometheus, kubelets, people and strangers meet it."""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import http.client
import socket
import urllib.error
import urllib.request
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any, NamedTuple

import pytest
from prometheus_client.parser import text_string_to_metric_families

from ottla.server import http as http_server
from ottla.server import http_messages
from ottla.server.exposition import Exposition
from ottla.server.http import MetricsServer
from ottla.server.http_messages import BadRequestError, parse_head
from ottla.server.process_values import Values
from tests.unit.server.broker_state import BrokerState, partition
from tests.unit.server.conftest import Run
from tests.unit.server.loopback import Client, until


class Got(NamedTuple):
    """An answer as urllib gives it."""

    status: int
    headers: dict[str, str]
    body: bytes


@contextlib.asynccontextmanager
async def serving(
    state: BrokerState | None = None, is_ready: Callable[[], bool] = lambda: True
) -> AsyncIterator[MetricsServer]:
    server = MetricsServer((state or BrokerState()).services, "127.0.0.1", 0, is_ready, apis=())
    assert await server.start() == server.port
    try:
        yield server
    finally:
        await server.stop()


async def get(server: MetricsServer, path: str, method: str = "GET", **headers: str) -> Got:
    """Ask with urllib, from a thread, as the server is on this one's loop."""
    request = urllib.request.Request(
        f"http://127.0.0.1:{server.port}{path}",
        method=method,
        headers={name.replace("_", "-"): value for name, value in headers.items()},
        data=b"some body" if method in ("POST", "PUT") else None,
    )

    def ask() -> Got:
        try:
            with urllib.request.urlopen(request, timeout=20) as answer:
                return Got(answer.status, dict(answer.headers), answer.read())
        except urllib.error.HTTPError as error:
            with error:
                return Got(error.code, dict(error.headers), error.read())

    return await asyncio.to_thread(ask)


def test_prometheus_can_scrape_a_page(run: Run) -> None:
    async def main() -> None:
        state = BrokerState()
        state.add_topic("orders")
        async with serving(state) as server:
            got = await get(server, "/metrics")
        assert got.status == 200
        assert got.headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"
        names = {family.name for family in text_string_to_metric_families(got.body.decode())}
        assert {"kafka_topic_partitions", "process_cpu_seconds", "ottla_build_info", "ottla_loop_lag_seconds"} <= names

    run(main)


def test_a_page_is_compressed_for_who_asks(run: Run) -> None:
    async def main() -> None:
        state = BrokerState()
        state.add_topic("orders", *[partition() for _ in range(2000)])
        async with serving(state) as server:
            plain = await get(server, "/metrics")
            packed = await get(server, "/metrics", Accept_Encoding="deflate, gzip;q=0.9")
            refused = await get(server, "/metrics", Accept_Encoding="gzip;q=0, identity")
        assert packed.headers["Content-Encoding"] == "gzip"
        assert len(packed.body) * 10 < len(plain.body)
        assert gzip.decompress(packed.body).count(b"\n") == plain.body.count(b"\n")
        assert "Content-Encoding" not in refused.headers

    run(main)


def test_the_loop_turns_while_a_large_page_is_made(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    turns_at: list[int] = []
    turns = 0

    def counted(exposition: Exposition, process: Values, render: Any = Exposition.render) -> Iterator[str]:
        for piece in render(exposition, process):
            turns_at.append(turns)
            yield piece

    monkeypatch.setattr(Exposition, "render", counted)

    async def main() -> None:
        nonlocal turns
        turns_at.clear()
        state = BrokerState()
        for number in range(20):
            state.add_topic(f"wide-{number}", *[partition() for _ in range(500)])
        async with serving(state) as server:
            # Compressed, so that the page never has to wait for the socket.
            asked = asyncio.create_task(get(server, "/metrics", Accept_Encoding="gzip"))
            while not asked.done():
                turns += 1
                await asyncio.sleep(0)
            got = await asked
        assert gzip.decompress(got.body).count(b"\nkafka_topic_partition_leader{") == 10_000
        # A piece takes part of a millisecond. Where one took longer, the machine was busy, and the loop turns after it.
        assert len(set(turns_at)) > 20

    run(main)


@pytest.mark.parametrize(
    ("method", "path", "status", "body"),
    [
        ("GET", "/livez", 200, b"ok\n"),
        ("GET", "/readyz", 200, b"ok\n"),
        ("GET", "/livez?verbose", 200, b"ok\n"),
        ("GET", "/", 200, None),
        ("GET", "/nothing", 404, None),
        ("GET", "/metrics/", 404, None),
        ("HEAD", "/livez", 200, b""),
        ("HEAD", "/metrics", 200, b""),
        ("HEAD", "/nothing", 404, b""),
        ("POST", "/metrics", 405, None),
        ("PUT", "/", 405, None),
        ("DELETE", "/livez", 405, None),
        ("OPTIONS", "/", 405, None),
    ],
)
def test_paths_and_methods(run: Run, method: str, path: str, status: int, body: bytes | None) -> None:
    async def main() -> None:
        async with serving() as server:
            got = await get(server, path, method)
        assert got.status == status
        assert got.body == body if body is not None else got.body
        if status == 405:
            assert got.headers["Allow"] == "GET, HEAD"

    run(main)


def test_a_probe_learns_that_a_broker_does_not_serve(run: Run) -> None:
    async def main() -> None:
        ready = False
        async with serving(is_ready=lambda: ready) as server:
            got = await get(server, "/readyz")
            assert got.status == 503
            assert b"starting or stopping" in got.body
            assert (await get(server, "/livez")).status == 200
            ready = True
            assert (await get(server, "/readyz")).status == 200

    run(main)


def test_a_connection_serves_one_scrape_after_the_other(run: Run) -> None:
    async def main() -> None:
        async with serving() as server:

            def scrape() -> list[int]:
                connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=20)
                with contextlib.closing(connection):
                    sizes = []
                    for path in ("/metrics", "/livez", "/nothing", "/metrics"):
                        connection.request("GET", path)
                        sizes.append(len(connection.getresponse().read()))
                        local = connection.sock.getsockname()
                        sizes.append(local[1])
                    return sizes

            sizes = await asyncio.to_thread(scrape)
            assert len(set(sizes[1::2])) == 1
            assert min(sizes[::2]) > 0

    run(main)


def test_an_old_client_gets_the_page_until_the_end_of_the_connection(run: Run) -> None:
    async def main() -> None:
        async with serving() as server, await Client.connect(server.port) as client:
            await client.send(b"GET /metrics HTTP/1.0\r\n\r\n")
            head, _, body = (await client.read(1 << 24)).partition(b"\r\n\r\n")
        assert b"Transfer-Encoding" not in head
        assert b"Connection: close" in head
        assert list(text_string_to_metric_families(body.decode()))

    run(main)


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (b"GET /\r\n\r\n", b"400"),
        (b"GET / HTTP/2.0\r\n\r\n", b"400"),
        (b"nonsense\r\n\r\n", b"400"),
        (b"GET / HTTP/1.1\r\nno colon\r\n\r\n", b"400"),
        (b"GET / HTTP/1.1\r\nname : value\r\n\r\n", b"400"),
        (b"GET / HTTP/1.1\r\n" + b"x: " + b"y" * 20_000, b"431"),
        (b"\x00\x00\x00\x20\x00\x12\x00\x03" + b"\x00" * 20_000, b"431"),
    ],
)
def test_what_is_no_request_is_refused_and_closed(run: Run, sent: bytes, status: bytes) -> None:
    async def main() -> None:
        async with serving() as server, await Client.connect(server.port) as client:
            await client.send(sent)
            answer = await client.read(1 << 20)
        assert answer.startswith(b"HTTP/1.1 " + status)

    run(main)


def test_a_client_that_sends_much_learns_why_it_is_refused(run: Run) -> None:
    """It reads only when it has sent everything, and a connection that is reset by then has lost the answer."""

    async def main() -> None:
        async with serving() as server, await Client.connect(server.port) as client:
            await client.send(b"POST / HTTP/1.1\r\nContent-Length: 900000\r\n\r\n")
            for _ in range(9):
                await client.send(b"x" * 100_000)
                await asyncio.sleep(0)
            assert (await client.read(1 << 20)).startswith(b"HTTP/1.1 405")

    run(main)


def test_a_client_that_says_nothing_is_not_waited_for(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_messages, "IDLE_SECONDS_MAX", 0.02)
    monkeypatch.setattr(http_messages, "REQUEST_SECONDS_MAX", 0.02)

    async def main() -> None:
        async with serving() as server:
            for sent in (b"", b"GET / HTT"):
                async with await Client.connect(server.port) as client:
                    await client.send(sent)
                    assert await client.is_closed()

    run(main)


def test_a_client_that_takes_nothing_is_not_waited_for(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_server, "ANSWER_SECONDS_MAX", 0.2)

    async def main() -> None:
        state = BrokerState()
        state.add_topic("orders", *[partition() for _ in range(30_000)])
        async with serving(state) as server, await Client.connect(server.port, receive_buffer_bytes=4096) as client:
            await client.send(b"GET /metrics HTTP/1.1\r\n\r\n")
            await until(lambda: len(server._connections) == 1)
            await until(lambda: not server._connections)

    run(main)


def test_connections_are_limited(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_server, "CONNECTIONS_MAX", 2)

    async def main() -> None:
        async with serving() as server, contextlib.AsyncExitStack() as stack:
            clients = [await stack.enter_async_context(await Client.connect(server.port)) for _ in range(2)]
            await until(lambda: len(server._connections) == 2)
            async with await Client.connect(server.port) as surplus:
                assert await surplus.is_closed()
            clients[0].close()
            await until(lambda: len(server._connections) == 1)
            assert (await get(server, "/livez")).status == 200

    run(main)


def test_stopping_ends_what_is_under_way(run: Run) -> None:
    async def main() -> None:
        state = BrokerState()
        state.add_topic("orders", *[partition() for _ in range(30_000)])
        async with contextlib.AsyncExitStack() as stack:
            server = await stack.enter_async_context(serving(state))
            idle = await stack.enter_async_context(await Client.connect(server.port))
            busy = await stack.enter_async_context(await Client.connect(server.port, receive_buffer_bytes=4096))
            await busy.send(b"GET /metrics HTTP/1.1\r\n\r\n")
            await busy.read(1)
            await until(lambda: len(server._connections) == 2)
            await server.stop()
            assert await idle.is_closed()
            with pytest.raises(ConnectionRefusedError):
                await Client.connect(server.port)

    run(main)


def test_stopping_a_server_that_never_started_is_harmless(run: Run) -> None:
    async def main() -> None:
        await MetricsServer(BrokerState().services, "127.0.0.1", 0, lambda: True, apis=()).stop()

    run(main)


def test_a_taken_port_is_an_error_at_start(run: Run) -> None:
    async def main() -> None:
        with socket.create_server(("127.0.0.1", 0)) as taken:
            port = taken.getsockname()[1]
            server = MetricsServer(BrokerState().services, "127.0.0.1", port, lambda: True, apis=())
            with pytest.raises(OSError, match=str(port)):
                await server.start()
            await server.stop()

    run(main)


def test_the_page_comes_when_every_thread_hangs(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """A broken disk holds all threads, and that is when somebody looks."""
    monkeypatch.setattr(http_server, "PROCESS_VALUES_SECONDS_MAX", 0.01)

    async def main() -> None:
        state = BrokerState()

        class HangingOffload:
            async def run(self, *_: Any) -> None:
                await asyncio.Event().wait()

        state.services.world.offload = HangingOffload()  # type: ignore[misc, assignment]
        async with serving(state) as server:
            got = await get(server, "/metrics")
        assert got.status == 200
        assert b"\nottla_build_info{" in got.body or got.body.startswith(b"# HELP ottla_build_info")
        assert b"process_cpu" not in got.body

    run(main)


def test_a_failing_page_is_cut_off_and_logged(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """Half a page must not look like a whole one."""

    async def main() -> None:
        errors: list[str] = []
        monkeypatch.setattr(http_server.log, "error", lambda event, **_: errors.append(event), raising=False)
        async with serving() as server:

            def failing(*_: object) -> Iterator[str]:
                yield "# the first piece\n"
                raise ZeroDivisionError

            monkeypatch.setattr(type(server._exposition), "render", failing)
            with pytest.raises((http.client.HTTPException, OSError)):
                await get(server, "/metrics")
            assert (await get(server, "/livez")).status == 200
        assert errors == ["an answer over HTTP failed"]

    run(main)


@pytest.mark.parametrize(
    ("target", "path"),
    [
        ("/metrics", "/metrics"),
        ("/metrics?name[]=up", "/metrics"),
        ("http://broker:9308/metrics", "/metrics"),
        ("HTTP://broker", "/"),
        ("*", "*"),
    ],
)
def test_a_path_is_found_in_every_spelling(target: str, path: str) -> None:
    assert parse_head(f"GET {target} HTTP/1.1\r\nHost: x\r\n\r\n".encode()).path == path


@pytest.mark.parametrize(
    ("head", "keeps_alive"),
    [
        ("GET / HTTP/1.1\r\n\r\n", True),
        ("GET / HTTP/1.1\r\nConnection: Close\r\n\r\n", False),
        ("GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n", False),
        ("GET / HTTP/1.1\r\nContent-Length: 5\r\n\r\n", False),
        ("GET / HTTP/1.1\r\nContent-Length: 0\r\n\r\n", True),
        ("GET / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n", False),
    ],
)
def test_a_body_that_nobody_reads_is_never_taken_for_a_request(head: str, keeps_alive: bool) -> None:
    assert parse_head(head.encode()).keeps_alive is keeps_alive


def test_any_bytes_are_a_request_or_refused() -> None:
    for head in (b"\xff\xfe \x00 HTTP/1.1\r\n\r\n", b"GET  HTTP/1.1\r\n\r\n", b" / HTTP/1.1\r\n\r\n"):
        with contextlib.suppress(BadRequestError):
            parse_head(head)
