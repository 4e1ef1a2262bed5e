"""What `ottla serve --brokers N` makes of its options: the directory, address and config of each broker.

A file in the data directory, `cluster.properties`, remembers the cluster's id, how many brokers it has and which of
them vote. Later starts read it: a cluster may be given more brokers, and never fewer than it has.
"""

from __future__ import annotations

import os
import socket
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from ottla.cli.failures import UsageError
from ottla.cli.free_ports import free_ports
from ottla.model.configs.properties import parse_properties
from ottla.model.ids import CLUSTER_FILE, spellable, uuid_to_base64

BROKERS_MAX: Final = 64
ANY_ADDRESS: Final = ("0.0.0.0", "::")
OF_EACH_BROKER: Final = (
    "node.id",
    "broker.id",
    "process.roles",
    "listeners",
    "advertised.listeners",
    "log.dir",
    "log.dirs",
    "metadata.log.dir",
    "cluster.id",
    "controller.quorum.voters",
    "controller.quorum.bootstrap.servers",
)
"""Keys that differ from broker to broker, or that are chosen here."""


@dataclass(frozen=True, slots=True)
class PlannedBroker:
    """One child: its number, its directory, where it listens, and its config beside that."""

    node_id: int
    data: str
    host: str
    port: int
    properties: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Membership:
    """What `cluster.properties` holds."""

    cluster_id: str
    broker_count: int
    voters: tuple[int, ...]


def new_cluster_id() -> str:
    """A random id, in the form that Kafka gives them."""
    return uuid_to_base64(spellable(uuid.uuid4))


def plan_cluster(
    data: str, broker_count: int, host: str | None, port: int | None, properties: Mapping[str, str]
) -> list[PlannedBroker]:
    """The brokers to start. Writes `cluster.properties` where the cluster is new, or grows."""
    _check(broker_count, properties)
    membership = _settle(Path(data), broker_count)
    host = "127.0.0.1" if host is None else host
    ports = _ports(9092 if port is None else port, broker_count)
    reached_at = socket.gethostname() if host in ANY_ADDRESS else host
    voters = ",".join(f"{node_id}@{_shown(reached_at)}:{ports[node_id - 1]}" for node_id in membership.voters)
    planned = []
    for node_id, own_port in enumerate(ports, 1):
        own = {
            "node.id": str(node_id),
            "cluster.id": membership.cluster_id,
            "process.roles": "broker,controller" if node_id in membership.voters else "broker",
            "controller.quorum.voters": voters,
        }
        if host in ANY_ADDRESS:
            own["advertised.listeners"] = f"PLAINTEXT://{_shown(reached_at)}:{own_port}"
        merged = {**_defaults(broker_count), **properties, **own}
        planned.append(PlannedBroker(node_id, str(Path(data) / f"broker-{node_id}"), host, own_port, merged))
    return planned


def _check(broker_count: int, properties: Mapping[str, str]) -> None:
    if broker_count > BROKERS_MAX:
        raise UsageError(f"--brokers {broker_count}: at most {BROKERS_MAX} on one machine")
    for key in OF_EACH_BROKER:
        if key in properties:
            raise UsageError(f"{key}: leave it out with --brokers, which chooses it for each broker")


def _defaults(broker_count: int) -> dict[str, str]:
    """What makes a cluster of this size survive the loss of a broker, where the user does not say otherwise."""
    replication, in_sync = min(3, broker_count), 2 if broker_count >= 3 else 1
    return {
        "default.replication.factor": str(replication),
        "min.insync.replicas": str(in_sync),
        "offsets.topic.replication.factor": str(replication),
        "transaction.state.log.replication.factor": str(replication),
        "transaction.state.log.min.isr": str(in_sync),
        "broker.rack": socket.gethostname(),
    }


def _settle(directory: Path, broker_count: int) -> Membership:
    path = directory / CLUSTER_FILE
    known = _read(path)
    if known is None:
        if (directory / "meta.properties").exists():
            raise UsageError(
                f"--data {directory}: a single broker lives there; give the cluster a directory of its own"
            )
        votes = broker_count if broker_count in (3, 5) else 5 if broker_count > 5 else 3 if broker_count == 4 else 1
        known = Membership(new_cluster_id(), broker_count, tuple(range(1, votes + 1)))
    elif known.broker_count > broker_count:
        raise UsageError(
            f"--brokers {broker_count}: the cluster in {directory} has {known.broker_count} brokers, and starting "
            "fewer would leave replicas behind"
        )
    elif known.broker_count == broker_count:
        return known
    else:
        known = Membership(known.cluster_id, broker_count, known.voters)
    _write(path, known)
    return known


def _read(path: Path) -> Membership | None:
    try:
        found = parse_properties(path.read_text(encoding="utf-8"), str(path))
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{path} cannot be read: {error}") from error
    try:
        voters = tuple(int(node_id) for node_id in found["voters"].split(","))
        return Membership(found["cluster.id"], int(found["brokers"]), voters)
    except (KeyError, ValueError) as error:
        raise UsageError(f"{path} is damaged: {error}") from error


def _write(path: Path, membership: Membership) -> None:
    lines = (
        f"cluster.id={membership.cluster_id}",
        f"brokers={membership.broker_count}",
        f"voters={','.join(map(str, membership.voters))}",
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    new = path.with_suffix(".new")
    with open(new, "w", encoding="utf-8") as file:
        file.write("\n".join(lines) + "\n")
        file.flush()
        os.fsync(file.fileno())
    new.replace(path)


def _ports(first: int, count: int) -> list[int]:
    """Consecutive ports, or free ones for port 0."""
    if first:
        if first + count - 1 > 65535:
            raise UsageError(f"--port {first}: {count} brokers need ports up to {first + count - 1}")
        return list(range(first, first + count))
    return free_ports(count)


def _shown(host: str) -> str:
    return f"[{host}]" if ":" in host else host
