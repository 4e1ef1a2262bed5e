"""SaslAuthenticate: a step of the mechanism that was agreed on."""

from __future__ import annotations

from typing import Annotated

from ottla.wire.schema import Bytes, Int16, Int64, Message, String, ignorable, since


class SaslAuthenticateRequest(Message, api_key=36, versions=(0, 2), flexible_since=2):
    """What the client has to say."""

    auth_bytes: Bytes


class SaslAuthenticateResponse(Message, api_key=36, versions=(0, 2), flexible_since=2):
    """What the broker says to it. A session that ends is over when its lifetime is, unless it is 0."""

    error_code: Int16 = 0
    error_message: String | None = None
    auth_bytes: Bytes = b""
    session_lifetime_ms: Annotated[Int64, since(1), ignorable] = 0
