"""`ottla cluster decommission`: a broker leaves for good.

Its replicas move to the others, then it is stopped by whoever runs it, then it loses its vote, if it has one, and its
registration. The order matters: a broker that still runs would register again, and would vote again.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Final

import typer

from ottla.cli.cluster_health import quorum_or_none
from ottla.cli.cluster_reassign import show_moves
from ottla.cli.durations import duration_text, parse_duration_ms
from ottla.cli.failures import CommandError, Exit, UsageError, say
from ottla.cli.options import DEFAULT_BOOTSTRAP, Bootstrap, OutputOption, connect
from ottla.cli.reassigning import carry_out, layout, placement
from ottla.cli.replica_plan import Move, Planner, new_replicas
from ottla.cli.sizes import parse_size_bytes
from ottla.client.admin import Admin
from ottla.client.cluster import Cluster
from ottla.client.cluster_changes import ClusterChanges
from ottla.client.deadline import Deadline
from ottla.client.errors import ClientError

EPILOG = (
    "`ottla cluster decommission 4 --dry-run`  (what would move where)  \n"
    "`ottla cluster decommission 4 --throttle 50MB`  \n"
    "`ottla cluster decommission 4 --keep`  (only empties it, to replace its disks for example)"
)
POLL_SECONDS: Final = 0.5


def decommission(
    broker_id: Annotated[int, typer.Argument(metavar="ID", min=0, help="The broker's id.", show_default=False)],
    throttle: Annotated[
        str | None,
        typer.Option("--throttle", metavar="20MB", help="At most so many bytes a second to and from each broker."),
    ] = None,
    keep: Annotated[bool, typer.Option("--keep", help="Only move its replicas away; it stays a member.")] = False,
    stop_within: Annotated[
        str, typer.Option("--stop-within", metavar="10m", help="How long to wait for you to stop it.")
    ] = "10m",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what would be done.")] = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    output: OutputOption = None,
) -> None:
    """Move everything off a broker, wait until you have stopped it, and take it out of the cluster.

    May be repeated: it goes on where it was interrupted.
    """
    rate_bytes = None if throttle is None else parse_size_bytes(throttle, "--throttle")
    stop_ms = parse_duration_ms(stop_within, "--stop-within")
    if rate_bytes == 0:
        raise UsageError("--throttle 0 would stop all copying: say how much may be copied")
    with connect(bootstrap) as cluster:
        runs = _runs(cluster, broker_id)
        moves, under_way = _plan(cluster, broker_id)
        if (moves or under_way) and not dry_run:
            carry_out(cluster, moves, throttle_bytes=rate_bytes, wait=True, under_way=under_way)
        show_moves(moves, output, executed=not dry_run)
        summary = f"{len(moves)} partitions, {new_replicas(moves)} new replicas"
        if dry_run:
            say(f"nothing was changed: without --dry-run this would move {summary}, and then broker {broker_id} out")
            return
        say(f"broker {broker_id} holds nothing any more ({summary} moved)")
        if not keep:
            if runs:
                _await_stop(cluster, broker_id, stop_ms)
            _take_out(cluster, broker_id)


def _runs(cluster: Cluster, broker_id: int) -> bool:
    described = Admin(cluster).describe_cluster()
    running = [broker.node_id for broker in described.brokers]
    if broker_id not in running and broker_id not in [broker.node_id for broker in described.fenced]:
        raise CommandError(
            f"there is no broker {broker_id}: the brokers that run are {', '.join(map(str, running))}", Exit.NOT_FOUND
        )
    return broker_id in running


def _plan(cluster: Cluster, broker_id: int) -> tuple[list[Move], list[Move]]:
    """Where each of its replicas goes, and what goes already. What is nowhere else cannot move while it is down."""
    admin = Admin(cluster)
    now, moving = layout(cluster)
    racks = {broker.node_id: broker.rack for broker in cluster.brokers() if broker.node_id != broker_id}
    if not racks:
        raise CommandError(f"broker {broker_id} is the only one that runs: start others first")
    lost = [
        f"{topic.name}-{entry.partition}"
        for topic in admin.list_topics()
        for entry in topic.partitions
        if broker_id in entry.replicas and not any(broker in racks or broker == entry.leader for broker in entry.isr)
    ]
    if lost:
        raise CommandError(
            f"{len(lost)} partitions are complete on broker {broker_id} only, which does not run ({lost[0]}, ...): "
            f"start it, or give them up with `ottla cluster elect --unclean` or `ottla topic delete`"
        )
    planner = Planner(now, racks)
    mine = [partition for partition, replicas in now.items() if broker_id in replicas]
    for partition in mine:
        planner.place(partition)
    planner.share_leaders(mine)
    leaving = [move for partition, move in moving.items() if broker_id in move.before and partition not in mine]
    return planner.moves(), leaving


def _await_stop(cluster: Cluster, broker_id: int, stop_ms: int) -> None:
    say(f"stop broker {broker_id} now; waiting for that up to {duration_text(stop_ms)}")
    deadline = Deadline(stop_ms)
    with _spinner(f"waiting for broker {broker_id} to stop"):
        while _runs_still(cluster, broker_id):
            if deadline.passed():
                raise CommandError(
                    f"broker {broker_id} still runs: stop it, and repeat this command to take it out of the cluster"
                )
            time.sleep(POLL_SECONDS)


def _runs_still(cluster: Cluster, broker_id: int) -> bool:
    try:
        return any(broker.node_id == broker_id for broker in Admin(cluster).describe_cluster().brokers)
    except ClientError:
        return True  # the broker that was asked may be the one that stops; the next attempt asks another


@contextmanager
def _spinner(words: str) -> Iterator[None]:
    if not sys.stderr.isatty():
        yield
        return
    from rich.console import Console

    with Console(stderr=True).status(words):
        yield


def _take_out(cluster: Cluster, broker_id: int) -> None:
    admin, changes = Admin(cluster), ClusterChanges(cluster)
    left = [str(partition) for partition, replicas in placement(admin).items() if broker_id in replicas]
    if left:
        raise CommandError(f"{len(left)} partitions came to broker {broker_id} meanwhile ({left[0]}, ...): repeat this")
    quorum = quorum_or_none(admin)
    for voter in () if quorum is None else quorum.voters:
        if voter.node_id == broker_id:
            try:
                changes.remove_voter(broker_id, voter.directory_id)
            except ClientError as error:
                say(f"broker {broker_id} still counts as a voter of the metadata quorum: {error}")
    changes.unregister_broker(broker_id)
    say(f"broker {broker_id} is out of the cluster")
