"""SASL: a connection says who it is, right after the versions are known."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING, Final

from ottla.client.errors import AuthenticationError
from ottla.client.scram import ScramClient
from ottla.client.security import Login
from ottla.model.errors import ErrorCode
from ottla.wire.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from ottla.wire.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse

if TYPE_CHECKING:
    from ottla.client.connection import Connection

NONCE_BYTES: Final = 24


def authenticate(connection: Connection, login: Login, timeout_ms: int) -> int:
    """For how many milliseconds the broker believes it; 0 is for good."""
    agreed = connection.call(
        SaslHandshakeRequest(mechanism=login.mechanism), SaslHandshakeResponse, timeout_ms=timeout_ms
    )
    if agreed.error_code != ErrorCode.NONE:
        offered = ", ".join(agreed.mechanisms) or "none"
        raise AuthenticationError(
            f"{connection.address} does not offer {login.mechanism} on that port; it offers: {offered}"
        )

    def say(what: bytes) -> SaslAuthenticateResponse:
        answer = connection.call(
            SaslAuthenticateRequest(auth_bytes=what), SaslAuthenticateResponse, timeout_ms=timeout_ms
        )
        if answer.error_code != ErrorCode.NONE:
            why = answer.error_message or f"error {answer.error_code}"
            raise AuthenticationError(f"{connection.address} does not accept user {login.username!r}: {why}")
        return answer

    if login.mechanism == "PLAIN":
        return say(f"\0{login.username}\0{login.password}".encode()).session_lifetime_ms
    exchange = ScramClient(login.mechanism, login.username, login.password, secrets.token_urlsafe(NONCE_BYTES))
    last = say(exchange.final(say(exchange.first()).auth_bytes))
    exchange.verify(last.auth_bytes)
    return last.session_lifetime_ms
