"""The log on disk: segments, indexes, producer state, leader epochs, recovery, retention, compaction.

Kafka's own layout, so that Kafka's tools read it. Synchronous, without a clock and without asyncio: time comes in as an
argument, files come through `disk`, and whoever calls decides what runs on the loop and what in a thread.
"""
