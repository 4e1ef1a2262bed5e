"""AddOffsetsToTxn: a group whose offsets a transaction is about to commit."""

from __future__ import annotations

from ottla.wire.schema import Int16, Int32, Int64, Message, String


class AddOffsetsToTxnRequest(Message, api_key=25, versions=(0, 4), flexible_since=3):
    """Names the transaction and the group."""

    transactional_id: String
    producer_id: Int64
    producer_epoch: Int16
    group_id: String


class AddOffsetsToTxnResponse(Message, api_key=25, versions=(0, 4), flexible_since=3):
    """Whether it was added."""

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
