"""UnregisterBroker: takes a broker that will not come back out of the metadata."""

from __future__ import annotations

from ottla.wire.schema import Int16, Int32, Message, String


class UnregisterBrokerRequest(Message, api_key=64, versions=(0, 0), flexible_since=0):
    """Names the broker."""

    broker_id: Int32


class UnregisterBrokerResponse(Message, api_key=64, versions=(0, 0), flexible_since=0):
    """Whether it is gone."""

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: String | None = None
