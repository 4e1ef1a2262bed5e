"""Commits that are like earlier ones but for the offset, and all that follows from that.

Theory of operation. A consumer that commits one partition sends the same bytes each time, except for the offset and its
leader epoch near their end. What comes before them is the key under which everything is kept that was found out about
the first such request: who coordinates the group, the batch that is written with the few bytes to be changed in it, how
the state machine decides and replays it (`core/groups/repeated_commit`), and the answer. So the next one is parsed,
decided, encoded and answered in a handful of calls. What is refused is refused by the same checks as ever, and what is
not quite the same takes the ordinary way.

What an editor must keep true:
- What is kept is good as long as the metadata is the same object: topics, their ids, and which partition a group
  belongs to follow from it. A coordinator that has resigned says so itself (`CoordinatorShard.repeat`).
- A batch is written into memory that the next one overwrites: an append is over when it returns.
- A request is only noted when it is first seen, and prepared when it comes again: who never repeats costs a dict entry.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from struct import Struct
from typing import TYPE_CHECKING, Final, cast

from ottla.core.groups.offset_commands import CommitOffsets, NewOffset
from ottla.core.groups.records import OffsetRecord
from ottla.core.groups.repeated_commit import RepeatedCommit
from ottla.core.groups.shard import GroupShard
from ottla.model.errors import ErrorCode
from ottla.model.ids import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, NO_SEQUENCE, NO_TIMESTAMP
from ottla.runtime.coordinator_log import build
from ottla.runtime.offset_codec import PLAIN_NUMBERS_BEFORE_END, encode_plain_offset
from ottla.wire.batch import CRC_START, LENGTH_PREFIX_BYTES, MAGIC, BatchHeader
from ottla.wire.compression import Codec
from ottla.wire.crc import crc32c

if TYPE_CHECKING:
    from ottla.core.controller.image import MetadataImage
    from ottla.core.groups.records import GroupRecord
    from ottla.runtime.coordinator_shard import CoordinatorShard

KEYS_MAX: Final = 8192
KEY_BYTES_MAX: Final = 512

_CRC_BYTES: Final = 4
_pack_crc: Final = Struct(">I").pack_into
_pack_covered: Final = Struct(">hiqq").pack_into
"""What the checksum covers first: attributes, last offset delta, and both times."""
_pack_numbers: Final = Struct(">qiBq").pack_into
"""Offset, leader epoch, no metadata, time: as `offset_codec` packs them behind the version."""
_header: Final[Callable[[tuple[int, ...]], BatchHeader]] = partial(tuple.__new__, BatchHeader)
_NO_METADATA: Final = 1


class PreparedCommit:
    """One consumer's commits of one partition. Implements `Repeated`."""

    __slots__ = (
        "_batch",
        "_covered",
        "_length",
        "_numbers_at",
        "answer",
        "coordinator",
        "decide",
        "encoded_answer",
        "image",
        "replay",
    )

    def __init__(
        self,
        coordinator: CoordinatorShard[GroupRecord],
        image: MetadataImage,
        core: RepeatedCommit,
        record: bytes,
        encoded_answer: bytes,
    ) -> None:
        batch = build(record, 1, 0, NO_PRODUCER_ID, NO_PRODUCER_EPOCH, Codec.NONE)
        self._batch = memoryview(batch)
        self._covered = self._batch[CRC_START:]
        self._length = len(batch) - LENGTH_PREFIX_BYTES
        self._numbers_at = len(batch) - PLAIN_NUMBERS_BEFORE_END
        self.coordinator = coordinator
        self.image = image
        """The metadata that it was prepared by."""
        self.decide = core.decide
        self.replay = core.replay
        self.answer = [ErrorCode.NONE]
        self.encoded_answer = encoded_answer
        """What a consumer is told, behind the correlation id."""

    def encode(self, offset: int, leader_epoch: int, now_ms: int) -> tuple[memoryview, BatchHeader]:
        batch = self._batch
        _pack_covered(batch, CRC_START, 0, 0, now_ms, now_ms)
        _pack_numbers(batch, self._numbers_at, offset, leader_epoch, _NO_METADATA, now_ms)
        crc = crc32c(self._covered)
        _pack_crc(batch, CRC_START - _CRC_BYTES, crc)
        return batch, _header(
            (0, self._length, -1, MAGIC, crc, 0, 0, now_ms, now_ms, NO_PRODUCER_ID, NO_PRODUCER_EPOCH, NO_SEQUENCE, 1)
        )


class RepeatedCommits:
    """What is known of requests, by version and by what comes before the offset."""

    __slots__ = ("_image", "known")

    def __init__(self) -> None:
        self._image: MetadataImage | None = None
        self.known: dict[tuple[int, bytes], PreparedCommit | None] = {}
        """None for what was seen once."""

    def note(
        self,
        key: tuple[int, bytes],
        coordinator: CoordinatorShard[GroupRecord] | None,
        image: MetadataImage,
        command: CommitOffsets,
        encoded_answer: bytes,
    ) -> None:
        """A command was accepted that commits one offset, without metadata; `encoded_answer` is what was answered."""
        if image is not self._image:
            self._image = image
            self.known.clear()
        if key in self.known:
            self.known[key] = _prepared(coordinator, image, command, command.offsets[0], encoded_answer)
        elif len(key[1]) <= KEY_BYTES_MAX:
            if len(self.known) >= KEYS_MAX:
                self.known.clear()
            self.known[key] = None

    def forget(self) -> None:
        """A coordinator has resigned: let go of it, and of all that it knew."""
        self.known.clear()


def _prepared(
    coordinator: CoordinatorShard[GroupRecord] | None,
    image: MetadataImage,
    command: CommitOffsets,
    offset: NewOffset,
    encoded_answer: bytes,
) -> PreparedCommit | None:
    """None where the records of the group are written in another way."""
    if coordinator is None or coordinator.is_compressed:
        return None
    record = encode_plain_offset(
        OffsetRecord(
            command.group_id, offset.topic, offset.partition, offset.offset, topic_id=offset.topic_id,
            commit_timestamp=NO_TIMESTAMP,
        )
    )  # fmt: skip
    if record is None:
        return None
    core = RepeatedCommit(cast(GroupShard, coordinator.shard).state, command, offset)
    return PreparedCommit(coordinator, image, core, record, encoded_answer)
