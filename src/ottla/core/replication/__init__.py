"""Replication of partitions, decided: what a leader may commit and whom it counts, what a follower does next.

May not: know bytes, files, sockets, clocks or asyncio.
"""
