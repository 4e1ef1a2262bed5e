"""The services that handlers of offsets ask, around a coordinator in memory."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any, TypeVar, cast
from uuid import UUID

from ottla.api.context import RequestContext, Services
from ottla.api.deferred import Deferred
from ottla.core.controller.image import MetadataImage, PartitionImage, TopicImage
from ottla.core.coordination import Command
from ottla.model.errors import ApiError, ErrorCode
from ottla.model.ids import TopicPartition
from ottla.runtime.metrics import Metrics
from ottla.runtime.repeated_commits import RepeatedCommits
from ottla.wire.headers import parse_response_header
from ottla.wire.schema import Message, decode, encode
from tests.unit.core.groups.offset_coordinator import TOPIC_ID, OffsetCoordinator

M = TypeVar("M", bound=Message)
OTHER_ID = UUID(int=99)
_PARTITION = PartitionImage(replicas=(1,), isr=(1,), leader=1)
_TOPIC = TopicImage("t", TOPIC_ID, (_PARTITION,) * 3)
IMAGE = MetadataImage(topics={"t": _TOPIC}, topics_by_id={TOPIC_ID: _TOPIC})


class Groups:
    """Coordinators of groups. With `later` each answer has to be waited for; groups in `refused` are elsewhere."""

    topic = "__consumer_offsets"

    def __init__(self) -> None:
        self.coordinator = OffsetCoordinator()
        self.repeated = RepeatedCommits()
        self.later = False
        self.refused: dict[str, ErrorCode] = {}
        self.guarded: list[tuple[str, int, int]] = []
        self.marker_came = False
        """While a transaction was being verified."""

    def guard(self, key: str, producer_id: int, producer_epoch: int) -> Callable[[], None]:
        self.guarded.append((key, producer_id, producer_epoch))
        return self._check_guard

    def _check_guard(self) -> None:
        if self.marker_came:
            raise ApiError(ErrorCode.INVALID_TXN_STATE)

    def partition_for(self, key: str) -> int:
        return len(key)

    def at_work_for(self, key: str) -> None:
        """Nobody who could be asked again."""

    def submit(self, key: str, command: Command[Any]) -> Any:
        if self.later:
            return self._submit_later(key, command)
        return self._submit(key, command)

    async def _submit_later(self, key: str, command: Command[Any]) -> Any:
        await asyncio.sleep(0)
        return self._submit(key, command)

    def _submit(self, key: str, command: Command[Any]) -> Any:
        if key in self.refused:
            raise ApiError(self.refused[key])
        return self.coordinator.ask(command)


class Transactions:
    """A transaction coordinator that says yes, or `refusal`."""

    def __init__(self) -> None:
        self.asked: list[tuple[Any, ...]] = []
        self.refusal: ErrorCode | None = None
        self.result: ErrorCode | None = None
        """What is said of each partition, where it is said of each."""
        self.later = False

    def verify(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: Sequence[TopicPartition],
        *,
        add: bool,
    ) -> Any:
        self.asked.append((transactional_id, producer_id, producer_epoch, list(partitions), add))
        if self.refusal is not None:
            raise ApiError(self.refusal)
        results = dict.fromkeys(partitions, self.result) if self.result is not None else None
        return asyncio.sleep(0, results) if self.later else results


class Offload:
    """Runs at once what a thread would run, and counts it."""

    runs = 0

    async def run(self, function: Callable[..., Any], *arguments: Any) -> Any:
        self.runs += 1
        return function(*arguments)


async def chunks_of(answer: Any) -> list[bytes]:
    """What a hot handler has answered, or answers later."""
    if isinstance(answer, Deferred):
        done = asyncio.Event()
        answer.listen(done.set)
        await done.wait()
        answer = answer.chunks
    return cast("list[bytes]", await answer if inspect.isawaitable(answer) else answer)


class OffsetServices:
    """Asks handlers as the dispatcher does, with messages that went over the wire."""

    def __init__(self) -> None:
        self.groups = Groups()
        self.transactions = Transactions()
        self.offload = Offload()
        self.metrics = Metrics()
        self.services = cast(
            Services,
            SimpleNamespace(
                image=IMAGE,
                config=self.groups.coordinator.config,
                groups=self.groups,
                transactions=self.transactions,
                world=SimpleNamespace(offload=self.offload),
                metrics=self.metrics,
            ),
        )

    @property
    def coordinator(self) -> OffsetCoordinator:
        return self.groups.coordinator

    def ask(self, api: Any, request: Message, version: int, response: type[M]) -> M:
        ctx = RequestContext(self.services, 0, version, 1, "c", "h", "PLAINTEXT")
        sent = decode(type(request), encode(request, version), version)

        async def answered() -> Message:
            try:
                result = api.handle(ctx, sent)
                return cast(Message, await result if inspect.isawaitable(result) else result)
            except ApiError as error:
                return cast(Message, api.failed(sent, error.code, error.message, version))

        return decode(response, encode(asyncio.run(answered()), version), version)

    def ask_hot(self, api: Any, request: Message, version: int, response: type[M]) -> M:
        """The same of a handler that parses its frame and gives the finished answer."""
        assert response.__schema__ is not None
        assert response.__schema__.api_key is not None
        key = response.__schema__.api_key
        ctx = RequestContext(self.services, key, version, 77, "c", "h", "PLAINTEXT")

        async def answered() -> list[bytes]:
            result = api.handle(ctx, memoryview(bytearray(b"before" + encode(request, version))), 6)
            return await chunks_of(result)

        answer = b"".join(asyncio.run(answered()))
        correlation_id, position = parse_response_header(key, version, answer)
        assert correlation_id == 77
        return decode(response, answer, version, position)
