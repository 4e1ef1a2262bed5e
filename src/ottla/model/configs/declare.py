"""The words that the tables of keys are written in."""

from __future__ import annotations

from functools import partial
from typing import Final

from ottla.model.configs.definition import Check, ConfigDefinition, ConfigType, ConfigValue, Update

BOOLEAN: Final = ConfigType.BOOLEAN
STRING: Final = ConfigType.STRING
INT: Final = ConfigType.INT
SHORT: Final = ConfigType.SHORT
LONG: Final = ConfigType.LONG
DOUBLE: Final = ConfigType.DOUBLE
LIST: Final = ConfigType.LIST
CLASS: Final = ConfigType.CLASS
PASSWORD: Final = ConfigType.PASSWORD
PER_BROKER: Final = Update.PER_BROKER
CLUSTER_WIDE: Final = Update.CLUSTER_WIDE
INT_MAX: Final = 2**31 - 1
LONG_MAX: Final = 2**63 - 1
DOUBLE_MAX: Final = 1.7976931348623157e308


def _declare(
    name: str,
    type_: ConfigType,
    default: ConfigValue,
    doc: str,
    check: Check | None = None,
    *,
    update: Update = Update.READ_ONLY,
    synonyms: tuple[str, ...] = (),
    internal: bool = False,
    effective: bool,
) -> ConfigDefinition:
    return ConfigDefinition(
        name=name,
        type=type_,
        default=default,
        doc=doc,
        check=check,
        update=update,
        synonyms=synonyms,
        internal=internal,
        effective=effective,
    )


effective = partial(_declare, effective=True)
"""A key that Ottla acts on."""
accepted = partial(_declare, effective=False)
"""A key that is checked, stored and shown, and that Ottla does not act on."""
