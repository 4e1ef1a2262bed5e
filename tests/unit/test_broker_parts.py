"""What a broker makes of its flags and its machine, before it starts."""

from __future__ import annotations

import pytest

from ottla.broker_parts import local_config


def named() -> str:
    return "broker.example"


@pytest.mark.parametrize(
    ("properties", "told"),
    [
        ({"listeners": "PLAINTEXT://:9092"}, "PLAINTEXT://broker.example:9092"),
        ({"listeners": "PLAINTEXT://:0"}, "PLAINTEXT://broker.example:0"),
        (
            {"listeners": "PLAINTEXT://:9092", "advertised.listeners": "PLAINTEXT://:19092"},
            "PLAINTEXT://broker.example:19092",
        ),
        ({"listeners": "PLAINTEXT://:9092,CONTROLLER://:9093"}, "PLAINTEXT://broker.example:9092"),
        ({"listeners": "PLAINTEXT://10.0.0.1:9092"}, "PLAINTEXT://10.0.0.1:9092"),
    ],
)
def test_clients_are_told_the_machines_name_where_the_broker_listens_everywhere(
    properties: dict[str, str], told: str
) -> None:
    config = local_config(properties, None, None, None, own_name=named)
    assert ",".join(map(str, config.advertised_listeners)) == told
    assert str(config.listeners[0]) == properties["listeners"].split(",")[0]


@pytest.mark.parametrize("host", ["::1", "[::1]"])
def test_an_ipv6_host_may_have_its_brackets(host: str) -> None:
    assert str(local_config({}, None, host, 9092).listeners[0]) == "PLAINTEXT://[::1]:9092"
