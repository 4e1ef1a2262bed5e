"""SaslHandshake: which way to authenticate a connection."""

from __future__ import annotations

from collections.abc import Sequence

from ottla.wire.schema import Int16, Message, String


class SaslHandshakeRequest(Message, api_key=17, versions=(1, 1)):
    """The mechanism that the client wants."""

    mechanism: String


class SaslHandshakeResponse(Message, api_key=17, versions=(1, 1)):
    """Whether the broker has it, and which it has."""

    error_code: Int16 = 0
    mechanisms: Sequence[String] = []
