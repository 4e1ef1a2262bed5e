"""GetTelemetrySubscriptions: which metrics a client shall push."""

from __future__ import annotations

from collections.abc import Sequence

from ottla.wire.schema import Bool, Int8, Int16, Int32, Message, String, Uuid


class GetTelemetrySubscriptionsRequest(Message, api_key=71, versions=(0, 0), flexible_since=0):
    """Asks on behalf of a client instance; the zero id asks for a new one."""

    client_instance_id: Uuid


class GetTelemetrySubscriptionsResponse(Message, api_key=71, versions=(0, 0), flexible_since=0):
    """What to push, how often and how much at most; no metrics at all when the list is empty."""

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    client_instance_id: Uuid
    subscription_id: Int32
    accepted_compression_types: Sequence[Int8]
    push_interval_ms: Int32
    telemetry_max_bytes: Int32
    delta_temporality: Bool
    requested_metrics: Sequence[String]
