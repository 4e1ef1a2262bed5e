"""Metrics of the broker as a whole: its part in the cluster, its requests and connections, its caches, its clients."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from ottla.model.ids import uuid_to_base64
from ottla.server.metric_text import Family

if TYPE_CHECKING:
    from ottla.api.context import Services
    from ottla.server.listener import BoundListener
    from ottla.server.loop_watch import LoopWatch
    from ottla.server.partition_families import ClusterCounts

CLIENTS_SHOWN_MAX: Final = 200
STATE_STARTING, STATE_RUNNING = 1, 3
"""Kafka's codes for what a broker is doing."""


def _gauge(name: str, help_text: str) -> Family:
    return Family(name, "gauge", help_text)


def _counter(name: str, help_text: str) -> Family:
    return Family(name, "counter", help_text)


def state_family(*, is_ready: bool) -> str:
    family = _gauge("kafka_server_kafkaserver_brokerstate", "3 while the broker serves, 1 before and after.")
    return family.alone(STATE_RUNNING if is_ready else STATE_STARTING)


# The cluster

BROKERS: Final = _gauge("kafka_brokers", "Brokers in the cluster.")
BROKER_INFO: Final = _gauge("kafka_broker_info", "A broker and its address; the value is 1.")


def cluster_families(services: Services, counts: ClusterCounts, *, is_controller: bool) -> Iterator[str]:
    image = services.image
    if is_controller:
        live = [broker for broker in image.brokers.values() if not broker.fenced]
        yield BROKERS.alone(len(live))
        yield BROKER_INFO.samples(
            ((("id", str(broker.id)), ("address", f"{broker.endpoints[0].host}:{broker.endpoints[0].port}")), 1)
            for broker in live
            if broker.endpoints
        )
    fenced = sum(broker.fenced for broker in image.brokers.values())
    for name, help_text, value in (
        ("activecontrollercount", "1 on the broker that is the active controller.", is_controller),
        ("activebrokercount", "Brokers that are registered and not fenced.", len(image.brokers) - fenced),
        ("fencedbrokercount", "Brokers that are registered and fenced.", fenced),
        ("globaltopiccount", "Topics in the cluster.", len(image.topics)),
        ("globalpartitioncount", "Partitions in the cluster.", counts.partitions),
        ("offlinepartitionscount", "Partitions without a leader.", counts.offline),
        ("preferredreplicaimbalancecount", "Partitions not led by their first replica.", counts.not_preferred),
        ("lastcommittedrecordoffset", "The last committed offset of the metadata log.", image.offset),
    ):
        yield _gauge(f"kafka_controller_kafkacontroller_{name}", help_text).alone(value)


def replica_families(counts: ClusterCounts) -> Iterator[str]:
    for name, help_text, value in (
        ("partitioncount", "Partitions with a replica on this broker.", counts.hosted),
        ("leadercount", "Partitions that this broker leads.", counts.led),
        ("underreplicatedpartitions", "Of these, with a replica that is not in sync.", counts.under_replicated),
        ("underminisrpartitioncount", "Of these, with too few in sync for acks=all.", counts.under_min_isr),
        ("atminisrpartitioncount", "Of these, with no more in sync than acks=all needs.", counts.at_min_isr),
        ("reassigningpartitions", "Of these, with replicas that come or go.", counts.reassigning),
        ("offlinereplicacount", "Replicas in log directories that are offline.", counts.offline_replicas),
    ):
        yield _gauge(f"kafka_server_replicamanager_{name}", help_text).alone(value)


OFFLINE_DIRECTORIES: Final = _gauge(
    "kafka_log_logmanager_offlinelogdirectorycount", "Log directories that could not be opened, or have failed."
)
DIRECTORY_OFFLINE: Final = _gauge("kafka_log_logmanager_logdirectoryoffline", "1 if this log directory is offline.")


def directory_families(services: Services) -> Iterator[str]:
    directories = services.log_directories
    states = [(directory.path, not directory.online) for directory in directories.online]
    states += [(path, True) for path in directories.unopened]
    yield OFFLINE_DIRECTORIES.alone(sum(is_offline for _, is_offline in states))
    yield DIRECTORY_OFFLINE.samples(((("logDirectory", path),), is_offline) for path, is_offline in states)


RAFT_STATE: Final = Family("kafka_server_raftmetrics_current_state", "untyped", "Part of this node in the quorum.")


def raft_families(services: Services) -> Iterator[str]:
    quorum = services.quorum.describe()
    is_leader = quorum.leader_id == services.node_id
    yield RAFT_STATE.samples([((("current_state", "leader" if is_leader else "follower"),), 1)])
    own = next((voter for voter in quorum.voters if voter.replica_id == services.node_id), None)
    for name, help_text, value in (
        ("current_leader", "The node that leads the metadata log.", quorum.leader_id),
        ("current_epoch", "The epoch of that leader.", quorum.leader_epoch),
        ("high_watermark", "The end of what is committed in the metadata log.", quorum.high_watermark),
        ("log_end_offset", "The end of the metadata log on this node.", own.log_end_offset if own else -1),
        ("number_of_voters", "Nodes that elect the leader.", len(quorum.voters)),
        ("number_of_observers", "Nodes that follow without a vote.", len(quorum.observers)),
    ):
        yield _gauge(f"kafka_server_raftmetrics_{name}", help_text).alone(value)


