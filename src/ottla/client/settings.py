"""Where the brokers are and how to speak to them. Picklable, so that a driver can hand it to its executors.

They carry Kafka's `security.protocol`, `sasl.*` and `ssl.*` keys as they were given; `security` says what they mean.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from ottla.client.security import Security, read_security
from ottla.model.errors import ConfigError

DEFAULT_PORT: Final = 9092


class Address(NamedTuple):
    """Where a broker listens."""

    host: str
    port: int

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"


def parse_address(text: str) -> Address:
    """`host:port`, `host` or `[::1]:port`, with or without a listener name in front (`PLAINTEXT://host:port`)."""
    plain = text.strip().rpartition("://")[2]
    host, port_text = plain, ""
    if plain.startswith("["):
        host, _, rest = plain[1:].partition("]")
        port_text = rest.removeprefix(":")
    elif plain.count(":") == 1:
        host, _, port_text = plain.partition(":")
    if not host or (port_text and not port_text.isdecimal()):
        raise ConfigError(f"bootstrap.servers: {text!r} is not HOST:PORT")
    port = int(port_text) if port_text else DEFAULT_PORT
    if not 0 < port < 65536:
        raise ConfigError(f"bootstrap.servers: {text!r} has a port outside 1 to 65535")
    return Address(host, port)


def parse_bootstrap(text: str) -> tuple[Address, ...]:
    """A comma separated list of addresses, none of them twice, in the order given."""
    addresses = tuple(dict.fromkeys(parse_address(part) for part in text.split(",") if part.strip()))
    if not addresses:
        raise ConfigError("bootstrap.servers: no address given; write HOST:PORT")
    return addresses


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientSettings:
    """Everything a connection needs to know. Defaults suit a broker on this machine and one across a network."""

    bootstrap: tuple[Address, ...] = (Address("127.0.0.1", DEFAULT_PORT),)
    client_id: str = "ottla"
    connect_timeout_ms: int = 10_000
    request_timeout_ms: int = 30_000
    api_timeout_ms: int = 60_000
    """How long one call may take, retries and all."""
    retry_backoff_ms: int = 100
    retry_backoff_ms_max: int = 1_000
    metadata_age_ms_max: int = 300_000
    answer_bytes_max: int = 256 << 20
    """A longer answer is refused before anything is allocated for it."""
    security_protocol: str = "PLAINTEXT"
    security_options: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    """The `sasl.*` and `ssl.*` keys as they were given. Passwords are among them."""
    ignored: tuple[str, ...] = ()
    """Keys that were given and mean nothing to this client."""

    @classmethod
    def of(cls, bootstrap: str) -> ClientSettings:
        """Settings for a bootstrap list, everything else at its default."""
        return cls(bootstrap=parse_bootstrap(bootstrap))

    @classmethod
    def from_kafka(cls, options: Mapping[str, str]) -> ClientSettings:
        """Settings from Kafka's client config keys. ConfigError names a key whose value does not fit."""
        values: dict[str, Any] = {}
        security: list[tuple[str, str]] = []
        ignored: list[str] = []
        for key, value in options.items():
            if key in _READERS:
                field, read = _READERS[key]
                values[field] = read(key, value)
            elif key.startswith(("sasl.", "ssl.")):
                security.append((key, value))
            else:
                ignored.append(key)
        return cls(**values, security_options=tuple(security), ignored=tuple(ignored))

    def security(self) -> Security:
        """What to do before the first request. Refuses what cannot be honoured, before a byte leaves this machine."""
        return read_security(self.security_protocol, dict(self.security_options))


def _milliseconds(key: str, text: str) -> int:
    if not text.strip().isdecimal():
        raise ConfigError(f"{key}: {text!r} is not a whole number of milliseconds")
    return int(text)


_READERS: Final[Mapping[str, tuple[str, Callable[[str, str], object]]]] = {
    "bootstrap.servers": ("bootstrap", lambda _, text: parse_bootstrap(text)),
    "client.id": ("client_id", lambda _, text: text),
    "security.protocol": ("security_protocol", lambda _, text: text.strip().upper()),
    "socket.connection.setup.timeout.ms": ("connect_timeout_ms", _milliseconds),
    "request.timeout.ms": ("request_timeout_ms", _milliseconds),
    "default.api.timeout.ms": ("api_timeout_ms", _milliseconds),
    "retry.backoff.ms": ("retry_backoff_ms", _milliseconds),
    "retry.backoff.max.ms": ("retry_backoff_ms_max", _milliseconds),
    "metadata.max.age.ms": ("metadata_age_ms_max", _milliseconds),
}
"""Kafka's keys: the field that each one sets, and how its text is read."""
