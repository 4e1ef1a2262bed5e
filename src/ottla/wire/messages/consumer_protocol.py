"""What consumers tell each other through a classic group: the broker carries it, and reads it only where it has to.

Such a blob begins with its version as two bytes, which are not part of these classes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from ottla.wire.schema import Bytes, Int32, Message, String, ignorable, since


class TopicPartition(Message):
    """Partitions of one topic."""

    topic: String
    partitions: Sequence[Int32]


class ConsumerProtocolSubscription(Message, versions=(0, 3)):
    """What a member wants and what it had: its metadata in JoinGroup."""

    topics: Sequence[String]
    user_data: Bytes | None = None
    owned_partitions: Annotated[Sequence[TopicPartition], since(1), ignorable] = []
    generation_id: Annotated[Int32, since(2), ignorable] = -1
    rack_id: Annotated[String | None, since(3), ignorable] = None


class ConsumerProtocolAssignment(Message, versions=(0, 3)):
    """What a member gets: its assignment in SyncGroup."""

    assigned_partitions: Sequence[TopicPartition]
    user_data: Bytes | None = None
