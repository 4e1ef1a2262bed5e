"""Typed configs: what the keys come to for this broker, and for one topic on it.

Values are resolved once, when they are set, so that code reads plain attributes. A change makes a new object, and
whoever holds the old one goes on with consistent values.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, Final, cast

from ottla.model.configs import listeners as addresses
from ottla.model.configs import quorum
from ottla.model.configs.broker import BROKER_CONFIGS, check_static, find_definition
from ottla.model.configs.definition import ConfigValue, Update
from ottla.model.configs.listeners import Endpoint
from ottla.model.configs.quorum import Address, Voter
from ottla.model.configs.topic import TOPIC_CONFIGS
from ottla.model.configs.unserved import check_served
from ottla.model.errors import ConfigError

MIN_INSYNC: Final = "min.insync.replicas"
"""Leaders and the controller must go by the same one while there are eligible leader replicas."""

LONG_MAX: Final = 2**63 - 1
_HOUR_MS: Final = 3_600_000
_RATES: Final = ("leader.replication.throttled.rate", "follower.replication.throttled.rate")
_MINUTE_MS: Final = 60_000


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicConfig:
    """The config of one topic as code uses it. Without arguments: Kafka's defaults."""

    segment_bytes: int = 1_073_741_824
    segment_ms: int = 604_800_000
    segment_jitter_ms: int = 0
    segment_index_bytes: int = 10_485_760
    index_interval_bytes: int = 4096
    retention_ms: int = 604_800_000
    retention_bytes: int = -1
    local_retention_ms: int = -2
    local_retention_bytes: int = -2
    cleanup_delete: bool = True
    cleanup_compact: bool = False
    delete_retention_ms: int = 86_400_000
    min_compaction_lag_ms: int = 0
    max_compaction_lag_ms: int = LONG_MAX
    min_cleanable_dirty_ratio: float = 0.5
    file_delete_delay_ms: int = 60_000
    flush_messages: int = LONG_MAX
    flush_ms: int = LONG_MAX
    max_message_bytes: int = 1_048_588
    compression_type: str = "producer"
    compression_gzip_level: int = -1
    compression_lz4_level: int = 9
    compression_zstd_level: int = 3
    timestamp_type_log_append: bool = False
    timestamp_before_max_ms: int = LONG_MAX
    timestamp_after_max_ms: int = 3_600_000
    min_insync_replicas: int = 1
    preallocate: bool = False
    unclean_leader_election_enable: bool = False
    record_validation_full: bool = False
    leader_replication_throttled_replicas: tuple[str, ...] = ()
    follower_replication_throttled_replicas: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class BrokerConfig:
    """The config of this broker. An attribute is its key with underscores; `get` reaches every other key.

    Built by `from_properties`. Dynamic values lie over the static ones, a broker's own over the cluster's default;
    listeners and directories are fixed at start whatever is set later.
    """

    node_id: int
    process_roles: tuple[str, ...]
    broker_rack: str | None
    controller_listener_names: tuple[str, ...]
    cluster_id: str | None
    auto_leader_rebalance_enable: bool
    broker_heartbeat_interval_ms: int
    broker_session_timeout_ms: int
    controlled_shutdown_enable: bool
    controller_quorum_auto_join_enable: bool
    controller_quorum_election_backoff_max_ms: int
    controller_quorum_election_timeout_ms: int
    controller_quorum_fetch_max_bytes: int
    controller_quorum_fetch_snapshot_max_bytes: int
    controller_quorum_fetch_timeout_ms: int
    controller_quorum_request_timeout_ms: int
    controller_quorum_retry_backoff_ms: int
    controller_socket_timeout_ms: int
    initial_broker_registration_timeout_ms: int
    leader_imbalance_check_interval_seconds: int
    num_replica_fetchers: int
    replica_fetch_backoff_ms: int
    replica_fetch_max_bytes: int
    replica_fetch_min_bytes: int
    replica_fetch_response_max_bytes: int
    replica_fetch_wait_max_ms: int
    replica_lag_time_max_ms: int
    replica_selector_class: str | None
    replica_socket_timeout_ms: int
    num_partitions: int
    default_replication_factor: int
    auto_create_topics_enable: bool
    delete_topic_enable: bool
    message_max_bytes: int
    min_insync_replicas: int
    fetch_max_bytes: int
    max_incremental_fetch_session_cache_slots: int
    max_request_partition_size_limit: int
    socket_request_max_bytes: int
    socket_receive_buffer_bytes: int
    socket_send_buffer_bytes: int
    socket_listen_backlog_size: int
    connections_max_idle_ms: int
    max_connections: int
    max_connections_per_ip: int
    queued_max_request_bytes: int
    telemetry_max_bytes: int
    log_cleaner_enable: bool
    log_cleaner_backoff_ms: int
    log_retention_check_interval_ms: int
    log_flush_scheduler_interval_ms: int
    log_flush_offset_checkpoint_interval_ms: int
    log_flush_start_offset_checkpoint_interval_ms: int
    log_initial_task_delay_ms: int
    num_recovery_threads_per_data_dir: int
    producer_id_expiration_ms: int
    producer_id_expiration_check_interval_ms: int
    replica_high_watermark_checkpoint_interval_ms: int
    metadata_log_max_record_bytes_between_snapshots: int
    metadata_log_max_snapshot_interval_ms: int
    metadata_log_segment_bytes: int
    metadata_log_segment_ms: int
    group_initial_rebalance_delay_ms: int
    group_max_session_timeout_ms: int
    group_max_size: int
    group_min_session_timeout_ms: int
    offset_metadata_max_bytes: int
    offsets_retention_minutes: int
    offsets_retention_check_interval_ms: int
    transaction_abort_timed_out_transaction_cleanup_interval_ms: int
    transaction_max_timeout_ms: int
    transaction_remove_expired_transaction_cleanup_interval_ms: int
    transactional_id_expiration_ms: int
    offsets_commit_timeout_ms: int
    offsets_load_buffer_size: int
    offsets_topic_compression_codec: int
    offsets_topic_num_partitions: int
    offsets_topic_replication_factor: int
    offsets_topic_segment_bytes: int
    transaction_state_log_load_buffer_size: int
    transaction_state_log_min_isr: int
    transaction_state_log_num_partitions: int
    transaction_state_log_replication_factor: int
    transaction_state_log_segment_bytes: int
    transaction_partition_verification_enable: bool
    add_partitions_to_txn_retry_backoff_max_ms: int
    add_partitions_to_txn_retry_backoff_ms: int
    group_consumer_assignment_interval_ms: int
    group_consumer_assignors: tuple[str, ...]
    group_consumer_heartbeat_interval_ms: int
    group_consumer_max_size: int
    group_consumer_migration_policy: str
    group_consumer_session_timeout_ms: int
    group_coordinator_rebalance_protocols: tuple[str, ...]

    listeners: tuple[Endpoint, ...]
    advertised_listeners: tuple[Endpoint, ...]
    inter_broker_listener_name: str
    """The listener that brokers use among themselves; "" on a node that is no broker."""
    controller_quorum_voters: tuple[Voter, ...]
    """Empty where this node is its own only voter, or asks the bootstrap servers who the voters are."""
    controller_quorum_bootstrap_servers: tuple[Address, ...]
    """Empty, too, where they are this node and nobody else."""
    leader_replication_throttled_rate: int
    follower_replication_throttled_rate: int
    log_dirs: tuple[str, ...]
    metadata_log_dir: str
    max_connections_per_ip_overrides: Mapping[str, int]
    topic_defaults: TopicConfig
    """What a topic without configs of its own comes to."""

    values: Mapping[str, ConfigValue]
    static: Mapping[str, str] = field(default_factory=dict)
    dynamic: Mapping[str, str] = field(default_factory=dict)
    dynamic_default: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def from_properties(cls, properties: Mapping[str, str] | None = None) -> BrokerConfig:
        """From keys and texts, as a file or flags give them. A ConfigError names the key that is wrong."""
        static = _with_node_id(dict(properties or {}))
        check_static(static)
        return cls._build(static, {}, {}, strict=True)

    def with_static(self, properties: Mapping[str, str]) -> BrokerConfig:
        """The same broker with these keys set as if at start; for ports that were chosen by the system."""
        return self._build({**self.static, **properties}, self.dynamic, self.dynamic_default, strict=True)

    def with_dynamic(
        self, dynamic: Mapping[str, str], dynamic_default: Mapping[str, str] | None = None, *, strict: bool = False
    ) -> BrokerConfig:
        """With these dynamic values in place of the ones before.

        They were checked when they were set. What an older or newer version took and this one cannot use is passed
        over, unless `strict`: a stored value must not stop a broker.
        """
        return self._build(self.static, dynamic, dynamic_default or {}, strict=strict)

    def get(self, key: str) -> ConfigValue:
        """The value of any key; KeyError for one that does not exist."""
        return self.values[key]

    @classmethod
    def _build(
        cls, static: Mapping[str, str], dynamic: Mapping[str, str], dynamic_default: Mapping[str, str], *, strict: bool
    ) -> BrokerConfig:
        fixed = _parse_static(static)
        values = {
            **fixed,
            **_parse_dynamic(dynamic_default, per_broker=False, strict=strict),
            **_parse_dynamic(dynamic, per_broker=True, strict=strict),
        }
        if strict:
            _check_together(values)
            check_served(values)
        own = _listeners(fixed)
        derived: dict[str, Any] = {
            **own,
            **_quorum(fixed, (*own["listeners"], *own["advertised_listeners"])),
            **{name.replace(".", "_"): values.get(name, LONG_MAX) for name in _RATES},
            **_directories(fixed),
            "max_connections_per_ip_overrides": _overrides(values),
            "topic_defaults": _topic_defaults(values),
            "values": values,
            "static": static,
            "dynamic": dynamic,
            "dynamic_default": dynamic_default,
        }
        direct = {f.name: values[f.name.replace("_", ".")] for f in fields(cls) if f.name not in derived}
        return cls(**cast(dict[str, Any], direct), **derived)


