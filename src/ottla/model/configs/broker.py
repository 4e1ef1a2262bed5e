"""Broker keys: every key that Kafka 4.3 has, and Ottla's own. Setting any other is an error."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import Final

from ottla.model.configs.broker_cluster import CLUSTER_KEYS
from ottla.model.configs.broker_coordinators import COORDINATORS_KEYS
from ottla.model.configs.broker_log import LOG_KEYS
from ottla.model.configs.broker_network import NETWORK_KEYS
from ottla.model.configs.broker_security import SECURITY_KEYS
from ottla.model.configs.broker_tiered import TIERED_KEYS
from ottla.model.configs.checks import at_least, one_of
from ottla.model.configs.declare import CLUSTER_WIDE, LONG, LONG_MAX, STRING, accepted, effective
from ottla.model.configs.definition import ConfigDefinition
from ottla.model.configs.quorum import cluster_id
from ottla.model.errors import ConfigError

_OTTLA_KEYS: Final = (
    effective(
        "cluster.id",
        STRING,
        None,
        "The cluster's id, for a directory that has none yet; the same on every node. Drawn by a node that is alone.",
        cluster_id,
    ),
    effective(
        "ottla.record.validation",
        STRING,
        "header",
        "What is checked of a produced batch where its topic does not say: `header`, or every record in `full`.",
        one_of("header", "full"),
        update=CLUSTER_WIDE,
    ),
)

_DYNAMIC_ONLY: Final = (
    effective(
        "follower.replication.throttled.rate",
        LONG,
        LONG_MAX,
        "Bytes per second that throttled replicas fetch.",
        at_least(0),
        update=CLUSTER_WIDE,
    ),
    effective(
        "leader.replication.throttled.rate",
        LONG,
        LONG_MAX,
        "Bytes per second that throttled replicas are sent.",
        at_least(0),
        update=CLUSTER_WIDE,
    ),
    accepted(
        "replica.alter.log.dirs.io.max.bytes.per.second",
        LONG,
        LONG_MAX,
        "Bytes per second moved between log directories.",
        at_least(0),
        update=CLUSTER_WIDE,
    ),
)

BROKER_CONFIGS: Final[Mapping[str, ConfigDefinition]] = {
    definition.name: definition
    for definition in (
        *CLUSTER_KEYS,
        *COORDINATORS_KEYS,
        *LOG_KEYS,
        *NETWORK_KEYS,
        *SECURITY_KEYS,
        *TIERED_KEYS,
        *_OTTLA_KEYS,
    )
}
DYNAMIC_ONLY_CONFIGS: Final[Mapping[str, ConfigDefinition]] = {key.name: key for key in _DYNAMIC_ONLY}
"""Rates that exist only while they are set through the config APIs; a file cannot hold them."""

LISTENER_PREFIX: Final = "listener.name."
_PLUGIN_PREFIXES: Final = ("rsm.config.", "rlmm.config.", "config.providers.")


def find_definition(name: str) -> ConfigDefinition | None:
    """The definition of a key, with `listener.name.<listener>.` (and `<mechanism>.`) taken off the front."""
    definition = BROKER_CONFIGS.get(name) or DYNAMIC_ONLY_CONFIGS.get(name)
    if definition is not None or not name.startswith(LISTENER_PREFIX):
        return definition
    _, _, key = name.removeprefix(LISTENER_PREFIX).partition(".")
    _, _, key_behind_mechanism = key.partition(".")
    return BROKER_CONFIGS.get(key) or BROKER_CONFIGS.get(key_behind_mechanism)


def check_static(properties: Mapping[str, str]) -> None:
    """Refuse keys that Kafka does not know; say which key was probably meant."""
    for name in properties:
        if name in DYNAMIC_ONLY_CONFIGS:
            raise ConfigError(f"Configuration {name} can be set while the broker runs, not at its start")
        if find_definition(name) is None and not name.startswith(_PLUGIN_PREFIXES):
            near = difflib.get_close_matches(name, BROKER_CONFIGS, n=1)
            hint = f", did you mean {near[0]}?" if near else ""
            raise ConfigError(f"Unknown configuration {name!r}{hint}")
