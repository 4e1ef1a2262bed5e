"""One file per API: protocol message to question, answer to protocol message and error code.

`table.py` is the one place that says which APIs there are, in which versions, and what they need permission for. A
handler opens with what it supports and where it differs. No sockets here, no files, no decisions that belong to a
core.
"""
