"""AllocateProducerIds: a broker asks for a block of producer ids."""

from __future__ import annotations

from ottla.wire.schema import Int16, Int32, Int64, Message


class AllocateProducerIdsRequest(Message, api_key=67, versions=(0, 0), flexible_since=0):
    """Who asks."""

    broker_id: Int32
    broker_epoch: Int64 = -1


class AllocateProducerIdsResponse(Message, api_key=67, versions=(0, 0), flexible_since=0):
    """The first id of the block, and how many there are."""

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    producer_id_start: Int64 = 0
    producer_id_len: Int32 = 0
