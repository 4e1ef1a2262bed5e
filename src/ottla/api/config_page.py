"""Writes docs/configs.md from the tables of keys: `python -m ottla.api.config_page docs/configs.md`."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

from ottla.model.configs.broker import BROKER_CONFIGS, DYNAMIC_ONLY_CONFIGS
from ottla.model.configs.definition import ConfigDefinition, Update
from ottla.model.configs.group import GROUP_CONFIGS
from ottla.model.configs.topic import TOPIC_CONFIGS
from ottla.model.configs.unserved import REFUSED

AREAS: Final = {
    "ssl.": "TLS",
    "sasl.": "SASL",
    "remote.log.": "tiered storage",
    "group.share.": "share groups",
    "share.": "share groups",
    "group.streams.": "streams groups",
    "streams.": "streams groups",
    "delegation.token.": "delegation tokens",
}
"""Parts of Kafka that are not there yet, by how their keys begin: one line for each is enough."""


def page() -> str:
    """The whole page."""
    broker = {**BROKER_CONFIGS, **DYNAMIC_ONLY_CONFIGS}
    refused = "\n".join(f"| `{name}` | {reason} |" for name, reason in REFUSED.items())
    return (
        "# Configs\n\n"
        "Generated from `src/ottla/model/configs` by `make docs`; do not edit. Every key of Apache Kafka 4.3 is known, "
        "checked and shown by DescribeConfigs; an unknown one is an error. Those in the first tables do something. The "
        "others are taken so that a config file of Kafka's works as it is, and a broker names at its start those that "
        "were set.\n\n"
        f"## Topics\n\n{_table(TOPIC_CONFIGS)}\n\n"
        f"## Groups\n\n{_table(GROUP_CONFIGS)}\n\n"
        f"## Brokers\n\n{_table(broker)}\n\n"
        f"## Refused\n\nThese would promise something that is not there.\n\n| key | why |\n|---|---|\n{refused}\n\n"
        f"## Without effect\n\nTopics: {_names(TOPIC_CONFIGS)}.\n\nGroups: {_names(GROUP_CONFIGS)}.\n\n"
        f"Brokers: {_names(broker)}.\n"
    )


def _table(definitions: Mapping[str, ConfigDefinition]) -> str:
    rows = "\n".join(_row(definitions[name]) for name in sorted(definitions) if definitions[name].effective)
    return f"| key | default | what it does |\n|---|---|---|\n{rows}"


def _row(definition: ConfigDefinition) -> str:
    default = definition.render(definition.default) or ""
    shown = f"`{default}`" if default else ""
    text = " ".join(definition.doc.split()).replace("|", "\\|")
    if definition.update is not Update.READ_ONLY:
        text += f" *May change while the broker runs ({definition.update.value}).*"
    return f"| `{definition.name}` | {shown} | {text} |"


def _names(definitions: Mapping[str, ConfigDefinition]) -> str:
    idle = sorted(name for name, known in definitions.items() if not known.effective and name not in REFUSED)
    areas = dict.fromkeys(_area(name) for name in idle)
    alone = (f"`{name}`" for name in idle if _area(name) == name)
    whole = (f"all of {area}" for area in areas if area in AREAS.values())
    return ", ".join([*alone, *whole])


def _area(name: str) -> str:
    found: Iterable[str] = (area for prefix, area in AREAS.items() if name.startswith(prefix))
    return next(iter(found), name)


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(page(), encoding="utf-8")
