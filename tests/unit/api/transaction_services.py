"""The services that handlers of transactions ask, around a coordinator in memory."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable
from types import ModuleType, SimpleNamespace
from typing import Any, TypeVar, cast
from uuid import UUID

from ottla.api.context import RequestContext, Services
from ottla.core.controller.image import MetadataImage, PartitionImage, TopicImage
from ottla.core.coordination import Command
from ottla.model.errors import ApiError, ErrorCode
from ottla.wire.schema import Message, decode, encode
from tests.unit.core.transactions.coordinator import Coordinator

M = TypeVar("M", bound=Message)
_PARTITION = PartitionImage(replicas=(1,), isr=(1,), leader=1)
_TOPICS = [
    TopicImage(name, UUID(int=number), (_PARTITION,) * 2)
    for number, name in enumerate(("a", "b", "__consumer_offsets", "__transaction_state"), 1)
]
IMAGE = MetadataImage(topics={topic.name: topic for topic in _TOPICS})


class Transactions:
    """Coordinators of transactions. With `later` each answer has to be waited for; `refused` ids are elsewhere."""

    def __init__(self) -> None:
        self.coordinator = Coordinator()
        self.coordinators = self
        self.later = False
        self.refused: dict[str, ErrorCode] = {}

    def submit(self, transactional_id: str, command: Command[Any]) -> Any:
        return self._submit_later(transactional_id, command) if self.later else self._submit(transactional_id, command)

    async def _submit_later(self, transactional_id: str, command: Command[Any]) -> Any:
        await asyncio.sleep(0)
        return self._submit(transactional_id, command)

    def _submit(self, transactional_id: str, command: Command[Any]) -> Any:
        if transactional_id in self.refused:
            raise ApiError(self.refused[transactional_id])
        return self.coordinator.submit(command)

    def submit_with_spare(self, transactional_id: str, make: Callable[[int], Command[Any]]) -> Any:
        self.coordinator.next_producer_id += 1
        return self.submit(transactional_id, make(self.coordinator.next_producer_id))

    async def broadcast(self, make: Callable[[], Command[Any]]) -> list[Any]:
        if "" in self.refused:
            raise ApiError(self.refused[""])
        return [self.coordinator.submit(make())]


class ProducerIds:
    async def next(self) -> int:
        return 7


class Broker:
    """A broker of which there is no more than handlers of transactions see."""

    def __init__(self, *, later: bool = False) -> None:
        self.transactions = Transactions()
        self.transactions.later = later
        self.services = SimpleNamespace(
            transactions=self.transactions,
            groups=SimpleNamespace(topic="__consumer_offsets", partition_for=len),
            producer_ids=ProducerIds(),
            image=IMAGE,
        )

    @property
    def coordinator(self) -> Coordinator:
        return self.transactions.coordinator

    def ask(self, handler: ModuleType, request: Message, version: int, response: type[M]) -> M:
        """Through the bytes of this version, there and back; a refusal as dispatch answers it."""
        schema = request.__schema__
        assert schema is not None
        assert schema.api_key is not None
        ctx = RequestContext(cast(Services, self.services), schema.api_key, version, 1, "c", "127.0.0.1", "PLAINTEXT")
        request = decode(type(request), encode(request, version), version)
        try:
            answer = handler.handle(ctx, request)
            if inspect.isawaitable(answer):
                answer = asyncio.run(_wait(answer))
        except ApiError as error:
            answer = handler.failed(request, error.code, error.message, version)
        return decode(response, encode(answer, version), version)


async def _wait(answer: Any) -> Any:
    return await answer
