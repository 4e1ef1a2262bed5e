"""The kinds of coordinators there are: which topic, which state machine, which codec, which configs."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final, cast
from uuid import UUID

from ottla.core.coordination import Outcome, Shard
from ottla.core.groups import shard as groups
from ottla.core.groups.records import GroupRecord
from ottla.core.groups.shard import GroupShard
from ottla.core.transactions import shard as transactions
from ottla.core.transactions.records import TransactionRecord
from ottla.core.transactions.shard import TransactionShard
from ottla.model.ids import CONSUMER_OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC
from ottla.runtime import group_codec, transaction_codec
from ottla.runtime.coordinators import CoordinatorKind
from ottla.runtime.offset_loading import OffsetLoading

if TYPE_CHECKING:
    from ottla.core.controller.image import ImageDelta, MetadataImage
    from ottla.model.configs.resolve import BrokerConfig

TRANSACTION_KEY: Final = b"\x00\x00"
"""How the keys of transactional ids begin: with their type."""


def group_kind(
    config: Callable[[], BrokerConfig], image: Callable[[], MetadataImage], new_uuid: Callable[[], UUID]
) -> CoordinatorKind[GroupRecord]:
    return CoordinatorKind(
        topic=CONSUMER_OFFSETS_TOPIC,
        new_shard=lambda: GroupShard(config, image, new_uuid),
        encode=group_codec.encode,
        encode_alone=group_codec.encode_alone,
        decode=group_codec.decode,
        partitions_default=lambda found: found.offsets_topic_num_partitions,
        commit_timeout_ms=lambda found: found.offsets_commit_timeout_ms,
        load_buffer_bytes=lambda found: found.offsets_load_buffer_size,
        checks=groups.CHECKS,
        codec=lambda found: found.offsets_topic_compression_codec,
        quick_replay=lambda shard: OffsetLoading(cast(GroupShard, shard)),
        metadata_changed=_tell_groups,
    )


def _tell_groups(shard: Shard[GroupRecord], delta: ImageDelta, now_ms: int) -> Outcome[GroupRecord]:
    return cast(GroupShard, shard).metadata_changed(delta, now_ms)


def transaction_kind(
    config: Callable[[], BrokerConfig], transaction_version: Callable[[], int]
) -> CoordinatorKind[TransactionRecord]:
    """A transaction's records wait for their replicas as long as offsets do: Kafka has one default for both."""

    def encode(record: TransactionRecord) -> tuple[bytes, bytes | None]:
        return transaction_codec.encode(record, min(transaction_version(), transaction_codec.VERSION_WITH_HISTORY))

    return CoordinatorKind(
        topic=TRANSACTION_STATE_TOPIC,
        new_shard=lambda: TransactionShard(config, transaction_version),
        encode=encode,
        decode=transaction_codec.decode,
        partitions_default=lambda found: found.transaction_state_log_num_partitions,
        commit_timeout_ms=lambda found: found.offsets_commit_timeout_ms,
        load_buffer_bytes=lambda found: found.transaction_state_log_load_buffer_size,
        checks=transactions.CHECKS,
        replaceable=TRANSACTION_KEY,
    )
