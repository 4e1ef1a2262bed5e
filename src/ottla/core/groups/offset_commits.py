"""Commits of offsets, in a transaction and outside of one, and what their records do.

Offsets of a group that is not known are accepted from whoever claims no generation: a consumer that assigns its
partitions itself, or a tool. Its group comes into being when the record is replayed, empty and without a protocol.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from ottla.core.coordination import Outcome, Ticket
from ottla.core.groups.classic_group import ClassicGroup
from ottla.core.groups.offset_commands import CommitOffsets, CommitTransactionalOffsets, NewOffset
from ottla.core.groups.offset_deletions import check_outlives_deletions
from ottla.core.groups.records import GroupRecord, OffsetRecord, offset_record
from ottla.core.groups.table import GroupState
from ottla.model.errors import ApiError, ErrorCode
from ottla.model.ids import NO_LEADER_EPOCH, NO_OFFSET, NO_TIMESTAMP, ZERO_UUID

GROUP_NOT_FOUND_SINCE: Final = 9
DEFAULT_RETENTION: Final = -1
GROUP_ID_BYTES_MAX: Final = 32_767
"""A longer one does not fit into the key of a record."""


def commit_offsets(state: GroupState, command: CommitOffsets, ticket: Ticket, now_ms: int) -> Outcome[GroupRecord]:
    """OffsetCommit. A member that commits is alive, as far as classic groups are concerned."""
    epoch = command.generation_id_or_member_epoch
    group = state.groups.get(command.group_id)
    if group is not None:
        group.check_offset_commit(
            command.member_id, command.group_instance_id, epoch, transactional=False, version=command.version
        )
        group.heard_from(command.member_id, now_ms)
    elif epoch >= 0:
        if command.version >= GROUP_NOT_FOUND_SINCE:
            raise ApiError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {command.group_id} not found.")
        raise ApiError(ErrorCode.ILLEGAL_GENERATION, f"group {command.group_id} is not known: join it first")
    retention_ms = command.retention_time_ms
    expire_timestamp = NO_TIMESTAMP if retention_ms == DEFAULT_RETENTION else now_ms + retention_ms
    records, codes = _records(state, command.group_id, command.offsets, now_ms, expire_timestamp)
    return Outcome(records, [(ticket, codes)])


def commit_transactional_offsets(
    state: GroupState, command: CommitTransactionalOffsets, ticket: Ticket, now_ms: int
) -> Outcome[GroupRecord]:
    """TxnOffsetCommit. The offsets take effect when the transaction commits."""
    if command.producer_id < 0 or command.producer_epoch < 0:
        raise ApiError(ErrorCode.INVALID_PRODUCER_ID_MAPPING, "a transaction has a producer id: ask for one first")
    group = state.groups.get(command.group_id)
    if group is not None:
        try:
            group.check_offset_commit(
                command.member_id,
                command.group_instance_id,
                command.generation_id,
                transactional=True,
                version=command.version,
            )
        except ApiError as error:
            if error.code is not ErrorCode.STALE_MEMBER_EPOCH:
                raise
            # Producers know generations only.
            raise ApiError(ErrorCode.ILLEGAL_GENERATION, error.message) from error
    elif command.generation_id >= 0:
        raise ApiError(ErrorCode.ILLEGAL_GENERATION, f"group {command.group_id} is not known: join it first")
    check_outlives_deletions(state, command.group_id, command.offsets)
    records, codes = _records(state, command.group_id, command.offsets, now_ms, NO_TIMESTAMP)
    return Outcome(records, [(ticket, codes)], producer_id=command.producer_id, producer_epoch=command.producer_epoch)


def replay_offset(state: GroupState, record: OffsetRecord, producer_id: int) -> None:
    """An offset is in the log. Kafka knows a group as soon as there is an offset of it, even a pending one."""
    if record[0] not in state.groups and (record[3] != NO_OFFSET or producer_id >= 0):
        state.groups[record[0]] = ClassicGroup(record[0])
    state.offsets.replay(record, producer_id)


def replay_marker(state: GroupState, producer_id: int, *, committed: bool) -> None:
    state.offsets.replay_marker(producer_id, committed=committed)


def _records(
    state: GroupState, group_id: str, offsets: Sequence[NewOffset], now_ms: int, expire_timestamp: int
) -> tuple[list[GroupRecord], list[ErrorCode]]:
    if 4 * len(group_id) > GROUP_ID_BYTES_MAX and len(group_id.encode()) > GROUP_ID_BYTES_MAX:
        raise ApiError(ErrorCode.INVALID_GROUP_ID, f"a group id may have {GROUP_ID_BYTES_MAX} bytes")
    records: list[GroupRecord] = []
    codes: list[ErrorCode] = []
    for topic, topic_id, partition, offset, leader_epoch, metadata in offsets:
        if metadata and _length(metadata) > state.config().offset_metadata_max_bytes:
            codes.append(ErrorCode.OFFSET_METADATA_TOO_LARGE)
            continue
        codes.append(ErrorCode.NONE)
        if expire_timestamp != NO_TIMESTAMP:
            # The format of a record with a time of expiry is older than these.
            leader_epoch, topic_id = NO_LEADER_EPOCH, ZERO_UUID
        records.append(
            offset_record(
                (group_id, topic, partition, offset, leader_epoch, metadata or "", now_ms, expire_timestamp, topic_id)
            )
        )
    return records, codes


def _length(metadata: str) -> int:
    """As Java counts characters, and so Kafka, whatever the name of the config says."""
    return len(metadata) if metadata.isascii() else len(metadata.encode("utf-16-le")) // 2
