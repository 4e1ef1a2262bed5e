"""Who is in the metadata quorum and who a node is to the cluster, as the keys say it, and the checks between them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple, cast

from ottla.model.configs.definition import ConfigValue
from ottla.model.configs.listeners import Endpoint
from ottla.model.errors import ConfigError

_VOTER: Final = re.compile(r"(?P<id>[0-9]{1,9})@(?P<address>.+)")
_ADDRESS: Final = re.compile(r"\[?(?P<host>[0-9a-zA-Z\-%._:]+?)\]?:(?P<port>[0-9]{1,5})")
_EVERY_ADDRESS: Final = frozenset({"", "0.0.0.0", "::"})
_THIS_MACHINE: Final = frozenset({"localhost", "127.0.0.1", "::1"})
_CLUSTER_ID: Final = re.compile(r"[A-Za-z0-9_\-]{1,64}")


class Address(NamedTuple):
    """Where a node listens."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class Voter(NamedTuple):
    """A node that votes, and where it is reached."""

    node_id: int
    host: str
    port: int


def parse_voters(entries: Sequence[str]) -> tuple[Voter, ...]:
    """`id@host:port` each; ids and addresses are unique."""
    voters: list[Voter] = []
    for entry in entries:
        match = _VOTER.fullmatch(entry)
        if match is None:
            raise ConfigError(f"controller.quorum.voters: {entry!r} is not id@host:port")
        voters.append(Voter(int(match["id"]), *_address("controller.quorum.voters", match["address"])))
    for taken in ([voter.node_id for voter in voters], [voter[1:] for voter in voters]):
        if len(dict.fromkeys(taken)) < len(taken):
            raise ConfigError("controller.quorum.voters: each voter has an id and an address of its own")
    return tuple(voters)


def parse_bootstrap_servers(entries: Sequence[str]) -> tuple[Address, ...]:
    """`host:port` each."""
    return tuple(_address("controller.quorum.bootstrap.servers", entry) for entry in entries)


def name_others(servers: Sequence[Address], own: Sequence[Endpoint]) -> bool:
    """Whether one of the servers is another node. Kafka's own server.properties names the node itself and nobody else:
    that is a quorum of one, and asking it who the voters are would never end."""
    return any(not any(_is_at(endpoint, server) for endpoint in own) for server in servers)


def _is_at(endpoint: Endpoint, server: Address) -> bool:
    if endpoint.port != server.port:
        return False
    return endpoint.host == server.host or (
        endpoint.host in _EVERY_ADDRESS | _THIS_MACHINE and server.host in _THIS_MACHINE
    )


def _address(key: str, text: str) -> Address:
    match = _ADDRESS.fullmatch(text)
    if match is None or not 0 < int(match["port"]) <= 65535:
        raise ConfigError(f"{key}: {text!r} is not host:port")
    return Address(match["host"], int(match["port"]))


def cluster_id(value: ConfigValue) -> str | None:
    """A check: as Kafka's ids look, or any other name that needs no quoting anywhere."""
    if value is None or (isinstance(value, str) and _CLUSTER_ID.fullmatch(value)):
        return None
    return "a cluster id is at most 64 letters, digits, - and _; `ottla cluster new-id` makes one"


def inter_broker_listener(values: Mapping[str, ConfigValue], advertised: Sequence[Endpoint]) -> str:
    """The listener that brokers use among themselves: as told, else by its protocol, else the first; "" if none."""
    name, protocol = values["inter.broker.listener.name"], values["security.inter.broker.protocol"]
    if isinstance(name, str):
        if all(endpoint.listener != name.upper() for endpoint in advertised):
            raise ConfigError(f"inter.broker.listener.name: {name} is not one of advertised.listeners")
        return name.upper()
    fitting = [endpoint.listener for endpoint in advertised if endpoint.security_protocol == protocol]
    return next(iter([*fitting, *(endpoint.listener for endpoint in advertised)]), "")


def check_roles(values: Mapping[str, ConfigValue], voters: Sequence[Voter]) -> None:
    """Roles, voters and bootstrap servers say the same."""
    roles = cast("tuple[str, ...]", values["process.roles"])
    node_id = cast(int, values["node.id"])
    is_voter = any(voter.node_id == node_id for voter in voters)
    has_servers = bool(values["controller.quorum.bootstrap.servers"])
    if voters and has_servers:
        raise ConfigError("controller.quorum.voters and controller.quorum.bootstrap.servers: set one of them, not both")
    if "controller" in roles and voters and not is_voter:
        raise ConfigError(
            f"node.id: {node_id} is not among controller.quorum.voters. Add it there, or set process.roles=broker"
        )
    if "controller" not in roles and is_voter:
        raise ConfigError(f"controller.quorum.voters names node {node_id}, whose process.roles is without controller")
    if "controller" not in roles and not voters and not has_servers:
        raise ConfigError(
            "controller.quorum.voters: a node that is no controller must be told where the controllers are, "
            "here or in controller.quorum.bootstrap.servers"
        )
    if cast(int, values["broker.heartbeat.interval.ms"]) * 2 > cast(int, values["broker.session.timeout.ms"]):
        raise ConfigError("broker.session.timeout.ms must be at least twice broker.heartbeat.interval.ms")
