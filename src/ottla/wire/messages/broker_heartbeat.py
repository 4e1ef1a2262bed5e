"""BrokerHeartbeat: a broker lives, and asks to serve or to stop."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from ottla.wire.schema import Bool, Int16, Int32, Int64, Message, Uuid, since, tag


class BrokerHeartbeatRequest(Message, api_key=63, versions=(0, 1), flexible_since=0):
    """How far the broker is, and what it wants."""

    broker_id: Int32
    broker_epoch: Int64 = -1
    current_metadata_offset: Int64
    want_fence: Bool
    want_shut_down: Bool
    offline_log_dirs: Annotated[Sequence[Uuid], since(1), tag(0)] = []


class BrokerHeartbeatResponse(Message, api_key=63, versions=(0, 1), flexible_since=0):
    """How the controller sees it."""

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    is_caught_up: Bool = False
    is_fenced: Bool = True
    should_shut_down: Bool = False
