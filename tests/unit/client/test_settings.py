"""Settings travel from a driver to its executors, and say what they do not understand."""

from __future__ import annotations

import pickle

import pytest

from ottla.client.errors import UnsupportedSecurityError
from ottla.client.security import Security
from ottla.client.settings import Address, ClientSettings, parse_address, parse_bootstrap
from ottla.model.errors import ConfigError


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("kafka:9093", Address("kafka", 9093)),
        ("kafka", Address("kafka", 9092)),
        (" 10.0.0.1:1 ", Address("10.0.0.1", 1)),
        ("[::1]:9095", Address("::1", 9095)),
        ("::1", Address("::1", 9092)),
        ("PLAINTEXT://kafka:9094", Address("kafka", 9094)),
    ],
)
def test_an_address_is_read_as_people_write_it(text: str, address: Address) -> None:
    assert parse_address(text) == address


@pytest.mark.parametrize("text", ["kafka:port", ":9092", "kafka:0", "kafka:65536", ""])
def test_a_wrong_address_is_named(text: str) -> None:
    with pytest.raises(ConfigError, match=r"bootstrap\.servers"):
        parse_address(text)


def test_an_address_is_written_as_it_is_read() -> None:
    for address in (Address("kafka", 9092), Address("::1", 9092)):
        assert parse_address(str(address)) == address


def test_a_list_of_addresses_keeps_its_order_and_no_duplicates() -> None:
    assert parse_bootstrap("b:1, a:2,b:1,") == (Address("b", 1), Address("a", 2))


def test_an_empty_list_of_addresses_is_refused() -> None:
    with pytest.raises(ConfigError, match="HOST:PORT"):
        parse_bootstrap(" , ")


def test_kafkas_keys_become_settings() -> None:
    settings = ClientSettings.from_kafka(
        {"bootstrap.servers": "a:1", "request.timeout.ms": "1234", "client.id": "job", "ssl.key": "x", "max.poll": "1"}
    )
    assert settings.bootstrap == (Address("a", 1),)
    assert settings.request_timeout_ms == 1234
    assert settings.client_id == "job"
    assert settings.security_options == (("ssl.key", "x"),)
    assert settings.ignored == ("max.poll",)


def test_a_value_that_does_not_fit_names_its_key() -> None:
    with pytest.raises(ConfigError, match=r"retry\.backoff\.ms.*soon"):
        ClientSettings.from_kafka({"retry.backoff.ms": "soon"})


def test_settings_survive_the_way_to_an_executor() -> None:
    settings = ClientSettings.from_kafka({"bootstrap.servers": "a:1,b:2", "sasl.mechanism": "PLAIN"})
    assert pickle.loads(pickle.dumps(settings)) == settings


def test_passwords_are_not_shown() -> None:
    settings = ClientSettings.from_kafka({"sasl.jaas.config": 'X required username="u" password="hush";'})
    assert "hush" not in repr(settings)


def test_a_security_protocol_that_nobody_knows_is_refused_and_never_downgraded() -> None:
    settings = ClientSettings.from_kafka({"security.protocol": "telepathy"})
    with pytest.raises(UnsupportedSecurityError, match="TELEPATHY"):
        settings.security()


def test_plaintext_is_the_default() -> None:
    assert ClientSettings().security() == ClientSettings.from_kafka({"security.protocol": "plaintext"}).security()
    assert ClientSettings().security() == Security(tls=None, login=None)
