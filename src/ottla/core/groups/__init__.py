"""Consumer groups, their members and their offsets, as state machines.

Lives here: one shard per partition of `__consumer_offsets`: classic groups, consumer groups (KIP-848), committed
offsets, the assignors of the server. May not: know bytes, files, sockets, clocks or asyncio.
"""
