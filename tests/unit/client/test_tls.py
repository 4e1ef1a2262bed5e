"""TLS, with a real broker behind a proxy that takes it off."""

from __future__ import annotations

import contextlib
import select
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import trustme

import ottla
from ottla.client.connection import Connection
from ottla.client.errors import AuthenticationError, CannotConnectError, NotKafkaError, UnsupportedSecurityError
from ottla.client.settings import Address, ClientSettings
from ottla.client.tls import secure
from ottla.wire.messages.metadata import MetadataRequest, MetadataResponse

SECONDS_MAX = 30.0


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture(scope="module")
def trusted(authority: trustme.CA, tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("tls") / "ca.pem"
    authority.cert_pem.write_to_path(str(path))
    return str(path)


def server_context(authority: trustme.CA, host: str = "127.0.0.1", *, wants_key: bool = False) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert(host).configure_cert(context)
    if wants_key:
        authority.configure_trust(context)
        context.verify_mode = ssl.CERT_REQUIRED
    return context


@contextlib.contextmanager
def serving(serve: Callable[[socket.socket], None]) -> Iterator[Address]:
    """Each connection is served in a thread, until the block ends."""
    threads: list[threading.Thread] = []
    connections: list[socket.socket] = []

    def accept() -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            connection.settimeout(SECONDS_MAX)
            connections.append(connection)
            threads.append(threading.Thread(target=served, args=(connection,)))
            threads[-1].start()

    def served(connection: socket.socket) -> None:
        with connection, contextlib.suppress(OSError):
            serve(connection)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        acceptor = threading.Thread(target=accept)
        acceptor.start()
        yield Address("127.0.0.1", listener.getsockname()[1])
        listener.shutdown(socket.SHUT_RDWR)
        acceptor.join(SECONDS_MAX)
    for connection in connections:
        with contextlib.suppress(OSError):
            connection.shutdown(socket.SHUT_RDWR)
    for thread in threads:
        thread.join(SECONDS_MAX)


def forwarding(context: ssl.SSLContext, broker: Address) -> Callable[[socket.socket], None]:
    """Takes TLS off and passes everything on."""

    def serve(connection: socket.socket) -> None:
        with context.wrap_socket(connection, server_side=True) as secured, socket.create_connection(broker) as inner:
            secured.setblocking(False)
            while True:
                select.select([secured, inner], [], [])
                with contextlib.suppress(ssl.SSLWantReadError):
                    while taken := secured.recv(1 << 16):
                        inner.sendall(taken)
                    return
                if select.select([inner], [], [], 0)[0]:
                    answered = inner.recv(1 << 16)
                    if not answered:
                        return
                    secured.settimeout(SECONDS_MAX)
                    secured.sendall(answered)
                    secured.setblocking(False)

    return serve


def settings(address: Address, **options: str) -> ClientSettings:
    given = {"bootstrap.servers": str(address), "security.protocol": "SSL", "retry.backoff.ms": "10"}
    return ClientSettings.from_kafka(given | {key.replace("_", "."): value for key, value in options.items()})


@pytest.fixture(scope="module")
def broker() -> Iterator[Address]:
    with ottla.Server() as server:
        host, _, port = server.bootstrap_servers.rpartition(":")
        yield Address(host, int(port))


@pytest.mark.parametrize("versions", ["TLSv1.2", "TLSv1.3"])
def test_requests_go_through(authority: trustme.CA, trusted: str, broker: Address, versions: str) -> None:
    with serving(forwarding(server_context(authority), broker)) as address:
        given = settings(address, ssl_truststore_location=trusted, ssl_enabled_protocols=versions)
        with Connection.open(address, given) as connection:
            for _ in range(3):
                several = [connection.send(MetadataRequest(topics=None), MetadataResponse) for _ in range(5)]
                assert {len(connection.receive(each).brokers) for each in several} == {1}
                # Tickets of a session, which come when they like, are no reason to give a connection up.
                assert connection.usable()


def test_what_is_there_and_what_is_not(authority: trustme.CA, trusted: str) -> None:
    go_on = threading.Event()

    def serve(connection: socket.socket) -> None:
        with server_context(authority).wrap_socket(connection, server_side=True) as secured:
            secured.sendall(b"0123456789")
            assert go_on.wait(SECONDS_MAX)
            secured.sendall(b"end")

    with serving(serve) as address, socket.create_connection(address, timeout=SECONDS_MAX) as connected:
        tls = settings(address, ssl_truststore_location=trusted).security().tls
        assert tls is not None
        secured = secure(connected, address, tls)
        assert secured.readable(SECONDS_MAX)
        room = memoryview(bytearray(4))
        assert (secured.recv_into(room), bytes(room)) == (4, b"0123")
        assert secured.readable(0)
        rest = memoryview(bytearray(100))
        assert (secured.recv_into(rest), bytes(rest[:6])) == (6, b"456789")
        assert not secured.readable(0)
        go_on.set()
        assert secured.readable(SECONDS_MAX)
        secured.settimeout(SECONDS_MAX)
        assert secured.recv_into(rest) == 3
        assert secured.readable(SECONDS_MAX)
        assert secured.recv_into(rest) == 0
        secured.close()


def test_a_broker_that_wants_a_key_gets_it(authority: trustme.CA, broker: Address, tmp_path: Path) -> None:
    mine = authority.issue_cert("somebody@example.org")
    mine.private_key_and_cert_chain_pem.write_to_path(str(tmp_path / "me.pem"))
    inline = {
        "ssl_keystore_key": mine.private_key_pem.bytes().decode(),
        "ssl_keystore_certificate_chain": "".join(pem.bytes().decode() for pem in mine.cert_chain_pems),
    }
    certificates = authority.cert_pem.bytes().decode()
    with serving(forwarding(server_context(authority, wants_key=True), broker)) as address:
        for key in ({"ssl_keystore_location": str(tmp_path / "me.pem")}, inline):
            with Connection.open(address, settings(address, ssl_truststore_certificates=certificates, **key)) as opened:
                assert opened.api_versions
        with pytest.raises((AuthenticationError, CannotConnectError)):
            Connection.open(address, settings(address, ssl_truststore_certificates=certificates))


def test_whom_nobody_trusts_is_refused(authority: trustme.CA, trusted: str, broker: Address) -> None:
    with serving(forwarding(server_context(trustme.CA()), broker)) as address:
        with pytest.raises(AuthenticationError, match=r"certificate.*ssl\.truststore\.location"):
            Connection.open(address, settings(address, ssl_truststore_location=trusted))
        with pytest.raises(AuthenticationError, match="not accepted"):
            Connection.open(address, settings(address))
    with serving(forwarding(server_context(authority, "elsewhere.example.org"), broker)) as address:
        with pytest.raises(AuthenticationError, match="not accepted"):
            Connection.open(address, settings(address, ssl_truststore_location=trusted))
        unchecked = {"ssl.endpoint.identification.algorithm": ""}
        given = settings(address, ssl_truststore_location=trusted, **unchecked)
        Connection.open(address, given).close()


def test_wrong_ports_are_told(authority: trustme.CA, trusted: str, broker: Address) -> None:
    with pytest.raises((AuthenticationError, CannotConnectError), match="TLS"):
        Connection.open(broker, settings(broker, ssl_truststore_location=trusted))
    with (
        serving(forwarding(server_context(authority), broker)) as address,
        pytest.raises((NotKafkaError, CannotConnectError), match=r"security\.protocol"),
    ):
        Connection.open(address, ClientSettings.of(str(address)))


def test_files_that_are_not_what_they_should_be(tmp_path: Path, broker: Address) -> None:
    (tmp_path / "store.jks").write_bytes(b"\xfe\xed\xfe\xed")
    (tmp_path / "empty.pem").write_text("-----BEGIN CERTIFICATE-----\nx\n-----END CERTIFICATE-----\n")
    for option, name, words in (
        ("ssl_truststore_location", "store.jks", "no PEM file.*keytool"),
        ("ssl_truststore_location", "nowhere", "cannot be read on this machine"),
        ("ssl_truststore_location", "empty.pem", "no certificate can be read"),
        ("ssl_keystore_location", "store.jks", "no PEM file.*openssl"),
        ("ssl_keystore_location", "empty.pem", "the key cannot be read"),
    ):
        with pytest.raises(UnsupportedSecurityError, match=words):
            Connection.open(broker, settings(broker, **{option: str(tmp_path / name)}))


def test_a_broker_that_stays_silent_is_not_waited_for_long() -> None:
    with serving(lambda connection: connection.recv(1 << 16) and connection.recv(1 << 16)) as address:
        given = {"socket.connection.setup.timeout.ms": "200"}
        with pytest.raises(CannotConnectError, match="TLS handshake"):
            Connection.open(address, settings(address, **given))
