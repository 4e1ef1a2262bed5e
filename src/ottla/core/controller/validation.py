"""Kafka's rules for the names of topics."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from ottla.model.errors import ApiError, ErrorCode
from ottla.model.ids import METADATA_TOPIC
from ottla.model.limits import TOPIC_NAME_LENGTH_MAX

PARTITIONS_PER_REQUEST_MAX: Final = 10_000
_LEGAL: Final = re.compile(r"[a-zA-Z0-9._-]+")


def check_topic_name(name: str) -> None:
    """INVALID_TOPIC_EXCEPTION unless a topic may be called so."""
    complaint = topic_name_complaint(name)
    if complaint is not None:
        raise ApiError(ErrorCode.INVALID_TOPIC_EXCEPTION, complaint)


def topic_name_complaint(name: str) -> str | None:
    """Why no topic may be called so; None if one may."""
    complaint = _complaint(name)
    return None if complaint is None else f"Topic name is invalid: {complaint}"


def _complaint(name: str) -> str | None:
    if not name:
        return "the empty string is not allowed"
    if name in (".", ".."):
        return f"'{name}' is not allowed"
    if len(name) > TOPIC_NAME_LENGTH_MAX:
        return f"the length of '{name}' is longer than the max allowed length {TOPIC_NAME_LENGTH_MAX}"
    if not _LEGAL.fullmatch(name):
        return f"'{name}' contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'"
    return None


def check_not_internal(name: str) -> None:
    """INVALID_REQUEST for the metadata log, which no client creates."""
    if name == METADATA_TOPIC:
        raise ApiError(ErrorCode.INVALID_REQUEST, f"Creation of internal topic {name} is prohibited.")


class CollisionIndex:
    """Finds a topic whose name differs from a new one only in `.` and `_`: their metrics would be one."""

    __slots__ = ("_names",)

    def __init__(self, names: Iterable[str] = ()) -> None:
        self._names: dict[str, set[str]] = {}
        for name in names:
            self.add(name)

    def find(self, name: str) -> str | None:
        """The name of a topic that collides; a topic does not collide with itself."""
        if not _can_collide(name):
            return None
        return min((other for other in self._names.get(_normal(name), ()) if other != name), default=None)

    def add(self, name: str) -> None:
        if _can_collide(name):
            self._names.setdefault(_normal(name), set()).add(name)

    def discard(self, name: str) -> None:
        names = self._names.get(_normal(name))
        if names is not None:
            names.discard(name)
            if not names:
                del self._names[_normal(name)]


def _can_collide(name: str) -> bool:
    return "." in name or "_" in name


def _normal(name: str) -> str:
    return name.replace(".", "_")
