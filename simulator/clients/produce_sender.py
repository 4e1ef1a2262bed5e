"""Produce requests of one connection: what its lanes have at the same time travels together.

Theory of operation. Lanes hand in batches. When the turn of the loop ends they leave, as many requests one behind the
other as a partition has batches, each with one batch of every partition that has some left. So a request has a batch of
each of several partitions, or of one, and a receive of the broker brings several requests.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Final
from uuid import UUID

from ottla.wire.produce import ProducedPartition
from ottla.wire.produce_client import encode_request, parse_response
from simulator.clients.connection import Gone

if TYPE_CHECKING:
    from simulator.clients.connection import ClientConnection
    from simulator.node_loop import NodeLoop

PRODUCE_KEY: Final = 0
PRODUCE_VERSION: Final = 13
REQUEST_TIMEOUT_MS: Final = 3000

Target = tuple[UUID, int]
"""A partition: the id of its topic, and its number."""
Answer = asyncio.Future[ProducedPartition]


class ProduceSender:
    """The way of batches to one broker."""

    def __init__(self, loop: NodeLoop, connection: ClientConnection) -> None:
        self._loop = loop
        self.connection = connection
        self._waiting: list[tuple[Target, bytes, Answer]] = []

    def put(self, target: Target, batch: bytes) -> Answer:
        """Send a batch; what becomes of it, or Gone."""
        if not self._waiting:
            self._loop.call_soon(self._send)
        answer: Answer = self._loop.create_future()
        self._waiting.append((target, batch, answer))
        return answer

    async def wait(self, answer: Answer) -> ProducedPartition:
        """The answer, or Gone; after a time-out the connection is given up."""
        timer = self._loop.call_later(REQUEST_TIMEOUT_MS * 2 / 1000, self._timed_out, answer)
        try:
            return await answer
        finally:
            timer.cancel()

    def _timed_out(self, answer: Answer) -> None:
        if not answer.done():
            self.connection.close("timed out")

    def _send(self) -> None:
        while self._waiting:
            together: dict[Target, tuple[bytes, Answer]] = {}
            behind = []
            for target, batch, answer in self._waiting:
                if target in together:
                    behind.append((target, batch, answer))
                else:
                    together[target] = batch, answer
            self._waiting = behind
            self._send_request(together)

    def _send_request(self, together: dict[Target, tuple[bytes, Answer]]) -> None:
        topics: dict[UUID, list[tuple[int, bytes]]] = {}
        for (topic_id, partition), (batch, _) in together.items():
            topics.setdefault(topic_id, []).append((partition, batch))
        body = encode_request(PRODUCE_VERSION, list(topics.items()), acks=-1, timeout_ms=REQUEST_TIMEOUT_MS)
        asked = self.connection.begin(PRODUCE_KEY, PRODUCE_VERSION, body)
        asked.add_done_callback(partial(self._answered, {target: answer for target, (_, answer) in together.items()}))

    def _answered(self, answers: dict[Target, Answer], asked: asyncio.Future[tuple[int, memoryview]]) -> None:
        error = asked.exception()
        if error is not None:
            for answer in answers.values():
                answer.set_exception(Gone(str(error)))
            return
        position, frame = asked.result()
        for topic_id, partitions in parse_response(frame, position, PRODUCE_VERSION).topics:
            for produced in partitions:
                answers.pop((topic_id, produced.index)).set_result(produced)  # type: ignore[arg-type]
        if answers:
            raise ValueError(f"there is no answer for {list(answers)}")
