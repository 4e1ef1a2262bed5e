"""Where `ottla group reset` moves a group's offsets to."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from ottla.cli.failures import CommandError, UsageError
from ottla.cli.start_position import OFFSET_MAX, Edge, FromOffset
from ottla.client.cluster import Cluster
from ottla.client.consumer import AtTime
from ottla.client.group_descriptions import CommittedOffset
from ottla.client.offsets import EARLIEST, LATEST, list_offsets
from ottla.model.ids import TopicPartition


class ToCurrent(NamedTuple):
    """Where it is; the end where the group has no offset. For --export, and to keep offsets from expiring."""


class ShiftBy(NamedTuple):
    """From where it is, forward or, if negative, back."""

    records: int


class ToListed(NamedTuple):
    """What a file says."""

    offsets: Mapping[TopicPartition, int]


Target = Edge | FromOffset | AtTime | ToCurrent | ShiftBy | ToListed


class PlannedOffset(NamedTuple):
    """One partition's offset, before and after."""

    partition: TopicPartition
    current: int | None
    new: int
    remark: str | None = None
    """Why it is not what was asked for."""


def read_offsets_file(text: str, group_id: str) -> dict[TopicPartition, int]:
    """Lines of `topic,partition,offset`, or `group,topic,partition,offset` of which other groups' are passed over."""
    offsets: dict[TopicPartition, int] = {}
    for number, row in enumerate(csv.reader(io.StringIO(text)), start=1):
        if not row:
            continue
        fields = [field.strip() for field in row]
        if len(fields) == 4 and fields[0] != group_id:
            continue
        if len(fields) not in (3, 4) or not all(_is_number(field) for field in fields[-2:]) or not fields[-3]:
            raise UsageError(f"--from-file, line {number}: write topic,partition,offset")
        partition = TopicPartition(fields[-3], int(fields[-2]))
        if partition in offsets:
            raise UsageError(f"--from-file, line {number}: {partition} is there twice")
        offsets[partition] = int(fields[-1])
    if not offsets:
        raise UsageError(f"--from-file: there is no line for group {group_id!r}")
    return offsets


def write_offsets_file(plan: Sequence[PlannedOffset]) -> str:
    """What `read_offsets_file` reads."""
    written = io.StringIO()
    rows = csv.writer(written, lineterminator="\n")
    rows.writerows((entry.partition.topic, entry.partition.partition, entry.new) for entry in plan)
    return written.getvalue()


def plan_reset(
    cluster: Cluster,
    target: Target,
    partitions: Sequence[TopicPartition],
    committed: Mapping[TopicPartition, CommittedOffset],
) -> list[PlannedOffset]:
    """A new offset for each partition, never outside of what its log holds."""
    firsts = list_offsets(cluster, dict.fromkeys(partitions, EARLIEST))
    ends = list_offsets(cluster, dict.fromkeys(partitions, LATEST))
    timed = list_offsets(cluster, dict.fromkeys(partitions, target.timestamp_ms)) if isinstance(target, AtTime) else {}
    plan: list[PlannedOffset] = []
    for partition in partitions:
        first, end = firsts[partition].offset, ends[partition].offset
        current = committed[partition].offset if partition in committed else None
        if isinstance(target, AtTime):
            found = timed[partition].offset
            wanted = end if found < 0 else found
        else:
            wanted = _wanted(target, partition, current, first, end)
        new = min(max(wanted, first), end)
        remark = None if new == wanted else f"{partition} holds offsets {first} to {end}: {new}, not {wanted}"
        plan.append(PlannedOffset(partition, current, new, remark))
    return plan


def _wanted(
    target: Edge | FromOffset | ToCurrent | ShiftBy | ToListed,
    partition: TopicPartition,
    current: int | None,
    first: int,
    end: int,
) -> int:
    if isinstance(target, Edge):
        return first if target.which == EARLIEST else end
    if isinstance(target, FromOffset):
        return target.offset
    if isinstance(target, ToListed):
        return target.offsets[partition]
    if isinstance(target, ToCurrent):
        return end if current is None else current
    if current is None:
        raise CommandError(f"the group has no offset in {partition} that could be shifted: say --to-offset instead")
    return current + target.records


def _is_number(text: str) -> bool:
    return text.isdecimal() and len(text) < 20 and int(text) <= OFFSET_MAX
