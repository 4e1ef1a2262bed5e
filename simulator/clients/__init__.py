"""Clients in the simulation: producers, consumers, groups and admins as realistic as finding bugs needs.

They speak through the codecs of `ottla.wire` over the simulated network, refresh metadata, keep sequence numbers over
retries, and write everything that they learn into the history. They know nothing of the brokers' insides.
"""