def _with_node_id(static: dict[str, str]) -> dict[str, str]:
    """broker.id is the older name of node.id; either gives both."""
    node, broker = static.get("node.id"), static.get("broker.id")
    if node is not None and broker is not None and node.strip() != broker.strip():
        raise ConfigError("You must set `node.id` to the same value as `broker.id`.")
    if (given := node if node is not None else broker) is not None:
        static["node.id"] = static["broker.id"] = given
    return static


def _parse_static(static: Mapping[str, str]) -> dict[str, ConfigValue]:
    values: dict[str, ConfigValue] = {name: definition.default for name, definition in BROKER_CONFIGS.items()}
    for name, text in static.items():
        definition = find_definition(name)
        values[name] = definition.parse(text) if definition is not None else text
    return values


def _parse_dynamic(texts: Mapping[str, str], *, per_broker: bool, strict: bool) -> dict[str, ConfigValue]:
    values: dict[str, ConfigValue] = {}
    for name, text in texts.items():
        definition = find_definition(name)
        if definition is None or definition.update is Update.READ_ONLY:
            continue
        if definition.update is Update.PER_BROKER and not per_broker:
            continue
        try:
            values[name] = definition.parse(text)
        except ConfigError:
            if strict:
                raise
    return values


def _check_together(values: Mapping[str, ConfigValue]) -> None:
    """Checks between keys, and of keys whose weaker units have other bounds."""
    if (retention := _retention_ms(values)) == 0 or retention < -1:
        raise ConfigError("log.retention.ms must be unlimited (-1) or, greater than or equal to 1")
    if _in_ms(values, "log.roll.ms", ("log.roll.hours", _HOUR_MS)) < 1:
        raise ConfigError("log.roll.ms must be greater than or equal to 1")
    if _in_ms(values, "log.roll.jitter.ms", ("log.roll.jitter.hours", _HOUR_MS)) < 0:
        raise ConfigError("log.roll.jitter.ms must be greater than or equal to 0")
    queued, largest = _int(values, "queued.max.request.bytes"), _int(values, "socket.request.max.bytes")
    if 0 < queued < largest:
        raise ConfigError("queued.max.request.bytes must be larger or equal to socket.request.max.bytes")


