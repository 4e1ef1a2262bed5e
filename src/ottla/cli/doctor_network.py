"""What `ottla doctor` looks at between this machine and the cluster: the way a client goes, step by step.

A step that fails ends the way, since what comes after it cannot work.
"""

from __future__ import annotations

import socket
import ssl
import time
from collections.abc import Iterator
from typing import Final

from ottla.cli.finding import Finding, fail, ok, warn
from ottla.cli.port_owner import is_local, port_owner
from ottla.client.admin import Admin
from ottla.client.cluster import Cluster
from ottla.client.connection import Connection
from ottla.client.errors import CannotConnectError, ClientError, RequestTimeoutError
from ottla.client.metadata import Broker, TopicMetadata
from ottla.client.settings import Address, ClientSettings

NEEDED_APIS: Final = {0: "Produce", 1: "Fetch", 2: "ListOffsets", 3: "Metadata"}
PROBE_SECONDS: Final = 2.0
CLOCK_SKEW_MS_MAX: Final = 5_000
_LOOPBACK: Final = ("localhost", "127.", "::1")


def check_address(address: Address, settings: ClientSettings) -> Iterator[Finding]:
    """The way to one bootstrap address."""
    try:
        socket.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM)
    except OSError as error:
        advice = "check the spelling, DNS or /etc/hosts"
        yield fail("name", f"{address.host!r} is not known here ({error.strerror})", advice)
        return
    reached = _check_listening(address)
    yield reached
    if reached.health == "ok":
        yield _check_protocol(address, settings)


def _check_listening(address: Address) -> Finding:
    check = "port"
    owner = port_owner(address.port) if is_local(address.host) else None
    try:
        socket.create_connection(address, timeout=PROBE_SECONDS).close()
    except ConnectionRefusedError:
        if owner is not None:
            advice = "use the address that it listens on, or start it with --host 0.0.0.0"
            return fail(check, f"{owner} listens on port {address.port}, but not on {address.host}", advice)
        advice = f"start a broker with `ottla serve --port {address.port}`, or correct --bootstrap"
        return fail(check, f"nothing listens on {address}", advice)
    except OSError as error:
        reason = "no answer" if isinstance(error, TimeoutError) else error.strerror or str(error)
        return fail(check, f"{address} cannot be reached ({reason})", "check the address, the route and the firewall")
    return ok(check, f"{owner} listens on {address}" if owner else f"something listens on {address}")


def _check_protocol(address: Address, settings: ClientSettings) -> Finding:
    check = "protocol"
    try:
        with Connection.open(address, settings) as connection:
            missing = [name for key, name in NEEDED_APIS.items() if not connection.supports(key)]
    except ClientError as error:
        silent = isinstance(error.__cause__, RequestTimeoutError)  # it says to ask this very command
        reason = f"{address} takes connections and says nothing" if silent else str(error)
        return fail(check, *_other_protocol(address, reason))
    if missing:
        return fail(check, f"{address} does not serve {', '.join(missing)}", "use a broker's port, not a controller's")
    return ok(check, f"{address} speaks Kafka's protocol")


def _other_protocol(address: Address, reason: str) -> tuple[str, str]:
    """What listens there if it is not a broker: ask it in HTTP and in TLS."""
    if _speaks_http(address):
        return f"{address} is an HTTP server, not a Kafka broker", "use the broker's port, or another port for it"
    if _speaks_tls(address):
        return f"{address} wants TLS", "use a PLAINTEXT listener of the broker"
    return reason, "check that this is the port of a broker"


def _speaks_http(address: Address) -> bool:
    try:
        with socket.create_connection(address, timeout=PROBE_SECONDS) as probe:
            probe.sendall(b"GET / HTTP/1.0\r\n\r\n")
            return probe.recv(4) == b"HTTP"
    except OSError:
        return False


def _speaks_tls(address: Address) -> bool:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    try:
        with (
            socket.create_connection(address, timeout=PROBE_SECONDS) as probe,
            context.wrap_socket(probe, server_hostname=address.host),
        ):
            return True
    except (OSError, ValueError):
        return False


def check_cluster(cluster: Cluster) -> Iterator[Finding]:
    """What the cluster says about itself, once one address leads to it."""
    try:
        brokers = cluster.brokers()
    except ClientError as error:
        yield fail("metadata", str(error), "see the log of the broker")
        return
    yield ok("metadata", f"cluster {cluster.metadata.cluster_id} with {len(brokers)} broker(s)")
    reachable = [_check_advertised(broker, cluster.settings) for broker in brokers]
    yield from reachable
    if all(finding.health != "fail" for finding in reachable):
        yield _check_leaders(Admin(cluster))
        yield _check_clock(Admin(cluster))


def _check_advertised(broker: Broker, settings: ClientSettings) -> Finding:
    """Clients use the address that a broker advertises, not the one that they were given."""
    check = "advertised address"
    advice = "set advertised.listeners of the broker to an address that clients can reach"
    try:
        Connection.open(broker.address, settings).close()
    except CannotConnectError as error:
        seen = f"broker {broker.node_id} advertises {broker.address}, which is out of reach ({error})"
        return fail(check, seen, advice)
    except ClientError as error:
        return fail(check, f"broker {broker.node_id} advertises {broker.address}: {error}", advice)
    remote = not any(is_local(address.host) for address in settings.bootstrap)
    if remote and broker.address.host.startswith(_LOOPBACK):
        seen = f"broker {broker.node_id} advertises {broker.address}, which is this machine and not the broker's"
        return fail(check, seen, advice)
    return ok(check, f"broker {broker.node_id} is reached at {broker.address}")


def _check_leaders(admin: Admin) -> Finding:
    check = "partitions"
    try:
        topics = admin.list_topics()
    except ClientError as error:
        return fail(check, str(error), "see the log of the broker")
    count = sum(len(topic.partitions) for topic in topics)
    without = [name for topic in topics for name in _without_leader(topic)]
    if without:
        seen = f"{len(without)} of {count} partitions have no leader, {without[0]} among them"
        return fail(check, seen, "start the brokers that hold them")
    behind = sum(len(entry.isr) < len(entry.replicas) for topic in topics for entry in topic.partitions)
    if behind:
        return warn(check, f"{behind} of {count} partitions have replicas that lag behind", "see if a broker is down")
    return ok(check, f"{count} partitions, each with a leader and all replicas in sync")


def _without_leader(topic: TopicMetadata) -> list[str]:
    return [f"{topic.name}-{entry.partition}" for entry in topic.partitions if entry.leader < 0]


def _check_clock(admin: Admin) -> Finding:
    """The quorum's leader reports itself as caught up by its own clock."""
    check = "clock"
    try:
        before = time.time_ns() // 1_000_000
        quorum = admin.describe_quorum()
        after = time.time_ns() // 1_000_000
    except ClientError:
        return ok(check, "this cluster does not tell its time")
    told = max((voter.last_caught_up_ms for voter in quorum.voters if voter.node_id == quorum.leader_id), default=-1)
    if told <= 0:
        return ok(check, "this cluster does not tell its time")
    skew = before - told if told < before else max(told - after, 0)
    if skew > CLOCK_SKEW_MS_MAX:
        seen = f"this machine and the cluster's controller differ by {skew / 1000:.1f} s"
        return warn(check, seen, "synchronise the clocks (NTP): retention and timestamps depend on them")
    return ok(check, "this machine and the cluster agree on the time")
