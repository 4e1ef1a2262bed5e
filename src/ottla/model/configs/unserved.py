"""Keys whose promise Ottla does not keep: those that would protect or restrict are refused, the rest is named once.

A broker that took `authorizer.class.name` and let everybody in would be worse than one that does not start. A key that
only tunes what Ottla does in another way costs nobody anything, so that a config file of Kafka's works as it is.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from ottla.model.configs.broker import find_definition
from ottla.model.configs.definition import ConfigValue
from ottla.model.errors import ConfigError

REFUSED: Final[Mapping[str, str]] = {
    "alter.config.policy.class.name": "config policies are Java classes",
    "authorizer.class.name": "there are no ACLs yet, and everybody would be let in",
    "client.quota.callback.class": "there are no client quotas yet",
    "config.providers": "what stands for a secret would be taken for the secret",
    "create.topic.policy.class.name": "topic policies are Java classes",
    "remote.log.storage.system.enable": "there is no tiered storage yet",
    "transaction.two.phase.commit.enable": "transactions of an outer coordinator are not served",
}
"""Key, and why it is refused once it is set to anything."""


def check_served(values: Mapping[str, ConfigValue]) -> None:
    """ConfigError where a key asks for something that is not there."""
    for name, reason in REFUSED.items():
        if values.get(name):
            raise ConfigError(f"{name}: this version does not serve it: {reason}. Leave it out")


def without_effect(static: Mapping[str, str]) -> list[str]:
    """The keys that were set and change nothing: Ottla has no such part, or does it in another way."""
    definitions = ((name, find_definition(name)) for name in sorted(static))
    return [name for name, definition in definitions if definition is not None and not definition.effective]