# Requests and connections

REQUESTS: Final = _counter("kafka_network_requestmetrics_requests_total", "Requests, by API.")
REQUEST_ERRORS: Final = _counter("kafka_network_requestmetrics_errors_total", "Requests refused as a whole, by API.")
CONNECTIONS: Final = _gauge("kafka_server_socket_server_metrics_connection_count", "Open connections, by listener.")
LOOP_IDLE: Final = (
    _gauge("kafka_network_socketserver_networkprocessoravgidle_percent", "Part of the time in which the loop is idle."),
    _gauge("kafka_server_kafkarequesthandlerpool_requesthandleravgidle_percent", "The same: one loop does both."),
)


def request_families(services: Services, api_names: Mapping[int, str]) -> Iterator[str]:
    for family, counts in ((REQUESTS, services.metrics.requests), (REQUEST_ERRORS, services.metrics.request_errors)):
        yield family.samples(
            ((("request", api_names.get(key, f"ApiKey{key}")),), count) for key, count in enumerate(counts) if count
        )


def connection_families(services: Services, listeners: Sequence[BoundListener], watch: LoopWatch) -> Iterator[str]:
    yield CONNECTIONS.samples(
        ((("listener", listener.name), ("networkProcessor", "0")), len(listener.connections)) for listener in listeners
    )
    for family in LOOP_IDLE:
        yield family.alone(watch.idle_ratio)
    metrics = services.metrics
    yield _gauge("ottla_connections_open", "Open connections of clients.").alone(metrics.connections_open)
    yield _gauge("ottla_loop_lag_seconds", "How late the loop was when last looked at.").alone(watch.lag_seconds)
    yield _gauge("ottla_loop_lag_max_seconds", "The same, at the worst in a minute.").alone(watch.lag_seconds_max)
    for name, help_text, value in (
        ("connections_accepted", "Connections that were accepted.", metrics.connections_accepted),
        ("connections_refused", "Connections of hosts that had too many.", metrics.connections_refused),
        ("connections_closed_idle", "Connections on which nothing happened.", metrics.connections_closed_idle),
        ("connections_closed_protocol", "Connections closed over what came.", metrics.connections_closed_protocol),
        ("received_bytes", "Bytes received from clients, all told.", metrics.bytes_in),
        ("sent_bytes", "Bytes sent to clients, all told.", metrics.bytes_out),
        ("reads_paused", "Times a client was not read because it was owed too much.", metrics.reads_paused),
        ("cold_reads", "Reads that had to wait for a disk.", metrics.cold_reads),
        ("requests_unsupported", "Requests of an unknown API or version.", metrics.requests_unsupported),
    ):
        yield _counter(f"ottla_{name}_total", help_text).alone(value)


def fetch_session_families(services: Services) -> Iterator[str]:
    sessions, cache = services.sessions, "kafka_server_fetchsessioncache_"
    yield _gauge(f"{cache}numincrementalfetchsessions", "Fetch sessions.").alone(len(sessions))
    yield _gauge(f"{cache}numincrementalfetchpartitionscached", "Partitions in them.").alone(sessions.partitions_cached)
    yield _counter(f"{cache}incrementalfetchsessionevictions_total", "Evicted sessions.").alone(sessions.evictions)


# Telemetry of clients

_TELEMETRY: Final = "ottla_client_telemetry_"
REFUSED: Final = _counter(f"{_TELEMETRY}refused_total", "Questions and pushes answered with an error, by error.")
LAST_PUSH_BYTES: Final = _gauge(f"{_TELEMETRY}last_push_bytes", "Size of a client's last push, compressed.")
LAST_PUSH_SECONDS: Final = _gauge(f"{_TELEMETRY}last_push_timestamp_seconds", "When a client last pushed, since 1970.")


def telemetry_families(services: Services) -> Iterator[str]:
    telemetry = services.telemetry
    instances = telemetry.instances()
    yield _gauge(f"{_TELEMETRY}clients", "Clients that ask what to push, or push.").alone(len(instances))
    yield _counter(f"{_TELEMETRY}pushes_total", "Pushes that were taken.").alone(telemetry.pushes)
    yield _counter(f"{_TELEMETRY}bytes_total", "Bytes of these pushes, compressed.").alone(telemetry.pushed_bytes)
    yield REFUSED.samples(((("error", code.name),), count) for code, count in telemetry.refused.items())
    shown = [
        ((("client_instance_id", uuid_to_base64(found.id)), ("client_id", found.client.client_id or "")), found)
        for found in instances[-CLIENTS_SHOWN_MAX:]
        if found.pushes
    ]
    yield LAST_PUSH_BYTES.samples((labels, found.last_push_bytes) for labels, found in shown)
    yield LAST_PUSH_SECONDS.samples((labels, found.last_push_ms / 1000) for labels, found in shown)
