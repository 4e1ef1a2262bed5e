"""The metadata quorum's decisions: who leads, what is committed, who votes. Pure Raft, pulled by followers as in KRaft.

Nothing here knows files, sockets or clocks: events and the time go in, effects come out (`effects`). The log is seen
through `LogView`, and its bytes are never looked at.
"""
