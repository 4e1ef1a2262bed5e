"""What fits into a record of the internal topic, known before the record is made."""

from __future__ import annotations

from ottla.core.groups.table import GroupState
from ottla.model.ids import CONSUMER_OFFSETS_TOPIC


def record_bytes_max(state: GroupState) -> int:
    """The largest batch that the offsets topic takes; a record is smaller than its batch."""
    own = state.image().topic_configs(CONSUMER_OFFSETS_TOPIC).get("max.message.bytes")
    return int(own) if own is not None else state.config().message_max_bytes
