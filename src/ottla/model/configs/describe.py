"""What DescribeConfigs answers: each key with its value, where the value comes from, and what lies below it.

The strongest source wins: a topic's own config, this broker's dynamic config, the cluster's dynamic default, what the
broker was started with, the built-in default. `synonyms` lists all of them that say something, the strongest first.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

from ottla.model.configs.broker import BROKER_CONFIGS, LISTENER_PREFIX, find_definition
from ottla.model.configs.definition import ConfigDefinition, ConfigSource, ConfigType, ConfigValue, Update, render
from ottla.model.configs.group import CLIENT_METRICS_CONFIGS, GROUP_CONFIGS
from ottla.model.configs.resolve import BrokerConfig, TopicConfig
from ottla.model.configs.topic import TOPIC_CONFIGS
from ottla.model.errors import ConfigError

_WEAKER_UNITS: Final[Mapping[str, tuple[str, ...]]] = {
    definition.synonyms[0]: definition.synonyms[1:]
    for definition in TOPIC_CONFIGS.values()
    if len(definition.synonyms) > 1
}
"""Broker keys that may also be given in a larger unit, as `log.retention.ms` in hours."""


class ConfigSynonym(NamedTuple):
    """A key and source that say something about a value."""

    name: str
    value: str | None
    source: ConfigSource


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigEntry:
    """One key of a described resource. A sensitive value is never shown."""

    name: str
    value: str | None
    source: ConfigSource
    read_only: bool
    sensitive: bool
    synonyms: tuple[ConfigSynonym, ...]
    type: ConfigType
    doc: str

    @property
    def is_default(self) -> bool:
        return self.source is ConfigSource.DEFAULT


def describe_topic(
    overrides: Mapping[str, str], broker: BrokerConfig, keys: Collection[str] | None = None
) -> list[ConfigEntry]:
    """The configs of a topic with these configs of its own; only `keys` if there are any."""
    entries = []
    for definition in _wanted(TOPIC_CONFIGS, keys):
        synonyms = _own(definition, overrides, ConfigSource.DYNAMIC_TOPIC)
        for broker_key in definition.synonyms[:1]:
            synonyms += _broker_synonyms(broker_key, broker)
        fallback = _topic_fallback(definition, broker.topic_defaults)
        entries.append(_entry(definition, synonyms, fallback, read_only=False))
    return entries


def describe_group(
    overrides: Mapping[str, str], broker: BrokerConfig, keys: Collection[str] | None = None
) -> list[ConfigEntry]:
    """The configs of a group with these configs of its own; only `keys` if given."""
    entries = []
    for definition in _wanted(GROUP_CONFIGS, keys):
        synonyms = _own(definition, overrides, ConfigSource.DYNAMIC_GROUP)
        for broker_key in definition.synonyms:
            synonyms += _broker_synonyms(broker_key, broker)
        if not definition.synonyms:
            synonyms.append(ConfigSynonym(definition.name, render(definition.default), ConfigSource.DEFAULT))
        entries.append(_entry(definition, synonyms, definition.default, read_only=False))
    return entries


def describe_client_metrics(overrides: Mapping[str, str], keys: Collection[str] | None = None) -> list[ConfigEntry]:
    """The configs of a client metrics subscription."""
    return [
        _entry(
            definition,
            _own(definition, overrides, ConfigSource.DYNAMIC_CLIENT_METRICS),
            definition.default,
            read_only=False,
        )
        for definition in _wanted(CLIENT_METRICS_CONFIGS, keys)
    ]


def describe_broker(broker: BrokerConfig, keys: Collection[str] | None = None) -> list[ConfigEntry]:
    """The configs of this broker: every key there is, and what else was set on it."""
    entries = [
        _entry(
            definition,
            _broker_synonyms(definition.name, broker),
            definition.default,
            read_only=definition.update is Update.READ_ONLY,
        )
        for definition in _wanted(BROKER_CONFIGS, keys)
    ]
    extra = {**broker.static, **broker.dynamic_default, **broker.dynamic}.keys() - BROKER_CONFIGS.keys()
    return entries + [_unlisted(name, _broker_synonyms(name, broker)) for name in _selected(extra, keys)]


def describe_broker_default(
    dynamic_default: Mapping[str, str], keys: Collection[str] | None = None
) -> list[ConfigEntry]:
    """The dynamic configs that hold for all brokers: only what is set."""
    return [
        _unlisted(name, [_synonym(name, dynamic_default[name], ConfigSource.DYNAMIC_DEFAULT_BROKER)])
        for name in _selected(dynamic_default, keys)
    ]


def _selected(names: Iterable[str], keys: Collection[str] | None) -> list[str]:
    return sorted(name for name in names if not keys or name in keys)


def _wanted(table: Mapping[str, ConfigDefinition], keys: Collection[str] | None) -> list[ConfigDefinition]:
    return [table[name] for name in _selected(table, keys) if not table[name].internal]


def _own(definition: ConfigDefinition, overrides: Mapping[str, str], source: ConfigSource) -> list[ConfigSynonym]:
    text = overrides.get(definition.name)
    return [] if text is None else [ConfigSynonym(definition.name, _shown(definition, text), source)]


def _broker_synonyms(name: str, broker: BrokerConfig) -> list[ConfigSynonym]:
    """What the broker's own sources say about one key, the strongest first."""
    sources = (
        (broker.dynamic, ConfigSource.DYNAMIC_BROKER),
        (broker.dynamic_default, ConfigSource.DYNAMIC_DEFAULT_BROKER),
        (broker.static, ConfigSource.STATIC_BROKER),
    )
    synonyms = [_synonym(name, texts[name], source) for texts, source in sources if name in texts]
    definition = BROKER_CONFIGS.get(name)
    if name.startswith(LISTENER_PREFIX) and (shared := find_definition(name)) is not None:
        synonyms += _broker_synonyms(shared.name, broker)
    elif definition is not None and definition.default is not None:
        synonyms.append(ConfigSynonym(name, render(definition.default), ConfigSource.DEFAULT))
    if synonyms and name in _WEAKER_UNITS:
        # Only below a value of the key itself, as in Kafka: a weaker unit says nothing in the stronger one's place.
        synonyms += [below for key in _WEAKER_UNITS[name] for below in _broker_synonyms(key, broker)]
        synonyms.sort(key=lambda synonym: synonym.source)
    return synonyms


