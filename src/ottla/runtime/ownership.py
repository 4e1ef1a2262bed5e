"""Whose directories these are: what is asked before one is marked as ours, which cannot be taken back."""

from __future__ import annotations

from collections.abc import Iterable

from ottla.log.directory import CLEAN_SHUTDOWN, read_identity
from ottla.log.disk import Disk
from ottla.model.errors import StorageError
from ottla.model.ids import CLUSTER_FILE
from ottla.runtime.metadata_log import METADATA_PARTITION
from ottla.runtime.quorum_state import FILE_NAME, read_quorum_state


def check_ownership(disk: Disk, paths: Iterable[str], metadata_path: str) -> None:
    """StorageError if one of them is not for this broker, or not yet. Blocks."""
    paths = dict.fromkeys((*paths, metadata_path))
    for path in paths:
        _check_is_one_brokers(disk, path)
    state = read_quorum_state(disk, f"{metadata_path}/{METADATA_PARTITION}/{FILE_NAME}")
    if state is not None and state.is_kafkas:
        for path in paths:
            _check_was_left(disk, path)


def _check_is_one_brokers(disk: Disk, path: str) -> None:
    # One broker would take the directories of several for partitions that nobody owns, and set them aside.
    if disk.exists(f"{path}/{CLUSTER_FILE}"):
        raise StorageError(
            path,
            "the brokers of `ottla serve --brokers N` live there, each in a directory of its own: start them "
            "with --brokers, or give this broker another directory",
        )
    try:
        is_marked = read_identity(disk, path) is not None
    except OSError:
        return  # opening it finds that out, too, and may go on without it
    # A new identity would not be among the voters of that log, and wait for them for ever.
    if not is_marked and disk.exists(f"{path}/{METADATA_PARTITION}"):
        raise StorageError(
            path,
            "meta.properties, which says whose data this is, is missing or damaged: bring that file back, or start "
            "in another directory",
        )


def _check_was_left(disk: Disk, path: str) -> None:
    # After a crash a gap that Kafka's compaction left would be taken for a loss, and what comes after it would go.
    if disk.is_dir(path) and not disk.exists(f"{path}/{CLEAN_SHUTDOWN}"):
        raise StorageError(
            path,
            "Apache Kafka has used this directory, and was killed or still runs: stop it with SIGTERM (if it was "
            "killed, start it once more for that), then start Ottla",
        )
