"""EndTxn: commits or aborts a transaction."""

from __future__ import annotations

from typing import Annotated

from ottla.wire.schema import Bool, Int16, Int32, Int64, Message, String, ignorable, since


class EndTxnRequest(Message, api_key=26, versions=(0, 5), flexible_since=3):
    """Names the transaction and says which end it takes."""

    transactional_id: String
    producer_id: Int64
    producer_epoch: Int16
    committed: Bool


class EndTxnResponse(Message, api_key=26, versions=(0, 5), flexible_since=3):
    """Whether it ended; from version 5 on with the id and epoch for the next transaction."""

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    producer_id: Annotated[Int64, since(5), ignorable] = -1
    producer_epoch: Annotated[Int16, since(5), ignorable] = -1
