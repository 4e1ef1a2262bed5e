"""`TOPIC` or `TOPIC:0,1,2` on a command line, and the partitions that it means."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ottla.cli.failures import CommandError, Exit, UsageError
from ottla.client.cluster import Cluster
from ottla.model.ids import TopicPartition


class PartitionChoice(NamedTuple):
    """Some partitions of a topic; None means all that it has."""

    topic: str
    numbers: tuple[int, ...] | None


def parse_choice(text: str, option: str = "--topic") -> PartitionChoice:
    """A topic's name, with or without a colon and partition numbers behind it."""
    topic, colon, listed = text.partition(":")
    numbers = [part.strip() for part in listed.split(",")]
    if not topic or (colon and not all(part.isdecimal() and len(part) < 10 for part in numbers)):
        raise UsageError(f"{option} {text!r}: write TOPIC, or TOPIC:0,1,2 for some of its partitions")
    return PartitionChoice(topic, tuple(sorted({int(part) for part in numbers})) if colon else None)


def chosen_partitions(cluster: Cluster, choices: Sequence[PartitionChoice]) -> list[TopicPartition]:
    """Every partition that was chosen, once; an error names one that there is not."""
    chosen: set[TopicPartition] = set()
    for choice in choices:
        known = {entry.partition for entry in cluster.topic(choice.topic).partitions}
        wanted = known if choice.numbers is None else set(choice.numbers)
        unknown = sorted(wanted - known)
        if unknown:
            raise CommandError(
                f"topic {choice.topic!r} has no partition {unknown[0]}: it has partitions 0 to {len(known) - 1}",
                Exit.NOT_FOUND,
            )
        chosen |= {TopicPartition(choice.topic, number) for number in wanted}
    return sorted(chosen)
