"""What a user would lose: answers that belong to their requests, and a reason when there is no answer."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from ottla.cli.free_ports import free_port
from ottla.client.connection import IN_FLIGHT_MAX, Connection
from ottla.client.errors import (
    CannotConnectError,
    ConnectionLostError,
    MalformedAnswerError,
    NotKafkaError,
    RequestTimeoutError,
    UnsupportedSecurityError,
    UnsupportedVersionError,
)
from ottla.client.settings import Address, ClientSettings
from ottla.model.errors import ErrorCode
from ottla.wire.messages.create_topics import CreateTopicsRequest, CreateTopicsResponse
from ottla.wire.messages.metadata import MetadataRequest, MetadataResponse
from tests.unit.client.scripted_broker import API_VERSIONS, METADATA, NODE_ID, ScriptedBroker

QUICK = ClientSettings(connect_timeout_ms=300, request_timeout_ms=300)
NO_TOPICS = MetadataRequest(topics=[])


def open_to(broker: ScriptedBroker, **changes: int) -> Connection:
    settings = broker.settings(**changes)
    return Connection.open(settings.bootstrap[0], settings)


@contextmanager
def raw_server(converse: Callable[[socket.socket], None]) -> Iterator[Address]:
    """Something that is no broker."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            with contextlib.suppress(OSError):
                connection, _ = listener.accept()
                with connection:
                    converse(connection)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield Address("127.0.0.1", listener.getsockname()[1])
        with contextlib.suppress(OSError):
            listener.shutdown(socket.SHUT_RDWR)
        thread.join(5)


def test_a_request_gets_its_answer() -> None:
    with ScriptedBroker() as broker, open_to(broker) as connection:
        answer = connection.call(NO_TOPICS, MetadataResponse)
        assert [node.node_id for node in answer.brokers] == [NODE_ID]


def test_requests_overlap_and_answers_may_be_taken_in_any_order() -> None:
    with ScriptedBroker() as broker, open_to(broker) as connection:
        pending = [connection.send(NO_TOPICS, MetadataResponse) for _ in range(5)]
        assert connection.in_flight == 5
        for index in (3, 0, 4, 1, 2):
            assert connection.receive(pending[index]).controller_id == NODE_ID
        assert connection.in_flight == 0


def test_an_older_broker_is_spoken_to_in_its_own_version() -> None:
    with ScriptedBroker() as broker:
        modern = broker.answers[API_VERSIONS]

        def old(version: int, frame: memoryview, position: int) -> bytes | None:
            if version > 2:
                refusal = modern(0, frame, position)
                return ErrorCode.UNSUPPORTED_VERSION.to_bytes(2, "big") + (refusal or b"")[2:]
            return modern(version, frame, position)

        broker.answers[API_VERSIONS] = old
        broker.offered = {API_VERSIONS: (0, 2), METADATA: (0, 5)}
        with open_to(broker) as connection:
            assert connection.version_of(MetadataRequest) == 5
            assert connection.call(NO_TOPICS, MetadataResponse).controller_id == NODE_ID


def test_an_api_that_the_broker_lacks_is_named() -> None:
    with ScriptedBroker() as broker, open_to(broker) as connection:
        request = CreateTopicsRequest(topics=[], timeout_ms=1)
        with pytest.raises(UnsupportedVersionError, match=f"{connection.address} does not support CreateTopics"):
            connection.call(request, CreateTopicsResponse)


def test_versions_that_do_not_overlap_are_named() -> None:
    with ScriptedBroker() as broker:
        broker.offered[METADATA] = (90, 99)
        with open_to(broker) as connection, pytest.raises(UnsupportedVersionError, match="90 to 99"):
            connection.call(NO_TOPICS, MetadataResponse)


def test_a_broker_that_never_answers_is_given_up_and_the_connection_is_not_used_again() -> None:
    with ScriptedBroker() as broker:
        silent = threading.Event()

        def wait(version: int, frame: memoryview, position: int) -> bytes | None:
            silent.wait(5)
            return None

        broker.answers[METADATA] = wait
        with open_to(broker, request_timeout_ms=100) as connection:
            with pytest.raises(RequestTimeoutError, match=str(broker.port)):
                connection.call(NO_TOPICS, MetadataResponse)
            assert not connection.usable()
            with pytest.raises(RequestTimeoutError):
                connection.call(NO_TOPICS, MetadataResponse)
        silent.set()


