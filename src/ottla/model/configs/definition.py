"""What a config key is: its type, default, check and documentation, and how text becomes a value and back."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, IntEnum
from typing import Final, TypeAlias

from ottla.model.errors import ConfigError

ConfigValue: TypeAlias = bool | int | float | str | tuple[str, ...] | None
Check: TypeAlias = Callable[[ConfigValue], str | None]
"""Takes a parsed value and returns what is wrong with it, or None."""


class ConfigType(IntEnum):
    """The types of config values, with the codes that DescribeConfigs sends."""

    UNKNOWN = 0
    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7
    CLASS = 8
    PASSWORD = 9


class ConfigSource(IntEnum):
    """Where a value comes from, with the codes that DescribeConfigs sends."""

    UNKNOWN = 0
    DYNAMIC_TOPIC = 1
    DYNAMIC_BROKER = 2
    DYNAMIC_DEFAULT_BROKER = 3
    STATIC_BROKER = 4
    DEFAULT = 5
    DYNAMIC_BROKER_LOGGER = 6
    DYNAMIC_CLIENT_METRICS = 7
    DYNAMIC_GROUP = 8


class ResourceType(IntEnum):
    """What a config belongs to, with the codes of the config APIs and of ConfigRecord."""

    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


class Update(Enum):
    """How a broker key may change while the broker runs."""

    READ_ONLY = "read-only"
    PER_BROKER = "per-broker"
    CLUSTER_WIDE = "cluster-wide"


_INTEGER: Final = re.compile(r"[+-]?[0-9]+")
_DECIMAL: Final = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")
_BITS: Final = {ConfigType.SHORT: 16, ConfigType.INT: 32, ConfigType.LONG: 64}


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigDefinition:
    """One key. `effective` says whether Ottla acts on it, or merely accepts, checks and shows it."""

    name: str
    type: ConfigType
    default: ConfigValue
    doc: str
    check: Check | None = None
    update: Update = Update.READ_ONLY
    synonyms: tuple[str, ...] = ()
    """Broker keys that a topic or group key falls back on, the strongest first."""
    effective: bool = False
    internal: bool = False
    """May be set, but is not listed by DescribeConfigs."""

    @property
    def sensitive(self) -> bool:
        return self.type is ConfigType.PASSWORD

    def parse(self, text: str) -> ConfigValue:
        """The value that `text` stands for; a ConfigError in Kafka's words names the key otherwise."""
        text = text if self.type is ConfigType.PASSWORD else text.strip()
        value = self._convert(text)
        complaint = self.check(value) if self.check is not None else None
        if complaint is not None:
            raise self.refuse(value, complaint)
        return value

    def refuse(self, value: ConfigValue, complaint: str) -> ConfigError:
        shown = "[hidden]" if self.sensitive else render_loosely(value)
        return ConfigError(f"Invalid value {shown} for configuration {self.name}: {complaint}")

    def render(self, value: ConfigValue) -> str | None:
        """The text that DescribeConfigs shows for a parsed value."""
        return render(value)

    def _convert(self, text: str) -> ConfigValue:
        if self.type is ConfigType.BOOLEAN:
            return self._boolean(text)
        if self.type in _BITS:
            return self._integer(text, _BITS[self.type])
        if self.type is ConfigType.DOUBLE:
            if not _DECIMAL.fullmatch(text):
                raise self.refuse(text, f"Not a number of type {self.type.name}")
            return float(text)
        if self.type is ConfigType.LIST:
            return tuple(dict.fromkeys(part.strip() for part in text.split(","))) if text else ()
        return text

    def _boolean(self, text: str) -> bool:
        lowered = text.lower()
        if lowered not in ("true", "false"):
            raise self.refuse(text, "Expected value to be either true or false")
        return lowered == "true"

    def _integer(self, text: str, bits: int) -> int:
        # int() alone would take "1_000" and digits of other scripts.
        if len(text) > 40 or not _INTEGER.fullmatch(text) or not -(1 << bits - 1) <= int(text) < 1 << bits - 1:
            raise self.refuse(text, f"Not a number of type {self.type.name}")
        return int(text)


def render(value: ConfigValue) -> str | None:
    """A value as text, spelt as Kafka spells it."""
    if value is None:
        return None
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return _render_double(value)
    if isinstance(value, tuple):
        return ",".join(value)
    return str(value)


def render_loosely(value: ConfigValue) -> str:
    """A value as it appears in a complaint: a list in brackets, no value as `null`."""
    if isinstance(value, tuple):
        return "[" + ", ".join(value) + "]"
    return render(value) or ("null" if value is None else "")


def _render_double(value: float) -> str:
    """As Java prints a double: plain from a thousandth to ten million, else with an exponent."""
    if value == 0 or 1e-3 <= abs(value) < 1e7:
        return repr(value)
    digits, _, exponent = f"{value!r}".partition("e")
    if not exponent:
        digits, _, exponent = f"{value:.16e}".partition("e")
        digits = digits.rstrip("0")
    digits = digits if "." in digits else digits + ".0"
    digits = digits + "0" if digits.endswith(".") else digits
    return f"{digits}E{int(exponent)}"
