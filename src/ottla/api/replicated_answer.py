"""The answer to acks=all: it leaves when the in-sync followers have what was appended, or when the time is up.

An answer is told by the partitions themselves, so that it costs no task: one object for a request of one partition, one
for the request and one for each partition where there are more. What is in the log of a leader with too few replicas in
sync is there, but was not asked for like that: the producer learns of it with NOT_ENOUGH_REPLICAS_AFTER_APPEND.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, TypeAlias

from ottla.api.deferred import Deferred
from ottla.model.chunks import Chunks
from ottla.model.errors import ApiError, ErrorCode

if TYPE_CHECKING:
    from ottla.runtime.partition import Partition

Errors: TypeAlias = Mapping[int, ApiError]
"""Why appends were not replicated, by their number in the order of `wait_for`."""


class HeldAnswer(Deferred):
    """The answer of a request of one partition, finished before it is known whether it is true. A waiter itself."""

    __slots__ = ("_answer", "_partition", "_refuse")

    def __init__(self, partition: Partition, answer: bytes, refuse: Callable[[ApiError], Chunks]) -> None:
        super().__init__()
        self._partition = partition
        self._answer = answer
        self._refuse = refuse

    def replicated(self) -> None:
        if self._partition.is_under_min_insync:
            self.complete(self._refuse(_too_few(self._partition)))
        else:
            self.complete([self._answer])

    def not_replicated(self, error: ApiError) -> None:
        self.complete(self._refuse(error))


class ReplicatedAnswer:
    """What a request of many partitions waits for."""

    __slots__ = ("_count", "_deferred", "_errors", "_finish", "_future", "_left")

    def __init__(self, finish: Callable[[Errors], Chunks]) -> None:
        self._finish = finish
        self._count = 0
        self._left = 1
        """Appends that are not settled, and one more until `begin`."""
        self._errors: dict[int, ApiError] = {}
        self._deferred = Deferred()
        self._future: asyncio.Future[None] | None = None

    @property
    def is_behind(self) -> bool:
        return self._deferred.is_behind

    def wait_for(self, partition: Partition, end_offset: int, timeout_ms: int) -> None:
        """Wait for one more append."""
        self._left += 1
        waiting = _OneAppend(self, self._count, partition)
        self._count += 1
        try:
            partition.when_replicated(end_offset, max(timeout_ms, 0), waiting)
        except ApiError as error:
            waiting.not_replicated(error)

    def begin(self) -> Deferred:
        """Every append is waited for by now."""
        self.settle()
        return self._deferred

    async def errors(self) -> Errors:
        """For those who have more to wait for than this."""
        self._future = asyncio.get_running_loop().create_future()
        self.settle()
        await self._future
        return self._errors

    def fail(self, number: int, error: ApiError) -> None:
        self._errors[number] = error
        self.settle()

    def settle(self) -> None:
        self._left -= 1
        if self._left:
            return
        if self._future is None:
            self._deferred.complete(self._finish(self._errors))
        elif not self._future.done():
            self._future.set_result(None)


class _OneAppend:
    """The waiter for one append of a request."""

    __slots__ = ("_answer", "_number", "_partition")

    def __init__(self, answer: ReplicatedAnswer, number: int, partition: Partition) -> None:
        self._answer = answer
        self._number = number
        self._partition = partition

    @property
    def is_behind(self) -> bool:
        return self._answer.is_behind

    def replicated(self) -> None:
        try:
            check_still_in_sync(self._partition)
        except ApiError as error:
            self._answer.fail(self._number, error)
        else:
            self._answer.settle()

    def not_replicated(self, error: ApiError) -> None:
        self._answer.fail(self._number, error)


def check_still_in_sync(partition: Partition) -> None:
    """Refuse what was replicated, but to fewer than it should have been."""
    if partition.is_under_min_insync:
        raise _too_few(partition)


def _too_few(partition: Partition) -> ApiError:
    return ApiError(
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        f"only {len(partition.isr)} replicas of {partition.topic_partition} were in sync in the end",
    )
