"""What a request wants committed, beside the parts of its answer that wait for it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

from ottla.core.groups.offset_commands import NewOffset
from ottla.model.errors import ErrorCode

if TYPE_CHECKING:
    from ottla.core.controller.image import TopicImage


class Asked(Protocol):
    """A partition of a request."""

    partition_index: int
    committed_offset: int
    committed_leader_epoch: int
    committed_metadata: str | None


class Result(Protocol):
    """A partition of an answer."""

    error_code: int

    def __init__(self, *, partition_index: int) -> None: ...


ResultT = TypeVar("ResultT", bound=Result)


class OffsetsToCommit(Generic[ResultT]):
    """Offsets of partitions that are there; the others are refused as they come."""

    __slots__ = ("_make", "_pending", "offsets")

    def __init__(self, make: type[ResultT]) -> None:
        self.offsets: list[NewOffset] = []
        self._pending: list[ResultT] = []
        """The results of `offsets`, in the same order."""
        self._make = make

    def take(self, topic: TopicImage | None, asked: Iterable[Asked], unknown: ErrorCode) -> list[ResultT]:
        """Take in the partitions of one topic, and give the results that stand for them in the answer."""
        make, results = self._make, []
        count = 0 if topic is None else len(topic.partitions)
        for partition in asked:
            index = partition.partition_index
            result = make(partition_index=index)
            results.append(result)
            if topic is None or not 0 <= index < count:
                result.error_code = unknown
                continue
            self._pending.append(result)
            self.offsets.append(
                NewOffset(
                    topic.name,
                    topic.id,
                    index,
                    partition.committed_offset,
                    partition.committed_leader_epoch,
                    partition.committed_metadata,
                )
            )
        return results

    def settle(self, codes: Sequence[ErrorCode]) -> None:
        """What the coordinator says of each of the offsets."""
        for result, code in zip(self._pending, codes, strict=True):
            result.error_code = code
