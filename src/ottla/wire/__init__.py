"""Bytes to messages and back: headers, message codecs, the hot codecs (Produce, Fetch, OffsetCommit), record batches.

Imports `ottla.model` alone. Nothing here touches a socket, a file or a clock.
"""
