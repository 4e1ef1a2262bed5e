"""Identifiers and the offsets that carry a meaning of their own."""

from __future__ import annotations

import base64
from collections.abc import Callable
from typing import Final, NamedTuple
from uuid import UUID

ZERO_UUID: Final = UUID(int=0)
"""What the protocol sends where there is no id."""

NO_PRODUCER_ID: Final = -1
NO_PRODUCER_EPOCH: Final = -1
NO_SEQUENCE: Final = -1
NO_TIMESTAMP: Final = -1
NO_OFFSET: Final = -1
NO_LEADER_EPOCH: Final = -1
AUTHORIZED_OPERATIONS_OMITTED: Final = -(1 << 31)
"""Sent where a client did not ask what it may do."""

CLUSTER_FILE: Final = "cluster.properties"
"""Lies where several brokers of one machine have their directories, and nowhere else."""
METADATA_TOPIC: Final = "__cluster_metadata"
METADATA_TOPIC_ID: Final = UUID(int=1)
CONSUMER_OFFSETS_TOPIC: Final = "__consumer_offsets"
TRANSACTION_STATE_TOPIC: Final = "__transaction_state"
SHARE_GROUP_STATE_TOPIC: Final = "__share_group_state"
INTERNAL_TOPICS: Final = frozenset({CONSUMER_OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC, SHARE_GROUP_STATE_TOPIC})
"""Topics that brokers write to themselves: clients may read them, and see that they are internal."""


class TopicPartition(NamedTuple):
    """One partition of one topic, by name."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


def uuid_to_base64(value: UUID) -> str:
    """Kafka's spelling of an id: URL-safe base64 without padding."""
    return base64.urlsafe_b64encode(value.bytes).rstrip(b"=").decode()


def spellable(draw: Callable[[], UUID]) -> UUID:
    """The first id drawn that does not begin with a dash in base64, as in Kafka: any command takes it for no option."""
    while uuid_to_base64(found := draw()).startswith("-"):
        pass
    return found


def uuid_from_base64(text: str) -> UUID:
    """The inverse of `uuid_to_base64`; raises ValueError on anything else."""
    raw = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
    if len(raw) != 16:
        raise ValueError(f"{text!r} is not a 16 byte id in base64")
    return UUID(bytes=raw)
