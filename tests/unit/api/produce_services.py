"""Producers and a broker that takes their requests, without sockets."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from types import SimpleNamespace
from typing import cast

from ottla.api import produce
from ottla.api.context import RequestContext, Services
from ottla.api.deferred import Deferred
from ottla.api.produce_turn import ProduceTurn
from ottla.model.chunks import Chunks
from ottla.wire.batch import read_header
from ottla.wire.fields import TopicKey
from ottla.wire.headers import request_header, request_header_fields
from ottla.wire.produce import FLEXIBLE_SINCE, ProducedPartition
from ottla.wire.produce_client import encode_request, parse_response
from ottla.wire.produce_shape import RequestShape
from tests.unit.api import replica_services
from tests.unit.log.support import batch_of, read_headers
from tests.unit.runtime.hosted import TOPIC, Hosted
from tests.unit.runtime.replicas import Cluster

VERSION = 9
PRIMED = 2
"""Batches in each partition: the first ones of a segment are always appended alone."""


class Producer:
    """A connection that notes its answers, and serves what comes back to it by the ordinary way."""

    host, listener, principal = "10.0.0.1", "PLAINTEXT", "User:ANONYMOUS"

    def __init__(self, turn: ProduceTurn, services: Services, client_id: str | None = "shop") -> None:
        self.produce_shape: RequestShape | None = None
        self.produce_skipped = 0
        self.taken = 0
        self.answers: list[bytes | Deferred] = []
        self.served = 0
        self.errors: list[Exception] = []
        self.correlation_id = 0
        self._client_id = client_id
        self._turn = turn
        self._services = services

    def ask(
        self,
        batch: bytearray,
        *,
        topic: TopicKey = TOPIC,
        index: int = 0,
        acks: int = 1,
        version: int = VERSION,
    ) -> bool:
        """Send a request; whether it was taken. If not, it is served at once."""
        self.correlation_id += 1
        body = encode_request(version, [(topic, [(index, bytes(batch))])], acks=acks, timeout_ms=1000)
        frame = b"...." + request_header(0, version, self.correlation_id, self._client_id) + body + b"...."
        view = memoryview(bytearray(frame))
        if self._turn.take(self, view, 4, len(frame) - 4):
            view[:] = bytes(len(view))  # It is gone when the call returns.
            return True
        if self.taken:
            self._turn.settle()
        self._serve(view[4:-4])
        return False

    def _serve(self, frame: memoryview) -> None:
        key, version, correlation_id, client_id, position = request_header_fields(frame)
        ctx = RequestContext(self._services, key, version, correlation_id, client_id, self.host, self.listener)
        answer = produce.handle(ctx, frame, position)
        if isinstance(answer, list):
            self.answers.append(b"".join(cast("list[bytes]", answer)))
        else:
            self.answers.append(later(answer))

    def settled(self, data: bytes) -> None:
        self.taken -= 1
        assert len(data) == 4 + int.from_bytes(data[:4])
        self.answers.append(data[4:])

    def settled_later(self, answer: Deferred) -> None:
        self.taken -= 1
        self.answers.append(answer)

    def serve_taken(self, frame: memoryview) -> None:
        self.taken -= 1
        self.served += 1
        self._serve(frame)

    def taken_failed(self, error: Exception) -> None:
        self.taken = 0
        self.errors.append(error)

    async def rows(self, version: int = VERSION) -> list[ProducedPartition]:
        """What it was answered, in order, and with the right correlation ids."""
        assert self.taken == 0
        rows: list[ProducedPartition] = []
        for number, answer in enumerate(self.answers, 1):
            data = await settled(answer) if isinstance(answer, Deferred) else answer
            assert int.from_bytes(data[:4]) == number
            response = parse_response(memoryview(data), 5 if version >= FLEXIBLE_SINCE else 4, version)
            ((_, (row,)),) = response.topics
            rows.append(row)
        return rows


def later(answer: Deferred | Awaitable[Chunks] | None) -> Deferred:
    if isinstance(answer, Deferred):
        return answer
    assert answer is not None
    deferred = Deferred()
    task = asyncio.ensure_future(answer)
    task.add_done_callback(lambda done: deferred.complete(done.result()))
    return deferred


async def settled(answer: Deferred) -> bytes:
    heard = asyncio.Event()
    answer.listen(heard.set)
    await heard.wait()
    return b"".join(cast("list[bytes]", answer.chunks))


class Broker:
    """What takes requests, and what it writes to."""

    def __init__(self, hosted: Hosted, services: Services | None = None) -> None:
        self.hosted = hosted
        self.services = services or replica_services.services(cast(Cluster, SimpleNamespace(replicas={1: hosted})))
        self.first = 0
        self.turn = ProduceTurn(self.services, self._on_first)
        for partition in hosted.table.led():
            while partition.log.log_end_offset < PRIMED:
                batch = batch_of()
                partition.append(memoryview(batch), read_header(batch), hosted.clock.ms)

    def _on_first(self) -> None:
        self.first += 1

    def producer(self, client_id: str | None = "shop") -> Producer:
        return Producer(self.turn, self.services, client_id)

    def known(self, client_id: str | None = "shop", index: int = 0) -> Producer:
        """A producer whose requests are known by now."""
        made = self.producer(client_id)
        assert not made.ask(batch_of(), index=index)
        return made

    def offsets(self, index: int = 0) -> list[int]:
        log = self.hosted.partition(index).log
        headers = read_headers(log.read(PRIMED, 1 << 20, log.log_end_offset, True))
        return [header.base_offset - PRIMED for header in headers]


def offsets_of(rows: list[ProducedPartition]) -> list[int]:
    """Of batches that were stored, from those on that were there."""
    assert [row.error_code for row in rows] == [0] * len(rows)
    return [row.base_offset - PRIMED for row in rows]
