"""Deliberate bugs, each of which the simulator must find within a stated number of seeds.

Each is a small change to the real code while it runs: a name, what it breaks, and how many seeds it may take. A bug
that is no longer found means that a checker, the workload or the faults have become blind, not that the bug is
harmless.
"""
