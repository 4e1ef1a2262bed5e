"""Kafka's small text files: offset checkpoints, leader epochs, a partition's topic id, a directory's identity.

Writing is atomic and synced, and blocks; see `Disk.write_atomically`. Reading raises CorruptCheckpointError on what is
neither complete nor absent. A file that is missing, or empty, says nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final
from uuid import UUID

from ottla.log.disk import Disk
from ottla.model.errors import OttlaError
from ottla.model.ids import TopicPartition, uuid_from_base64, uuid_to_base64

VERSION: Final = 0


class CorruptCheckpointError(OttlaError):
    """A checkpoint file that is not what Kafka or Ottla writes; the message names it."""


def read_lines(disk: Disk, path: str) -> list[list[str]]:
    """The fields of each entry in a checkpoint file."""
    text = _read_text(disk, path)
    if not text.strip():
        return []
    lines = text.splitlines()
    try:
        version, count = int(lines[0]), int(lines[1])
    except (ValueError, IndexError):
        raise CorruptCheckpointError(f"{path} does not begin with a version and a count") from None
    if version != VERSION or count != len(lines) - 2:
        raise CorruptCheckpointError(f"{path} has version {version} and {len(lines) - 2} entries, announced {count}")
    return [line.split() for line in lines[2:]]


def encode_lines(entries: Iterable[str]) -> bytes:
    lines = list(entries)
    return "\n".join([str(VERSION), str(len(lines)), *lines, ""]).encode()


def read_offsets(disk: Disk, path: str) -> dict[TopicPartition, int]:
    """An offset checkpoint: lines of topic, partition, offset."""
    try:
        return {
            TopicPartition(topic, int(partition)): int(offset) for topic, partition, offset in read_lines(disk, path)
        }
    except ValueError:
        raise CorruptCheckpointError(f"{path} has a line that is not `topic partition offset`") from None


def write_offsets(disk: Disk, path: str, offsets: Mapping[TopicPartition, int]) -> None:
    lines = (f"{tp.topic} {tp.partition} {offset}" for tp, offset in offsets.items())
    disk.write_atomically(path, encode_lines(lines))


def read_topic_id(disk: Disk, path: str) -> UUID | None:
    """The topic id in a `partition.metadata` file; None if there is no such file, or a crash left it empty."""
    properties = dict(line.split(":", 1) for line in _read_text(disk, path).splitlines() if ":" in line)
    topic_id = properties.get("topic_id", "").strip()
    if not topic_id:
        return None
    try:
        return uuid_from_base64(topic_id)
    except ValueError:
        raise CorruptCheckpointError(f"{path} has topic id {topic_id!r}") from None


def encode_topic_id(topic_id: UUID) -> bytes:
    return f"version: {VERSION}\ntopic_id: {uuid_to_base64(topic_id)}\n".encode()


def read_properties(disk: Disk, path: str) -> dict[str, str]:
    """A Java properties file, as far as `meta.properties` goes: `key=value` lines and comments."""
    pairs = (line.partition("=") for line in _read_text(disk, path).splitlines() if not line.startswith(("#", "!")))
    return {key.strip(): value.strip() for key, separator, value in pairs if separator}


def encode_properties(properties: Mapping[str, str]) -> bytes:
    return "".join(f"{key}={value}\n" for key, value in properties.items()).encode()


def _read_text(disk: Disk, path: str) -> str:
    try:
        return disk.read(path).decode()
    except FileNotFoundError:
        return ""
    except UnicodeDecodeError:
        raise CorruptCheckpointError(f"{path} is not text") from None
