"""Names that every part shares: identifiers, error codes, limits, configs, chunks of an answer.

Imports nothing from the rest of the package, touches no file, socket or clock.
"""
