"""Transactions in the metadata log: records in several batches that take effect together, or never.

Ottla's controllers need none, since they write what belongs together in one batch. Apache Kafka begins every log with
one, and Ottla reads such logs.
"""

from __future__ import annotations

from collections.abc import Iterable

from ottla.core.controller.records import (
    AbortTransactionRecord,
    BeginTransactionRecord,
    EndTransactionRecord,
    Record,
)
from ottla.model.errors import CorruptLogError


class MetadataTransaction:
    """Holds the records of an open transaction back. Takes all records of a log, in their order."""

    __slots__ = ("_held",)

    def __init__(self) -> None:
        self._held: list[Record] | None = None

    @property
    def is_open(self) -> bool:
        return self._held is not None

    def effective(self, records: Iterable[Record]) -> Iterable[Record]:
        """The records that take effect with these."""
        effective: list[Record] = []
        for record in records:
            if isinstance(record, BeginTransactionRecord):
                self._begin()
            elif isinstance(record, (EndTransactionRecord, AbortTransactionRecord)):
                held = self._end()
                effective += held if isinstance(record, EndTransactionRecord) else ()
            else:
                (effective if self._held is None else self._held).append(record)
        return effective

    def _begin(self) -> None:
        if self._held is not None:
            raise CorruptLogError("a transaction of the metadata log begins in another one")
        self._held = []

    def _end(self) -> list[Record]:
        held, self._held = self._held, None
        if held is None:
            raise CorruptLogError("a transaction of the metadata log ends that has not begun")
        return held
