"""Envelope: a request of a client that one node hands on to another, with who had sent it."""

from __future__ import annotations

from ottla.wire.schema import Bool, Bytes, Int16, Message, String


class EnvelopeRequest(Message, api_key=58, versions=(0, 0), flexible_since=0):
    """The client's request with its header; null for a principal means that there is none."""

    request_data: Bytes
    request_principal: Bytes | None
    client_host_address: Bytes


class EnvelopeResponse(Message, api_key=58, versions=(0, 0), flexible_since=0):
    """The answer with its header, or why there is none."""

    response_data: Bytes | None = None
    error_code: Int16 = 0


class DefaultPrincipalData(Message, versions=(0, 0), flexible_since=0):
    """A principal in an envelope, behind two bytes of version."""

    type: String
    name: String
    token_authenticated: Bool = False
