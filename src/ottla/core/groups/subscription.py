"""Which topics a member of a classic group reads, from the bytes in which consumers say so.

The metadata of a consumer's protocol begins with a version and the topic names in every version there is. What follows
is for the leader and of no interest here.
"""

from __future__ import annotations

from typing import Final

PROTOCOL_TYPE: Final = "consumer"
"""Groups of this protocol type describe their subscriptions in this format."""


def subscribed_topics(metadata: bytes) -> frozenset[str] | None:
    """The topics of a subscription, or None where the bytes are none."""
    count, at = int.from_bytes(metadata[2:6], "big", signed=True), 6
    if len(metadata) < at or not 0 <= count <= (len(metadata) - at) // 2:
        return None
    topics = set()
    for _ in range(count):
        length = int.from_bytes(metadata[at : at + 2], "big", signed=True)
        at += 2 + length
        if length < 0 or at > len(metadata):
            return None
        try:
            topics.add(metadata[at - length : at].decode())
        except UnicodeDecodeError:
            return None
    return frozenset(topics)
