"""Transactions of producers, as state machines.

Lives here: one shard per partition of `__transaction_state`: who a transactional id belongs to, what its transaction
has touched, and how it ends. May not: know bytes, files, sockets, clocks or asyncio.
"""