def _synonym(name: str, text: str, source: ConfigSource) -> ConfigSynonym:
    definition = find_definition(name)
    return ConfigSynonym(name, None if definition is None else _shown(definition, text), source)


def _shown(definition: ConfigDefinition, text: str) -> str | None:
    """The text of a value as Kafka spells it: trimmed, lists without blanks; nothing of a secret."""
    if definition.sensitive:
        return None
    try:
        return render(definition.parse(text))
    except ConfigError:
        return text


def _entry(
    definition: ConfigDefinition, synonyms: list[ConfigSynonym], fallback: ConfigValue, *, read_only: bool
) -> ConfigEntry:
    strongest = synonyms[0] if synonyms else None
    value = strongest.value if strongest is not None else render(fallback)
    return ConfigEntry(
        name=definition.name,
        value=None if definition.sensitive else value,
        source=strongest.source if strongest is not None else ConfigSource.DEFAULT,
        read_only=read_only,
        sensitive=definition.sensitive,
        synonyms=tuple(synonyms),
        type=definition.type,
        doc=definition.doc,
    )


def _unlisted(name: str, synonyms: list[ConfigSynonym]) -> ConfigEntry:
    """A key that was set and may be outside the table. One that nobody knows may hold a secret: it is not shown."""
    definition = find_definition(name)
    if definition is None:
        return ConfigEntry(
            name=name,
            value=None,
            source=synonyms[0].source,
            read_only=True,
            sensitive=True,
            synonyms=tuple(synonyms),
            type=ConfigType.UNKNOWN,
            doc="",
        )
    read_only = definition.name != name or definition.update is Update.READ_ONLY
    return replace(_entry(definition, synonyms, None, read_only=read_only), name=name)


def _topic_fallback(definition: ConfigDefinition, defaults: TopicConfig) -> ConfigValue:
    """The value of a topic key about which no source says anything by its own name: it may come in a weaker unit."""
    if len(definition.synonyms) > 1:
        return int(getattr(defaults, definition.name.replace(".", "_")))
    return definition.default
