"""SCRAM, by the examples of its RFCs and by what a false broker could try."""

from __future__ import annotations

import base64
import hashlib

import pytest

from ottla.client.errors import AuthenticationError
from ottla.client.scram import ITERATIONS_MAX, ScramClient

# RFC 7677, section 3
NONCE = "rOprNGfwEbeRWgbNEkqO"
SERVER_FIRST = b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
SERVER_FINAL = b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="


def client(nonce: str = NONCE, username: str = "user") -> ScramClient:
    return ScramClient("SCRAM-SHA-256", username, "pencil", nonce)


def test_the_example_of_the_rfc() -> None:
    exchange = client()
    assert exchange.first() == b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
    assert exchange.final(SERVER_FIRST) == (
        b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
    )
    exchange.verify(SERVER_FINAL)


def test_the_longer_digest() -> None:
    exchange = ScramClient("SCRAM-SHA-512", "user", "pencil", "abc")
    proof = exchange.final(b"r=abcdef,s=c2FsdA==,i=4096").rpartition(b"p=")[2]
    assert len(base64.b64decode(proof)) == hashlib.sha512().digest_size


def test_signs_in_a_name_do_not_become_fields() -> None:
    assert client(username="a=b,c").first() == b"n,,n=a=3Db=2Cc,r=rOprNGfwEbeRWgbNEkqO"


@pytest.mark.parametrize(
    ("said", "words"),
    [
        (SERVER_FIRST.replace(b"rOpr", b"XOpr"), "not for this exchange"),
        (b"r=rOprNGfwEbeRWgbNEkqO,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096", "not for this exchange"),
        (SERVER_FIRST.replace(b"4096", b"4095"), "iterations"),
        (SERVER_FIRST.replace(b"4096", b"%d" % (ITERATIONS_MAX + 1)), "iterations"),
        (SERVER_FIRST.replace(b"4096", b"-1"), "iterations"),
        (SERVER_FIRST.replace(b"W22Z", b"!!!!"), "cannot be read"),
        (b"\xff\xfe", "cannot be read"),
        (b"", "not for this exchange"),
    ],
)
def test_a_broker_that_says_something_else_is_refused(said: bytes, words: str) -> None:
    with pytest.raises(AuthenticationError, match=words):
        client().final(said)


@pytest.mark.parametrize(
    ("said", "words"),
    [
        (SERVER_FINAL.replace(b"6rri", b"7rri"), "does not know the password"),
        (b"", "does not know the password"),
        (b"v=%%", "cannot be read"),
        (b"e=unknown-user", "unknown-user"),
    ],
)
def test_a_broker_that_does_not_know_the_password_is_found_out(said: bytes, words: str) -> None:
    exchange = client()
    exchange.final(SERVER_FIRST)
    with pytest.raises(AuthenticationError, match=words):
        exchange.verify(said)


def test_before_the_exchange_nothing_verifies() -> None:
    with pytest.raises(AuthenticationError):
        client().verify(SERVER_FINAL)