def _listeners(values: Mapping[str, ConfigValue]) -> dict[str, Any]:
    protocols = addresses.parse_protocol_map(cast(str, values["listener.security.protocol.map"]))
    controller_names = dict.fromkeys(name.upper() for name in _list(values, "controller.listener.names"))
    if protocols == addresses.parse_protocol_map(cast(str, BROKER_CONFIGS["listener.security.protocol.map"].default)):
        protocols |= {name: "PLAINTEXT" for name in controller_names if name not in protocols}
    listening = addresses.parse_endpoints("listeners", _list(values, "listeners"), protocols)
    addresses.check_ports_differ(listening)
    given = values["advertised.listeners"]
    advertised = (
        tuple(endpoint for endpoint in listening if endpoint.listener not in controller_names)
        if given is None
        else addresses.parse_endpoints("advertised.listeners", _list(values, "advertised.listeners"), protocols)
    )
    is_broker = "broker" in _list(values, "process.roles")
    if is_broker:
        addresses.check_advertised(advertised, listening)
    return {
        "listeners": listening,
        "advertised_listeners": advertised,
        "inter_broker_listener_name": quorum.inter_broker_listener(values, advertised) if is_broker else "",
    }


def _quorum(values: Mapping[str, ConfigValue], own: Sequence[addresses.Endpoint]) -> dict[str, Any]:
    voters = quorum.parse_voters(_list(values, "controller.quorum.voters"))
    quorum.check_roles(values, voters)
    servers = quorum.parse_bootstrap_servers(_list(values, "controller.quorum.bootstrap.servers"))
    if "controller" in _list(values, "process.roles") and not quorum.name_others(servers, own):
        servers = ()
    return {"controller_quorum_voters": voters, "controller_quorum_bootstrap_servers": servers}


