"""Kafka's keys of security: what they mean, and that what cannot be honoured is refused."""

from __future__ import annotations

import pytest

from ottla.client.errors import UnsupportedSecurityError
from ottla.client.security import Login, Security, Tls, read_security

PLAIN_MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"


def jaas(options: str) -> dict[str, str]:
    return {"sasl.mechanism": "PLAIN", "sasl.jaas.config": f"{PLAIN_MODULE} required {options};"}


def test_plaintext_looks_at_nothing_else() -> None:
    assert read_security("PLAINTEXT", {"sasl.mechanism": "GSSAPI", "ssl.provider": "x"}) == Security()


def test_tls_by_itself_trusts_whom_the_system_trusts_and_checks_the_name() -> None:
    assert read_security("SSL", {}) == Security(tls=Tls())
    assert Tls().check_host
    assert (Tls().oldest, Tls().newest) == ("TLSv1.2", "TLSv1.3")


def test_every_key_of_tls_has_its_place() -> None:
    given = {
        "ssl.truststore.location": "/ca.pem",
        "ssl.truststore.type": "pem",
        "ssl.truststore.certificates": "CA",
        "ssl.keystore.location": "/me.pem",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.key": "KEY",
        "ssl.keystore.certificate.chain": "CHAIN",
        "ssl.key.password": "hush",
        "ssl.endpoint.identification.algorithm": "",
        "ssl.enabled.protocols": "TLSv1.3",
        "ssl.protocol": "TLS",
    }
    tls = Tls("/ca.pem", "CA", "/me.pem", "KEY", "CHAIN", "hush", check_host=False, oldest="TLSv1.3", newest="TLSv1.3")
    assert read_security("SSL", given) == Security(tls=tls)
    assert read_security("SASL_SSL", given | jaas("username=u password=p")).tls == tls
    assert "hush" not in repr(tls)
    assert "KEY" not in repr(tls)


def test_the_password_of_the_store_serves_for_the_key() -> None:
    tls = read_security("SSL", {"ssl.keystore.password": "hush"}).tls
    assert tls is not None
    assert tls.key_password == "hush"


@pytest.mark.parametrize(
    ("given", "oldest", "newest"),
    [
        ({"ssl.protocol": "TLSv1.2"}, "TLSv1.2", "TLSv1.2"),
        ({"ssl.protocol": "TLSv1.3"}, "TLSv1.2", "TLSv1.3"),
        ({"ssl.enabled.protocols": "TLSv1.3, TLSv1.2"}, "TLSv1.2", "TLSv1.3"),
        ({"ssl.enabled.protocols": "TLSv1.2"}, "TLSv1.2", "TLSv1.2"),
    ],
)
def test_versions_of_tls(given: dict[str, str], oldest: str, newest: str) -> None:
    tls = read_security("SSL", given).tls
    assert tls is not None
    assert (tls.oldest, tls.newest) == (oldest, newest)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"ssl.truststore.type": "JKS"}, r"ssl\.truststore\.type.*keytool"),
        ({"ssl.keystore.type": "PKCS12"}, r"ssl\.keystore\.type.*openssl"),
        ({"ssl.cipher.suites": "x"}, r"ssl\.cipher\.suites"),
        ({"ssl.ca.location": "/ca.pem"}, r"ssl\.ca\.location"),
        ({"ssl.enabled.protocols": "SSLv3"}, "SSLv3 is not among"),
        ({"ssl.enabled.protocols": " "}, "no version of TLS is left"),
        ({"ssl.enabled.protocols": "TLSv1.3", "ssl.protocol": "TLSv1.2"}, "no version of TLS is left"),
        ({"ssl.protocol": "TLSv1"}, "TLSv1 is not among"),
        ({"ssl.endpoint.identification.algorithm": "ldaps"}, "neither https nor empty"),
    ],
)
def test_tls_that_cannot_be_had_is_refused(given: dict[str, str], words: str) -> None:
    with pytest.raises(UnsupportedSecurityError, match=words):
        read_security("SSL", given)


@pytest.mark.parametrize(
    ("options", "username", "password"),
    [
        ('username="alice" password="a b=c;d"', "alice", "a b=c;d"),
        (r'username="alice" password="say \"hi\" \\ "', "alice", 'say "hi" \\ '),
        ("username='alice'\n  password='x'  serviceName=kafka", "alice", "x"),
        ("username=alice password=", "", None),
        ("password=p username=alice", "alice", "p"),
    ],
)
def test_logins_as_java_writes_them(options: str, username: str, password: str | None) -> None:
    if password is None:
        with pytest.raises(UnsupportedSecurityError, match="cannot be read"):
            read_security("SASL_PLAINTEXT", jaas(options))
        return
    login = read_security("SASL_PLAINTEXT", jaas(options)).login
    assert login == Login("PLAIN", username, password)
    assert password not in repr(login)


def test_logins_as_librdkafka_writes_them() -> None:
    given = {"sasl.mechanism": "scram-sha-512", "sasl.username": "alice", "sasl.password": "p"}
    assert read_security("SASL_SSL", given) == Security(Tls(), Login("SCRAM-SHA-512", "alice", "p"))


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({}, "GSSAPI, Kafka's default, is not spoken"),
        ({"sasl.mechanism": "OAUTHBEARER"}, "OAUTHBEARER is not spoken"),
        ({"sasl.mechanism": "PLAIN"}, "username or password is missing"),
        (jaas('username="u"'), "username or password is missing"),
        ({**jaas("username=u password=p"), "sasl.kerberos.service.name": "kafka"}, r"sasl\.kerberos\.service\.name"),
        ({"sasl.mechanism": "PLAIN", "sasl.jaas.config": 'X required username="u" password="hush"'}, "semicolon"),
        ({"sasl.mechanism": "PLAIN", "sasl.jaas.config": 'X username="u" password="hush";'}, "cannot be read"),
    ],
)
def test_logins_that_cannot_be_had_are_refused(given: dict[str, str], words: str) -> None:
    with pytest.raises(UnsupportedSecurityError, match=words) as caught:
        read_security("SASL_SSL", given)
    assert "hush" not in str(caught.value)
