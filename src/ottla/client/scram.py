"""SCRAM (RFC 5802, RFC 7677): proves a password without sending it, and that the broker knows it too."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
from typing import Final

from ottla.client.errors import AuthenticationError

ITERATIONS_MIN: Final = 4096
ITERATIONS_MAX: Final = 1_000_000
"""Each iteration costs time, and a broker that is not one could ask for days of it."""
_DIGESTS: Final = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}


class ScramClient:
    """One exchange: `first`, then `final` with what the broker said to that, then `verify`."""

    def __init__(self, mechanism: str, username: str, password: str, nonce: str) -> None:
        self._digest = _DIGESTS[mechanism]
        self._password = password.encode()
        self._nonce = nonce
        name = username.replace("=", "=3D").replace(",", "=2C")
        self._first_bare = f"n={name},r={nonce}"
        self._server_signature = b""

    def first(self) -> bytes:
        return f"n,,{self._first_bare}".encode()

    def final(self, server_first: bytes) -> bytes:
        said = _fields(server_first)
        nonce, salt, iterations = said.get("r", ""), _decoded(said.get("s", "")), said.get("i", "")
        if not nonce.startswith(self._nonce) or nonce == self._nonce:
            raise AuthenticationError("the broker's answer to SCRAM is not for this exchange")
        if not iterations.isdecimal() or not ITERATIONS_MIN <= int(iterations) <= ITERATIONS_MAX:
            raise AuthenticationError(
                f"the broker asks for {iterations[:20]!r} iterations of SCRAM; this client does {ITERATIONS_MIN} to "
                f"{ITERATIONS_MAX}"
            )
        salted = hashlib.pbkdf2_hmac(self._digest, self._password, salt, int(iterations))
        client_key = self._hmac(salted, b"Client Key")
        stored_key = hashlib.new(self._digest, client_key).digest()
        without_proof = f"c=biws,r={nonce}"
        signed = b",".join((self._first_bare.encode(), server_first, without_proof.encode()))
        proof = bytes(a ^ b for a, b in zip(client_key, self._hmac(stored_key, signed), strict=True))
        self._server_signature = self._hmac(self._hmac(salted, b"Server Key"), signed)
        return f"{without_proof},p={base64.b64encode(proof).decode()}".encode()

    def verify(self, server_final: bytes) -> None:
        """AuthenticationError unless the broker knows the password too."""
        said = _fields(server_final)
        if "e" in said:
            raise AuthenticationError(f"the broker refuses: {said['e'][:200]}")
        if not hmac.compare_digest(_decoded(said.get("v", "")), self._server_signature):
            raise AuthenticationError("the broker does not know the password: is it the one it should be?")

    def _hmac(self, key: bytes, message: bytes) -> bytes:
        return hmac.digest(key, message, self._digest)


def _fields(message: bytes) -> dict[str, str]:
    try:
        parts = message.decode().split(",")
    except UnicodeDecodeError as error:
        raise AuthenticationError("the broker's answer to SCRAM cannot be read") from error
    return {name: value for name, _, value in (part.partition("=") for part in parts)}


def _decoded(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise AuthenticationError("the broker's answer to SCRAM cannot be read") from error
