"""What a broker counts about itself: plain integers, added to where things happen and read by whoever reports them.

Everything runs on one loop, so an addition needs no lock. Lists are indexed by API key.
"""

from __future__ import annotations

from typing import Final

API_KEYS_MAX: Final = 128
"""Room for every API key that the protocol has assigned, and then some."""


class Metrics:
    """Counters since start; a name that ends in `_open` goes up and down."""

    __slots__ = (
        "bytes_in",
        "bytes_out",
        "bytes_rejected",
        "cold_reads",
        "connections_accepted",
        "connections_closed_idle",
        "connections_closed_protocol",
        "connections_open",
        "connections_refused",
        "produce_errors",
        "reads_paused",
        "request_errors",
        "requests",
        "requests_unsupported",
    )

    def __init__(self) -> None:
        self.connections_open = 0
        self.connections_accepted = 0
        self.connections_refused = 0
        """Accepted and closed at once: one address held too many."""
        self.connections_closed_idle = 0
        self.connections_closed_protocol = 0
        """Closed because of what the client sent: no frame, no message, an unknown version."""
        self.bytes_in = 0
        self.bytes_out = 0
        self.reads_paused = 0
        """Times a client was no longer read because it was owed too much."""
        self.cold_reads = 0
        """Slices that were not in the page cache and were read by a thread first."""
        self.produce_errors = 0
        """Partitions of produce requests that were refused."""
        self.bytes_rejected = 0
        """Bytes of the batches that were refused."""
        self.requests_unsupported = 0
        self.requests = [0] * API_KEYS_MAX
        self.request_errors = [0] * API_KEYS_MAX
        """Requests that a handler refused as a whole or failed on; errors inside an answer are not counted here."""
