"""A connection whose requests come several at a time, without sockets."""

from __future__ import annotations

from collections.abc import Awaitable, Sequence
from typing import TypeAlias, cast

from ottla.api import produce, produce_ahead
from ottla.api.context import RequestContext, Services
from ottla.api.deferred import Deferred
from ottla.model.chunks import Chunks
from ottla.wire.fields import TopicKey
from ottla.wire.headers import request_header, request_header_fields
from ottla.wire.produce_client import encode_request
from ottla.wire.produce_lead import Lead
from tests.unit.api.produce_services import later, settled
from tests.unit.runtime.hosted import TOPIC

try:
    from ottla.api import produce_compiled
except ImportError:
    produce_compiled = None  # type: ignore[assignment]

Part: TypeAlias = tuple[int, bytearray]
Group: TypeAlias = type[produce_ahead.ProduceGroup]

GROUPS: dict[str, Group] = {"interpreted": produce_ahead.ProduceGroup}
if produce_compiled is not None:
    GROUPS["compiled"] = produce_compiled.ProduceGroup


class Sender:
    """Serves what comes together as a connection does; without a `group`, each request by itself."""

    host, listener, principal = "10.0.0.1", "PLAINTEXT", "User:ANONYMOUS"

    def __init__(self, services: Services, group: Group | None) -> None:
        self._services = services
        self._group = group
        self._correlation_id = 0
        self.produce_lead: Lead | None = None
        self.produce_lead_skipped = 0
        self.answers: list[bytes | Deferred] = []
        self.direct = 0
        """How many requests the group itself has answered."""

    def frame(
        self,
        parts: Sequence[Part],
        *,
        acks: int = 1,
        version: int = 9,
        topic: TopicKey = TOPIC,
        client: str = "shop",
        timeout_ms: int = 1000,
    ) -> memoryview:
        self._correlation_id += 1
        partitions = [(index, bytes(batch)) for index, batch in parts]
        body = encode_request(version, [(topic, partitions)], acks=acks, timeout_ms=timeout_ms)
        return memoryview(bytearray(request_header(0, version, self._correlation_id, client) + body))

    def receive(self, frames: Sequence[memoryview]) -> None:
        if self._group is None:
            for frame in frames:
                self._serve(frame)
            return
        group = self._group(self._services, self, frames)
        answers = group.answers(len(frames))
        if answers is not None:
            self._note_all(answers, len(frames))
        else:
            for number, frame in enumerate(frames):
                answer = group.answer(number)
                if answer is None:
                    self._serve(frame)
                else:
                    self.direct += 1
                    self._note(answer)
        group.close()
        for frame in frames:
            frame[:] = bytes(len(frame))  # It is gone when the turn ends.

    def _serve(self, frame: memoryview) -> None:
        key, version, correlation_id, client_id, position = request_header_fields(frame)
        ctx = RequestContext(self._services, key, version, correlation_id, client_id, self.host, self.listener)
        self._note(produce.handle(ctx, frame, position))

    def _note_all(self, answers: bytes, count: int) -> None:
        for _ in range(count):
            end = 4 + int.from_bytes(answers[:4])
            self.answers.append(answers[4:end])
            answers = answers[end:]
        assert not answers
        self.direct += count

    def _note(self, answer: Chunks | Deferred | Awaitable[Chunks] | None) -> None:
        self.answers.append(b"".join(cast("list[bytes]", answer)) if isinstance(answer, list) else later(answer))

    async def settled(self) -> list[bytes]:
        """All answers, in their order."""
        return [await settled(answer) if isinstance(answer, Deferred) else answer for answer in self.answers]
