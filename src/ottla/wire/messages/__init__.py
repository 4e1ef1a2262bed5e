"""The protocol's messages, one module per api: its request, its response, and the structs inside them.

Only declarations live here. Fields and structs have Kafka's names, fields in snake case; durations and timestamps are
in milliseconds. Produce and Fetch are not here: they have codecs of their own beside this package.

Nothing is imported here, so that importing one api does not import all.
"""
