"""Carries out a plan of moves: begins them, watches them to their end, and says what went wrong."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, NamedTuple

from ottla.cli.failures import CommandError, say
from ottla.cli.output import size_text
from ottla.cli.replica_plan import Move
from ottla.cli.replication_throttle import clear_throttle, set_throttle
from ottla.client.admin import Admin
from ottla.client.cluster import Cluster
from ottla.client.cluster_changes import ClusterChanges, ElectionType
from ottla.client.deadline import Backoff, Deadline
from ottla.client.errors import ClientError
from ottla.client.reassignments import Reassignment, Reassignments
from ottla.model.ids import TopicPartition

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

POLL_SECONDS: Final = 0.5
SIZES_EVERY_SECONDS: Final = 2.0
STALLED_SECONDS: Final = 30.0
METADATA_WAIT_MS: Final = 5_000
REFUSALS_SHOWN_MAX: Final = 10


class Copied(NamedTuple):
    """How much of the new replicas is there, and how much there will be."""

    done_bytes: int = 0
    total_bytes: int = 0


class MoveBar:
    """Partitions and bytes on standard error while a terminal watches; silent otherwise."""

    def __init__(self, progress: Progress | None = None, task: TaskID | None = None) -> None:
        self._progress = progress
        self._task = task

    def show(self, moved: int, copied: Copied) -> None:
        if self._progress is not None and self._task is not None:
            words = f"{size_text(copied.done_bytes)} of {size_text(copied.total_bytes)}" if copied.total_bytes else ""
            self._progress.update(self._task, completed=moved, copied=words)


@contextmanager
def move_bar(partitions: int) -> Iterator[MoveBar]:
    """A bar that ends with so many partitions."""
    if not sys.stderr.isatty():
        yield MoveBar()
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = (
        SpinnerColumn(),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("partitions"),
        TextColumn("{task.fields[copied]}"),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        yield MoveBar(progress, progress.add_task("move", total=partitions, copied=""))


class Layout(NamedTuple):
    """Where replicas are to be: where they are, or where they are on their way to."""

    targets: dict[TopicPartition, tuple[int, ...]]
    under_way: dict[TopicPartition, Move]
    """What moves already."""


def layout(cluster: Cluster) -> Layout:
    """Of the whole cluster."""
    moving = Reassignments(cluster).under_way()
    under_way = {
        partition: Move(partition, tuple(broker for broker in move.replicas if broker not in move.adding), move.target)
        for partition, move in moving.items()
    }
    return Layout(placement(Admin(cluster)) | {found: move.after for found, move in under_way.items()}, under_way)


def carry_out(
    cluster: Cluster, moves: Sequence[Move], *, throttle_bytes: int | None, wait: bool, under_way: Sequence[Move] = ()
) -> None:
    """Begin the moves and, if asked, wait for their end and for that of others. CommandError if not all happened."""
    admin = Admin(cluster)
    if throttle_bytes is not None:
        set_throttle(admin, moves, throttle_bytes)
    refused = Reassignments(cluster).begin({move.partition: move.after for move in moves})
    for error in list(refused.values())[:REFUSALS_SHOWN_MAX]:
        say(str(error))
    begun = [move for move in moves if move.partition not in refused]
    begun += [move for move in under_way if move.partition not in {begun.partition for begun in moves}]
    if begun and wait:
        _await(cluster, begun, throttled=throttle_bytes is not None)
    if throttle_bytes is not None and (wait or not begun):
        clear_throttle(admin, sorted({move.partition.topic for move in moves}))
    if wait:
        _check(cluster, begun)
        _give_back_leaders(cluster, begun)
    if refused:
        raise CommandError(f"{len(refused)} of {len(moves)} partitions could not be reassigned")


def _await(cluster: Cluster, moves: Sequence[Move], *, throttled: bool) -> None:
    try:
        with move_bar(len(moves)) as bar:
            _watch(cluster, moves, bar)
    except KeyboardInterrupt:
        say("the moves go on: `ottla cluster reassign --list` shows them, `ottla cluster reassign --cancel` stops them")
        if throttled:
            say("their throttle stays too: lift it with `ottla cluster reassign --clear-throttle` when they are done")
        raise


def _watch(cluster: Cluster, moves: Sequence[Move], bar: MoveBar) -> None:
    reassignments = Reassignments(cluster)
    mine = {move.partition for move in moves}
    seen, changed_at, sizes_at = (-1, Copied()), time.monotonic(), 0.0
    copied, warned = Copied(), False
    while True:
        left = {partition: move for partition, move in reassignments.under_way().items() if partition in mine}
        if not left:
            return
        now = time.monotonic()
        if now - sizes_at >= SIZES_EVERY_SECONDS:
            copied, sizes_at = _copied(cluster, moves) or copied, now
        bar.show(len(moves) - len(left), copied)
        if (len(left), copied) != seen:
            seen, changed_at, warned = (len(left), copied), now, False
        elif now - changed_at > STALLED_SECONDS and not warned:
            say(_stalled(cluster, left))
            warned = True
        time.sleep(POLL_SECONDS)


def _copied(cluster: Cluster, moves: Sequence[Move]) -> Copied | None:
    """By the sizes of the replicas on disk; None if a broker does not tell just now."""
    try:
        directories = Admin(cluster).describe_log_dirs()
    except ClientError:
        return None
    sizes: dict[tuple[TopicPartition, int], int] = {}
    for directory in directories:
        for replica in directory.replicas:
            sizes[replica.partition, directory.node_id] = replica.size_bytes
    done = total = 0
    for move in moves:
        largest = max((sizes.get((move.partition, broker), 0) for broker in (*move.before, *move.after)), default=0)
        total += largest * len(move.adding)
        done += sum(min(sizes.get((move.partition, broker), 0), largest) for broker in move.adding)
    return Copied(done, total)


def _stalled(cluster: Cluster, left: Mapping[TopicPartition, Reassignment]) -> str:
    cluster.refresh(())
    waited_for = sorted({broker for move in left.values() for broker in move.target})
    missing = [broker for broker in waited_for if broker not in cluster.metadata.brokers]
    example = next(iter(left))
    others = f" and {len(left) - 1} more" if len(left) > 1 else ""
    if missing:
        who = f"broker {missing[0]} is" if len(missing) == 1 else f"brokers {', '.join(map(str, missing))} are"
        return f"nothing has moved for {STALLED_SECONDS:.0f} s ({example}{others}): {who} not running"
    return (
        f"nothing has moved for {STALLED_SECONDS:.0f} s ({example}{others}): see `ottla cluster health` and the logs "
        f"of brokers {', '.join(map(str, waited_for))}"
    )


def _check(cluster: Cluster, moves: Sequence[Move]) -> None:
    """A move may have been stopped by somebody else, or its topic deleted."""
    backoff = Backoff(cluster.settings, Deadline(METADATA_WAIT_MS))
    while True:
        now = placement(Admin(cluster))
        other = [move.partition for move in moves if now.get(move.partition) != move.after]
        if not other:
            return
        if not backoff.wait():  # the broker that was asked may learn of it a moment after the controller
            break
    raise CommandError(
        f"{len(other)} of {len(moves)} partitions are not where they were to be ({other[0]}, ...): their moves "
        f"were stopped, or their topics deleted"
    )


def placement(admin: Admin) -> dict[TopicPartition, tuple[int, ...]]:
    """The replicas of every partition."""
    return {
        TopicPartition(topic.name, entry.partition): entry.replicas
        for topic in admin.list_topics()
        for entry in topic.partitions
    }


def _give_back_leaders(cluster: Cluster, moves: Sequence[Move]) -> None:
    """The first replica is the one that is to lead; where it cannot yet, the cluster tries again by itself."""
    try:
        ClusterChanges(cluster).elect_leaders(ElectionType.PREFERRED, [move.partition for move in moves])
    except ClientError as error:
        say(f"the partitions are moved, but leadership may still be elsewhere: {error}")
