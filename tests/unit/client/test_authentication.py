"""SASL with a broker that says what a test wants."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Iterator

import pytest

from ottla.client.connection import Connection
from ottla.client.errors import AuthenticationError, UnsupportedVersionError
from ottla.client.settings import Address, ClientSettings
from ottla.model.errors import ErrorCode
from ottla.wire.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from ottla.wire.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from ottla.wire.schema import decode, encode
from tests.unit.client.scripted_broker import API_VERSIONS, ScriptedBroker

HANDSHAKE, AUTHENTICATE = 17, 36


class AskingBroker(ScriptedBroker):
    """Lets in whoever knows the password."""

    def __init__(self) -> None:
        super().__init__()
        self.offered |= {HANDSHAKE: (1, 1), AUTHENTICATE: (0, 2)}
        self.answers |= {HANDSHAKE: self.handshake, AUTHENTICATE: self.authenticate}
        self.mechanisms = ["PLAIN"]
        self.lifetime_ms = 0
        self.said: list[bytes] = []

    def handshake(self, version: int, frame: memoryview, position: int) -> bytes:
        wanted = decode(SaslHandshakeRequest, frame[position:], version).mechanism
        error = ErrorCode.NONE if wanted in self.mechanisms else ErrorCode.UNSUPPORTED_SASL_MECHANISM
        return encode(SaslHandshakeResponse(error_code=error, mechanisms=self.mechanisms), version)

    def authenticate(self, version: int, frame: memoryview, position: int) -> bytes:
        self.said.append(decode(SaslAuthenticateRequest, frame[position:], version).auth_bytes)
        if self.said[-1].endswith(b"\0pencil"):
            return encode(SaslAuthenticateResponse(session_lifetime_ms=self.lifetime_ms), version)
        failed = ErrorCode.SASL_AUTHENTICATION_FAILED
        return encode(SaslAuthenticateResponse(error_code=failed, error_message="wrong password"), version)

    def login(self, password: str = "pencil", mechanism: str = "PLAIN") -> ClientSettings:
        given = (("sasl.mechanism", mechanism), ("sasl.username", "alice"), ("sasl.password", password))
        return dataclasses.replace(self.settings(), security_protocol="SASL_PLAINTEXT", security_options=given)

    def open(self, settings: ClientSettings) -> Connection:
        return Connection.open(Address("127.0.0.1", self.port), settings)


@pytest.fixture
def broker() -> Iterator[AskingBroker]:
    with AskingBroker() as asking:
        yield asking


def test_the_login_comes_before_everything_else(broker: AskingBroker) -> None:
    with broker.open(broker.login()) as connection:
        assert connection.usable()
    assert broker.served == [API_VERSIONS, HANDSHAKE, AUTHENTICATE]
    assert broker.said == [b"\0alice\0pencil"]


def test_a_wrong_password_is_told_once_and_not_tried_again(broker: AskingBroker) -> None:
    with pytest.raises(
        AuthenticationError, match=r"127.0.0.1:\d+ does not accept user 'alice': wrong password"
    ) as failed:
        broker.open(broker.login("pen"))
    assert not failed.value.retriable
    assert broker.served == [API_VERSIONS, HANDSHAKE, AUTHENTICATE]


def test_a_mechanism_that_is_not_offered(broker: AskingBroker) -> None:
    broker.mechanisms = ["SCRAM-SHA-256", "OAUTHBEARER"]
    with pytest.raises(AuthenticationError, match="does not offer PLAIN on that port; it offers: SCRAM-SHA-256, OAUTH"):
        broker.open(broker.login())
    assert broker.said == []


def test_a_port_without_logins(broker: AskingBroker) -> None:
    del broker.offered[HANDSHAKE]
    with pytest.raises(UnsupportedVersionError, match="SaslHandshake"):
        broker.open(broker.login())


def test_a_broker_that_does_not_prove_itself_is_not_believed(broker: AskingBroker) -> None:
    broker.mechanisms = ["SCRAM-SHA-512"]
    broker.answers[AUTHENTICATE] = lambda version, frame, position: encode(SaslAuthenticateResponse(), version)
    with pytest.raises(AuthenticationError, match="not for this exchange"):
        broker.open(broker.login(mechanism="SCRAM-SHA-512"))


def test_a_session_that_is_nearly_over_is_not_used_again(broker: AskingBroker) -> None:
    broker.lifetime_ms = 200
    with broker.open(broker.login()) as connection:
        assert connection.usable()
        deadline = time.monotonic() + 30
        while connection.usable():
            assert time.monotonic() < deadline
            time.sleep(0.01)
