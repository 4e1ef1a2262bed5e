"""Performs what cores decide: partitions, appends, fetches, the metadata quorum, chores, the record worker.

Time, threads, files and randomness come from `world.py` alone, so that a simulator can hand in others. What is in
here belongs to the loop, except functions that say `runs in a thread`. No decisions that belong to a core, no
protocol messages but those it stores.
"""