def _overrides(values: Mapping[str, ConfigValue]) -> Mapping[str, int]:
    return addresses.parse_connection_overrides(cast(str, values["max.connections.per.ip.overrides"]))


def _directories(values: Mapping[str, ConfigValue]) -> dict[str, Any]:
    directories = _list(values, "log.dirs") or _list(values, "log.dir")
    if not directories or "" in directories:
        raise ConfigError("At least one log directory must be defined via log.dirs or log.dir.")
    metadata = values["metadata.log.dir"]
    return {"log_dirs": directories, "metadata_log_dir": metadata if isinstance(metadata, str) else directories[0]}


def _int(values: Mapping[str, ConfigValue], key: str) -> int:
    return cast(int, values[key])


def _list(values: Mapping[str, ConfigValue], key: str) -> tuple[str, ...]:
    return cast("tuple[str, ...]", values[key] or ())


def _in_ms(values: Mapping[str, ConfigValue], key: str, *weaker: tuple[str, int]) -> int:
    """A time by its key in milliseconds, or by the first set key of a coarser unit."""
    if values[key] is not None:
        return _int(values, key)
    for name, unit_ms in weaker:
        if values[name] is not None:
            return _int(values, name) * unit_ms
    return -1


def _retention_ms(values: Mapping[str, ConfigValue]) -> int:
    found = _in_ms(values, "log.retention.ms", ("log.retention.minutes", _MINUTE_MS), ("log.retention.hours", _HOUR_MS))
    return -1 if values["log.retention.ms"] is None and found < 0 else found


def _topic_defaults(values: Mapping[str, ConfigValue]) -> TopicConfig:
    """What topics come to on a broker with these values."""
    texts: dict[str, ConfigValue] = {
        name: values[definition.synonyms[0]] for name, definition in TOPIC_CONFIGS.items() if definition.synonyms
    }
    texts["retention.ms"] = _retention_ms(values)
    texts["segment.ms"] = _in_ms(values, "log.roll.ms", ("log.roll.hours", _HOUR_MS))
    texts["segment.jitter.ms"] = _in_ms(values, "log.roll.jitter.ms", ("log.roll.jitter.hours", _HOUR_MS))
    texts["flush.ms"] = _in_ms(values, "log.flush.interval.ms", ("log.flush.scheduler.interval.ms", 1))
    return replace(TopicConfig(), **_attributes(texts))


_SPECIAL: Final[dict[str, Callable[[Any], dict[str, Any]]]] = {
    "cleanup.policy": lambda value: {"cleanup_delete": "delete" in value, "cleanup_compact": "compact" in value},
    "message.timestamp.type": lambda value: {"timestamp_type_log_append": value == "LogAppendTime"},
    "message.timestamp.before.max.ms": lambda value: {"timestamp_before_max_ms": value},
    "message.timestamp.after.max.ms": lambda value: {"timestamp_after_max_ms": value},
    "ottla.record.validation": lambda value: {"record_validation_full": value == "full"},
    "internal.segment.bytes": lambda value: {"segment_bytes": value},
}
_ATTRIBUTES: Final = frozenset(f.name for f in fields(TopicConfig))


def _attributes(values: Mapping[str, ConfigValue]) -> dict[str, Any]:
    """Topic keys and values as attributes of TopicConfig; keys that no code uses are left out."""
    attributes: dict[str, Any] = {}
    for name in sorted(values, key="internal.segment.bytes".__eq__):
        if name in _SPECIAL:
            attributes |= _SPECIAL[name](values[name])
        elif (attribute := name.replace(".", "_")) in _ATTRIBUTES:
            attributes[attribute] = values[name]
    return attributes


def resolve_topic(overrides: Mapping[str, str], broker: BrokerConfig) -> TopicConfig:
    """The config of a topic with these configs of its own. A ConfigError names the key that is wrong."""
    if not overrides:
        return broker.topic_defaults
    values: dict[str, ConfigValue] = {}
    for name, text in overrides.items():
        definition = TOPIC_CONFIGS.get(name)
        if definition is None:
            raise ConfigError(f"Unknown topic config name: {name}")
        values[name] = definition.parse(text)
    return replace(broker.topic_defaults, **_attributes(values))
