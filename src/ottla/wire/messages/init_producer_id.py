"""InitProducerId: gives a producer its id and epoch."""

from __future__ import annotations

from typing import Annotated

from ottla.wire.schema import Int16, Int32, Int64, Message, String, since


class InitProducerIdRequest(Message, api_key=22, versions=(0, 5), flexible_since=2):
    """Asks for an id; a transactional producer names itself, and may name the id and epoch it has."""

    transactional_id: String | None = None
    transaction_timeout_ms: Int32
    producer_id: Annotated[Int64, since(3)] = -1
    producer_epoch: Annotated[Int16, since(3)] = -1


class InitProducerIdResponse(Message, api_key=22, versions=(0, 5), flexible_since=2):
    """The id and the epoch."""

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    producer_id: Int64 = -1
    producer_epoch: Int16 = -1
