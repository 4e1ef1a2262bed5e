"""Bounds that no config moves. A bound that a config moves lives with that config."""

from __future__ import annotations

from typing import Final

REQUEST_HEADER_BYTES_MIN: Final = 8
FRAME_BYTES_UNAUTHENTICATED_MAX: Final = 512 * 1024
"""A first frame longer than this is not a Kafka client's: HTTP's "GET " reads as a length of 1.2 GB."""
IN_FLIGHT_REQUESTS_MAX: Final = 64
"""Answers owed to one connection before it is no longer read."""
HEAVY_ANSWER_WEIGHT: Final = IN_FLIGHT_REQUESTS_MAX // 4
"""An answer that may have very many items counts as so many of those."""
LONG_REQUEST_WEIGHT: Final = IN_FLIGHT_REQUESTS_MAX
"""The answer to a request that is decoded in a thread or waits for logs; nothing else of its connection is begun before
it is there."""
OUTPUT_BYTES_PAUSE: Final = 1 << 20
"""Bytes waiting for one client before it is no longer read."""
RECEIVE_BUFFER_BYTES: Final = 1 << 20
"""One per loop, not per connection."""
LOG_FILES_OPEN_MAX: Final = 4096
"""Files of logs that stay open; fewer where the process may not have twice as many."""
ANSWER_SLICES_MAX: Final = 512
"""Partitions whose records are in one answer to a fetch: each holds a file open until a slow client has taken it."""
TOPIC_NAME_LENGTH_MAX: Final = 249
PARTITIONS_PER_TOPIC_MAX: Final = 100_000
ARRAY_ELEMENTS_MAX: Final = 10_000_000
PRODUCER_BATCHES_REMEMBERED: Final = 5
LOOP_SLICE_MS_MAX: Final = 10
RECORDS_ANSWER_ITEMS_INLINE_MAX: Final = 200
"""Answers with more items than this are encoded in a thread."""
