"""TLS for a connection.

Theory of operation. A socket that is readable need not bring data: a broker sends session tickets when it likes, and a
part of a record is no data yet. And data may be there though the socket is not readable, decrypted with what was read
before. So `readable` reads what there is, and keeps it for `recv_into`.
"""

from __future__ import annotations

import os
import socket
import ssl
import tempfile
from typing import Final

from ottla.client.connection import is_readable
from ottla.client.deadline import Deadline
from ottla.client.errors import AuthenticationError, CannotConnectError, UnsupportedSecurityError
from ottla.client.security import Tls, how_to_convert
from ottla.client.settings import Address

RECORD_BYTES_MAX: Final = 16 << 10
_VERSIONS: Final = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}
PEM_BEGIN: Final = b"-----BEGIN "
PEM_LOOK_BYTES: Final = 64 << 10
"""A PEM file may begin with comments of so much."""


class TlsSocket:
    """A socket with the calls that a connection makes."""

    __slots__ = ("_ahead", "_is_ended", "_socket")

    def __init__(self, secured: ssl.SSLSocket) -> None:
        self._socket = secured
        self._ahead = memoryview(b"")
        self._is_ended = False

    def fileno(self) -> int:
        return self._socket.fileno()

    def settimeout(self, seconds: float) -> None:
        self._socket.settimeout(seconds)

    def sendall(self, data: bytes) -> None:
        self._socket.sendall(data)

    def recv_into(self, room: memoryview) -> int:
        if self._ahead:
            taken = min(len(room), len(self._ahead))
            room[:taken] = self._ahead[:taken]
            self._ahead = self._ahead[taken:]
            return taken
        return 0 if self._is_ended else self._socket.recv_into(room)

    def readable(self, wait_seconds: float) -> bool:
        """Whether there is something to receive, be it the end."""
        deadline = Deadline(1000 * wait_seconds)
        while not (self._ahead or self._is_ended):
            if not self._socket.pending() and not is_readable(self._socket, deadline.seconds_left()):
                return False
            self._read_ahead()
        return True

    def close(self) -> None:
        self._socket.close()

    def _read_ahead(self) -> None:
        self._socket.settimeout(0)
        try:
            received = self._socket.recv(RECORD_BYTES_MAX)
        except ssl.SSLWantReadError:
            return  # it was not for us
        except OSError:
            self._is_ended = True  # who receives next is told why
            return
        self._ahead = memoryview(received)
        self._is_ended = not received


def secure(connected: socket.socket, address: Address, tls: Tls) -> TlsSocket:
    """Shake hands on a connected socket, which has its time-out set."""
    context = make_context(tls)
    try:
        return TlsSocket(context.wrap_socket(connected, server_hostname=address.host))
    except ssl.SSLCertVerificationError as error:
        raise AuthenticationError(
            f"the certificate of {address} is not accepted: {error.verify_message.rstrip('.')}; name who to trust with "
            "ssl.truststore.location, a PEM file, or check the address"
        ) from error
    except TimeoutError as error:
        raise CannotConnectError(f"{address} took the connection and did not finish the TLS handshake") from error
    except ssl.SSLEOFError as error:
        raise CannotConnectError(f"{address} closed the connection in the TLS handshake: does it speak TLS?") from error
    except ssl.SSLError as error:
        if error.reason == "WRONG_VERSION_NUMBER":
            why = "it speaks no TLS on that port: use another port, or security.protocol=PLAINTEXT"
        else:
            why = (error.reason or str(error)).replace("_", " ").lower()
        raise AuthenticationError(f"no TLS connection with {address}: {why}") from error
    except OSError as error:
        raise CannotConnectError(f"the TLS handshake with {address} broke off ({error.strerror or error})") from error


def make_context(tls: Tls) -> ssl.SSLContext:
    """Reads the files; what is not PEM is refused with what to do."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version, context.maximum_version = _VERSIONS[tls.oldest], _VERSIONS[tls.newest]
    context.check_hostname = tls.check_host
    try:
        if tls.trusted_file:
            _check_pem("truststore", tls.trusted_file)
            context.load_verify_locations(cafile=tls.trusted_file)
        if tls.trusted:
            context.load_verify_locations(cadata=tls.trusted)
    except ssl.SSLError as error:
        raise UnsupportedSecurityError(f"ssl.truststore: no certificate can be read ({error.reason})") from error
    if not (tls.trusted_file or tls.trusted):
        context.load_default_certs()
    _load_key(context, tls)
    return context


def _load_key(context: ssl.SSLContext, tls: Tls) -> None:
    try:
        if tls.key_file:
            _check_pem("keystore", tls.key_file)
            context.load_cert_chain(tls.key_file, password=tls.key_password)
        elif tls.key:
            # Python reads keys from files alone. This one is for nobody else's eyes, and gone at once.
            with tempfile.TemporaryDirectory(prefix="ottla-") as directory:
                path = os.path.join(directory, "key.pem")
                with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
                    file.write(f"{tls.key}\n{tls.key_chain}\n")
                context.load_cert_chain(path, password=tls.key_password)
    except ssl.SSLError as error:
        raise UnsupportedSecurityError(
            f"ssl.keystore: the key cannot be read ({error.reason or error}): it and its certificates must be PEM, and "
            "ssl.key.password right if it is encrypted"
        ) from error


def _check_pem(store: str, path: str) -> None:
    try:
        with open(path, "rb") as file:
            head = file.read(PEM_LOOK_BYTES)
    except OSError as error:
        raise UnsupportedSecurityError(
            f"ssl.{store}.location: {path} cannot be read on this machine ({error.strerror})"
        ) from error
    if PEM_BEGIN not in head:
        raise UnsupportedSecurityError(f"ssl.{store}.location: {path} is no PEM file; {how_to_convert(store)}")
