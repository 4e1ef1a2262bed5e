"""Addresses a broker listens on and tells its clients about, and the checks that hold between them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from ottla.model.errors import ConfigError

_ADDRESS: Final = re.compile(r"(?P<name>.*)://\[?(?P<host>[0-9a-zA-Z\-%._:]*)\]?:(?P<port>-?[0-9]{1,9})")
_PROTOCOLS: Final = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")


class Endpoint(NamedTuple):
    """One listener: an empty host means every address of the machine, port 0 any free one."""

    listener: str
    host: str
    port: int
    security_protocol: str

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.listener}://{host}:{self.port}"


def parse_protocol_map(text: str) -> dict[str, str]:
    """`NAME:PROTOCOL,...` as a mapping from listener name to protocol."""
    protocols: dict[str, str] = {}
    for pair in filter(None, (part.strip() for part in text.split(","))):
        name, colon, protocol = pair.rpartition(":")
        if not colon or protocol.strip().upper() not in _PROTOCOLS:
            raise ConfigError(
                f"Invalid value {text} for configuration listener.security.protocol.map: {pair!r} is not a pair "
                f"NAME:PROTOCOL with one of the protocols {', '.join(_PROTOCOLS)}"
            )
        if name.strip().upper() in protocols:
            raise ConfigError(f"listener.security.protocol.map names the listener {name.strip().upper()} twice")
        protocols[name.strip().upper()] = protocol.strip().upper()
    return protocols


def parse_endpoints(key: str, addresses: Sequence[str], protocols: Mapping[str, str]) -> tuple[Endpoint, ...]:
    """The endpoints of `listeners` or `advertised.listeners`; names are unique, each has a security protocol."""
    endpoints: list[Endpoint] = []
    for address in addresses:
        match = _ADDRESS.fullmatch(address)
        if match is None or not 0 <= int(match["port"]) <= 65535 or not match["name"]:
            raise ConfigError(f"{key}: unable to parse {address!r}, expected NAME://host:port")
        name = match["name"].upper()
        if name not in protocols:
            raise ConfigError(f"{key}: no security protocol defined for listener {name}")
        if any(name == other.listener for other in endpoints):
            raise ConfigError(f"{key}: each listener must have a different name, {name} is there twice")
        endpoints.append(Endpoint(name, match["host"], int(match["port"]), protocols[name]))
    return tuple(endpoints)


def check_ports_differ(endpoints: Sequence[Endpoint]) -> None:
    """No two listeners share a port, except one on IPv4 and one on IPv6, or where the port is still open."""
    seen: dict[tuple[int, bool], Endpoint] = {}
    for endpoint in endpoints:
        if endpoint.port <= 0:
            continue
        other = seen.setdefault((endpoint.port, ":" in endpoint.host), endpoint)
        if other is not endpoint:
            raise ConfigError(f"listeners: each listener must have a different port, {other} and {endpoint} do not")


def check_advertised(advertised: Sequence[Endpoint], listeners: Sequence[Endpoint]) -> None:
    """Clients can only be sent to listeners that exist, at an address that leads somewhere."""
    if not advertised:
        raise ConfigError("advertised.listeners: a broker needs at least one listener for its clients")
    for endpoint in advertised:
        if endpoint.host in ("0.0.0.0", "::"):
            raise ConfigError(
                f"advertised.listeners cannot use the nonroutable meta-address {endpoint.host}: say where clients find "
                f"this broker, as in advertised.listeners={endpoint.listener}://HOST:{endpoint.port}"
            )
        if all(endpoint.listener != listener.listener for listener in listeners):
            raise ConfigError(f"advertised.listeners: {endpoint.listener} is not one of listeners")


def parse_connection_overrides(text: str) -> dict[str, int]:
    """max.connections.per.ip.overrides, `address:count,...`; `connection_overrides` has checked it."""
    pairs = (part.strip().rpartition(":") for part in text.split(",") if part.strip())
    return {address.strip(): int(count) for address, _, count in pairs}