def test_an_overdue_answer_is_noticed_by_those_who_wait_for_several_connections() -> None:
    with ScriptedBroker() as broker:
        silent = threading.Event()

        def wait(version: int, frame: memoryview, position: int) -> bytes | None:
            silent.wait(5)
            return None

        broker.answers[METADATA] = wait
        with open_to(broker, request_timeout_ms=50) as connection:
            pending = connection.send(NO_TOPICS, MetadataResponse)
            while not connection.answered(pending, wait_ms=20):
                pass
            with pytest.raises(RequestTimeoutError):
                connection.receive(pending)
        silent.set()


def test_a_lost_connection_is_an_error_for_everything_that_was_owed() -> None:
    with ScriptedBroker() as broker:
        broker.answers[METADATA] = lambda version, frame, position: None
        with open_to(broker) as connection:
            first = connection.send(NO_TOPICS, MetadataResponse)
            for _ in range(2):
                with pytest.raises(ConnectionLostError, match=str(broker.port)):
                    connection.receive(first)


def test_a_connection_that_the_broker_closed_while_idle_is_noticed() -> None:
    broker = ScriptedBroker()
    with broker:
        connection = open_to(broker)
        assert connection.usable()
    assert not connection.usable()
    connection.close()


def test_an_answer_to_another_request_is_refused() -> None:
    def confuse(connection: socket.socket) -> None:
        connection.recv(1000)
        body = (99).to_bytes(4, "big") + b"\0" * 10
        connection.sendall(len(body).to_bytes(4, "big") + body)

    with raw_server(confuse) as address, pytest.raises(MalformedAnswerError, match="request 99"):
        Connection.open(address, QUICK)


def test_an_answer_that_cannot_be_read_is_refused() -> None:
    with ScriptedBroker() as broker:
        broker.answers[METADATA] = lambda version, frame, position: b"\xff" * 7
        with open_to(broker) as connection, pytest.raises(MalformedAnswerError, match="could not be read"):
            connection.call(NO_TOPICS, MetadataResponse)


def test_an_answer_that_announces_too_much_is_refused_before_anything_is_allocated() -> None:
    def boast(connection: socket.socket) -> None:
        connection.recv(1000)
        connection.sendall((2**31 - 1).to_bytes(4, "big"))

    with raw_server(boast) as address, pytest.raises(NotKafkaError, match=str(address)):
        Connection.open(address, QUICK)


@pytest.mark.parametrize(
    ("greeting", "named"),
    [
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "HTTP"),
        (b"\x15\x03\x01\x00\x02\x02\x46", "TLS"),
        (b"SSH-2.0", "not Kafka"),
    ],
)
def test_another_protocol_is_named(greeting: bytes, named: str) -> None:
    def greet(connection: socket.socket) -> None:
        connection.recv(1000)
        connection.sendall(greeting)

    with raw_server(greet) as address, pytest.raises(NotKafkaError, match=named):
        Connection.open(address, QUICK)


def test_a_port_that_hangs_up_is_no_broker() -> None:
    with raw_server(lambda connection: None) as address, pytest.raises(CannotConnectError, match=r"security\.protocol"):
        Connection.open(address, QUICK)


def test_a_port_that_keeps_silent_cannot_be_used() -> None:
    hold = threading.Event()

    def keep_silent(connection: socket.socket) -> None:
        hold.wait(5)

    with raw_server(keep_silent) as address:
        with pytest.raises(CannotConnectError, match="said nothing"):
            Connection.open(address, QUICK)
        hold.set()


def test_nothing_listens_says_what_to_start() -> None:
    with pytest.raises(CannotConnectError, match="ottla serve"):
        Connection.open(Address("127.0.0.1", free_port()), QUICK)


def test_a_name_that_nobody_knows_is_named() -> None:
    with pytest.raises(CannotConnectError, match=r"nowhere\.invalid"):
        Connection.open(Address("nowhere.invalid", 9092), QUICK)


def test_no_byte_is_sent_where_security_is_asked_for() -> None:
    secure = ClientSettings(security_protocol="SASL_SSL")
    with pytest.raises(UnsupportedSecurityError):
        Connection.open(Address("127.0.0.1", 1), secure)


def test_too_many_requests_under_way_is_the_callers_mistake() -> None:
    with ScriptedBroker() as broker, open_to(broker) as connection:
        for _ in range(IN_FLIGHT_MAX):
            connection.send(NO_TOPICS, MetadataResponse)
        with pytest.raises(ValueError, match="under way"):
            connection.send(NO_TOPICS, MetadataResponse)


def test_the_broker_sees_who_is_asking() -> None:
    with ScriptedBroker() as broker:
        seen: list[bytes] = []
        answer = broker.answers[API_VERSIONS]

        def look(version: int, frame: memoryview, position: int) -> bytes | None:
            seen.append(bytes(frame))
            return answer(version, frame, position)

        broker.answers[API_VERSIONS] = look
        open_to(broker).close()
        assert b"ottla" in seen[0]
