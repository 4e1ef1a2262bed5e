"""How files and directories of a log are called, as Kafka calls them.

A segment is `<base offset, 20 digits><kind>`. A file that is on its way in or out carries a second suffix: `.cleaned`
while compaction writes it, `.swap` when it is complete and about to replace others, `.deleted` when it only waits for
removal.
"""

from __future__ import annotations

import re
from typing import Final

from ottla.model.ids import TopicPartition

LOG: Final = ".log"
OFFSET_INDEX: Final = ".index"
TIME_INDEX: Final = ".timeindex"
TRANSACTION_INDEX: Final = ".txnindex"
PRODUCER_SNAPSHOT: Final = ".snapshot"
INDEX_KINDS: Final = (OFFSET_INDEX, TIME_INDEX, TRANSACTION_INDEX)
SEGMENT_KINDS: Final = (LOG, *INDEX_KINDS)

CLEANED: Final = ".cleaned"
SWAP: Final = ".swap"
DELETED: Final = ".deleted"
PASSING: Final = (CLEANED, SWAP, DELETED)

LEADER_EPOCHS: Final = "leader-epoch-checkpoint"
PARTITION_METADATA: Final = "partition.metadata"
GAP: Final = ".gap"
GAPS_UNTIL: Final = "compaction-gaps-checkpoint"
"""Ottla's own: below the offset in it, compaction may have left gaps between segments (`gaps.py`)."""

DIRECTORY_DELETED: Final = "-delete"
DIRECTORY_FUTURE: Final = "-future"
DIRECTORY_STRAY: Final = "-stray"
DIRECTORY_NAME_BYTES_MAX: Final = 255

_SEGMENT_FILE: Final = re.compile(r"(\d{20})(\.[a-z]+)(\.[a-z]+)?")
_GAP: Final = re.compile(r"(\d{20})-(\d{20})\.gap")
_PARTITION: Final = re.compile(r"(.+)-(\d{1,10})")


def segment_path(directory: str, base_offset: int, kind: str, suffix: str = "") -> str:
    return f"{directory}/{base_offset:020d}{kind}{suffix}"


def parse_segment_name(name: str) -> tuple[int, str, str] | None:
    """Base offset, kind and second suffix ("" for none) of a file that belongs to a segment."""
    match = _SEGMENT_FILE.fullmatch(name)
    return None if match is None else (int(match[1]), match[2], match[3] or "")


def gap_name(end_offset: int, next_offset: int) -> str:
    """Ottla's own: says that a log ended at one offset and went on at the other."""
    return f"{end_offset:020d}-{next_offset:020d}{GAP}"


def parse_gap_name(name: str) -> tuple[int, int] | None:
    match = _GAP.fullmatch(name) if name.endswith(GAP) else None
    return None if match is None else (int(match[1]), int(match[2]))


def parse_partition_name(name: str) -> TopicPartition | None:
    """The partition that a directory holds; None for one that waits for deletion, or is something else."""
    match = _PARTITION.fullmatch(name)
    return None if match is None else TopicPartition(match[1], int(match[2]))


def deletion_name(name: str, unique: str) -> str:
    """What a partition's directory is renamed to when it only waits for removal. Long names are cut, as Kafka does."""
    suffix = f".{unique}{DIRECTORY_DELETED}"
    return name[: DIRECTORY_NAME_BYTES_MAX - len(suffix)] + suffix
