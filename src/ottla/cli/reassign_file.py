"""Plans as files, in the JSON that Kafka's kafka-reassign-partitions reads and writes."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final, TypeGuard

from ottla.cli.failures import UsageError
from ottla.cli.options import read_input_file
from ottla.cli.replica_plan import Move
from ottla.model.ids import TopicPartition

_VERSION: Final = 1
_SHAPE: Final = 'write {"version": 1, "partitions": [{"topic": "orders", "partition": 0, "replicas": [1, 2, 3]}]}'


def read_plan_file(path: Path, option: str) -> dict[TopicPartition, tuple[int, ...]]:
    """The replicas that a file asks for; a UsageError says what is wrong with it."""
    content = read_input_file(path, option)
    try:
        return parse_plan(content)
    except ValueError as error:
        raise UsageError(f"{option} {path}: {error}; {_SHAPE}") from None


def parse_plan(content: bytes) -> dict[TopicPartition, tuple[int, ...]]:
    """ValueError says what is wrong."""
    try:
        document = json.loads(content)
    except (UnicodeDecodeError, json.JSONDecodeError, RecursionError) as error:
        raise ValueError(f"it is no JSON ({error})") from None
    if not isinstance(document, dict) or not isinstance(document.get("partitions"), list):
        raise ValueError("it has no list of partitions")
    if document.get("version", _VERSION) != _VERSION:
        raise ValueError(f"version {document['version']!r} is not known")
    plan: dict[TopicPartition, tuple[int, ...]] = {}
    for entry in document["partitions"]:
        partition, replicas = _entry(entry)
        if partition in plan:
            raise ValueError(f"{partition} is there twice")
        plan[partition] = replicas
    if not plan:
        raise ValueError("its list of partitions is empty")
    return plan


def _entry(entry: Any) -> tuple[TopicPartition, tuple[int, ...]]:
    if not isinstance(entry, dict):
        raise ValueError(f"{json.dumps(entry)} is no partition")
    topic, number, replicas = entry.get("topic"), entry.get("partition"), entry.get("replicas")
    if not isinstance(topic, str) or not topic or not _is_number(number) or not isinstance(replicas, list):
        raise ValueError(f"{json.dumps(entry)} is no partition")
    if not replicas or not all(_is_number(replica) for replica in replicas) or len(set(replicas)) != len(replicas):
        raise ValueError(f"the replicas of {topic}-{number} are no list of different broker ids")
    return TopicPartition(topic, number), tuple(replicas)


def _is_number(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 31


def plan_text(moves: Iterable[Move]) -> str:
    """What `read_plan_file` reads."""
    return placement_text({move.partition: move.after for move in moves})


def placement_text(placement: Mapping[TopicPartition, tuple[int, ...]]) -> str:
    partitions = [
        {"topic": partition.topic, "partition": partition.partition, "replicas": list(replicas)}
        for partition, replicas in sorted(placement.items())
    ]
    return json.dumps({"version": _VERSION, "partitions": partitions}, indent=1) + "\n"
