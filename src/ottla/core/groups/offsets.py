"""Offsets as a part of the group coordinator: which commands, records and timers are theirs.

`offset_store` keeps them, `offset_commits`, `offset_fetches` and `offset_deletions` decide what is asked about them,
`offset_expiry` forgets the old ones.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from ottla.core.coordination import Command, Outcome
from ottla.core.groups import offset_expiry, offset_sweeps
from ottla.core.groups.offset_commands import CommitOffsets, CommitTransactionalOffsets, DeleteOffsets, FetchOffsets
from ottla.core.groups.offset_commits import (
    commit_offsets,
    commit_transactional_offsets,
    replay_marker,
    replay_offset,
)
from ottla.core.groups.offset_deletions import delete_offsets, metadata_changed
from ottla.core.groups.offset_fetches import fetch_offsets
from ottla.core.groups.offset_store import OffsetStore
from ottla.core.groups.records import GroupRecord, OffsetRecord
from ottla.core.groups.table import GroupState

__all__ = ["DECISIONS", "DUE", "REPLAYS", "OffsetStore", "loaded", "metadata_changed", "replay_marker"]

DECISIONS: Final[Mapping[type[Command[Any]], Any]] = {
    CommitOffsets: commit_offsets,
    CommitTransactionalOffsets: commit_transactional_offsets,
    FetchOffsets: fetch_offsets,
    DeleteOffsets: delete_offsets,
}
REPLAYS: Final[Mapping[type[Any], Any]] = {OffsetRecord: replay_offset}
DUE: Final[Mapping[str, Any]] = {
    offset_expiry.CHECK[0]: offset_expiry.check,
    offset_sweeps.SWEEP[0]: offset_sweeps.run_slice,
}


def loaded(state: GroupState, now_ms: int) -> Outcome[GroupRecord]:
    """From now on old offsets are looked for."""
    offset_expiry.schedule(state, now_ms)
    return Outcome()
