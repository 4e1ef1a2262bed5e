"""For a process that is about to be in a hurry: what is made at its first use, made now."""

from __future__ import annotations

from typing import Final

from ottla.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from ottla.wire.messages.list_offsets import ListOffsetsRequest, ListOffsetsResponse
from ottla.wire.messages.metadata import MetadataRequest, MetadataResponse
from ottla.wire.schema import Message, decode, encode

ASKED_FIRST: Final[tuple[Message, ...]] = (
    ApiVersionsRequest(),
    ApiVersionsResponse(api_keys=[]),
    MetadataRequest(topics=[]),
    MetadataResponse(brokers=[], topics=[]),
    ListOffsetsRequest(topics=[]),
    ListOffsetsResponse(topics=[]),
)
"""By whoever wants to know where partitions are, and where they end."""


def make_codecs() -> None:
    """In the newest version, which is what two ends that are up to date speak."""
    for message in ASKED_FIRST:
        schema = message.__schema__
        assert schema is not None
        newest = schema.versions[1]
        decode(type(message), encode(message, newest), newest)
