"""What went through a topic since the broker started."""

from __future__ import annotations


class TopicCounters:
    """Plain integers, read by the metrics page."""

    __slots__ = ("bytes_in", "bytes_out", "bytes_rejected", "fetch_requests", "messages_in", "produce_requests")

    def __init__(self) -> None:
        self.messages_in = 0
        self.bytes_in = 0
        self.bytes_out = 0
        self.bytes_rejected = 0
        self.produce_requests = 0
        self.fetch_requests = 0
