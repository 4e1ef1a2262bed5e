"""Bytes to messages and back: headers, message codecs, the hot codecs of Produce and Fetch, record batches.

Imports `ottla.model` alone. Nothing here touches a socket, a file or a clock.
"""
