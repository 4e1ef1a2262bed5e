"""`ottla cluster reassign`: replicas to other brokers, and how far that is."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from ottla.cli.failures import CommandError, Exit, UsageError, say
from ottla.cli.options import DEFAULT_BOOTSTRAP, Bootstrap, Output, OutputOption, chosen_output, connect
from ottla.cli.output import write_json, write_rows
from ottla.cli.partition_choice import chosen_partitions, parse_choice
from ottla.cli.reassign_file import plan_text, read_plan_file
from ottla.cli.reassigning import carry_out, layout
from ottla.cli.replica_plan import Move, Placement, Planner, new_replicas
from ottla.cli.replication_throttle import clear_throttle, throttled_topics
from ottla.cli.sizes import parse_size_bytes
from ottla.client.admin import Admin
from ottla.client.cluster import Cluster
from ottla.client.reassignments import Reassignments
from ottla.model.ids import TopicPartition

EPILOG = (
    "`ottla cluster reassign --all-topics --dry-run`  (what would even out all brokers)  \n"
    "`ottla cluster reassign orders --to 1,2,4 --throttle 20MB`  \n"
    "`ottla cluster reassign orders --replication-factor 3`  \n"
    "`ottla cluster reassign orders:0 --replicas 3,1,2`  \n"
    "`ottla cluster reassign orders --export > plan.json`, then `ottla cluster reassign --from-file plan.json`  \n"
    "`ottla cluster reassign --list`, `ottla cluster reassign --cancel`"
)


def reassign(
    topics: Annotated[
        list[str] | None,
        typer.Argument(metavar="[TOPIC[:0,1]]...", help="Topics, or some of their partitions.", show_default=False),
    ] = None,
    all_topics: Annotated[bool, typer.Option("--all-topics", help="Every topic, the broker's own included.")] = False,
    to: Annotated[
        str | None,
        typer.Option("--to", metavar="1,2,3", help="Onto these brokers, evenly; by default all that run."),
    ] = None,
    replication_factor: Annotated[
        int | None,
        typer.Option("--replication-factor", "-r", min=1, max=1000, help="Copies; by default as many as now."),
    ] = None,
    replicas: Annotated[
        str | None,
        typer.Option("--replicas", metavar="1,2,3", help="Exactly these, the first of which is to lead."),
    ] = None,
    from_file: Annotated[
        Path | None,
        typer.Option("--from-file", metavar="JSON", help="What a file says, as Kafka's tool writes it."),
    ] = None,
    throttle: Annotated[
        str | None,
        typer.Option("--throttle", metavar="20MB", help="At most so many bytes a second to and from each broker."),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what would be done.")] = False,
    export: Annotated[bool, typer.Option("--export", help="Only write the plan, as JSON for --from-file.")] = False,
    no_wait: Annotated[bool, typer.Option("--no-wait", help="Do not wait until everything has moved.")] = False,
    listing: Annotated[bool, typer.Option("--list", help="Show what moves just now.")] = False,
    cancel: Annotated[bool, typer.Option("--cancel", help="Stop what moves; what was there stays.")] = False,
    lift_throttle: Annotated[bool, typer.Option("--clear-throttle", help="Lift the limit of --throttle.")] = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    output: OutputOption = None,
) -> None:
    """Move replicas to other brokers, with as little copying as an even load needs, and wait for it."""
    wanted = _Wanted(topics or (), all_topics, to, replication_factor, replicas, from_file)
    rate_bytes = None if throttle is None else parse_size_bytes(throttle, "--throttle")
    if rate_bytes == 0:
        raise UsageError("--throttle 0 would stop all copying: say how much may be copied")
    if listing + cancel + lift_throttle > 1:
        raise UsageError("--list, --cancel and --clear-throttle exclude each other")
    if no_wait and rate_bytes is not None:
        say("the throttle stays until `ottla cluster reassign --clear-throttle`")
    with connect(bootstrap) as cluster:
        if listing:
            _list(cluster, wanted, output)
        elif cancel:
            _cancel(cluster, wanted, output, dry_run=dry_run)
        elif lift_throttle:
            _clear(cluster)
        else:
            _reassign(cluster, wanted, output, rate_bytes, dry_run=dry_run, export=export, wait=not no_wait)


class _Wanted:
    """What the command line asks for."""

    def __init__(
        self,
        topics: Sequence[str],
        all_topics: bool,
        to: str | None,
        replication_factor: int | None,
        replicas: str | None,
        from_file: Path | None,
    ) -> None:
        self.choices = [parse_choice(topic, "TOPIC") for topic in topics]
        self.all_topics = all_topics
        self.to = None if to is None else _broker_ids(to, "--to")
        self.replication_factor = replication_factor
        self.replicas = None if replicas is None else _broker_ids(replicas, "--replicas")
        self.from_file = from_file
        if self.choices and all_topics:
            raise UsageError("say either topics or --all-topics")
        if from_file is not None and (self.choices or all_topics or to or replicas or replication_factor):
            raise UsageError("--from-file says it all: leave out topics, --to, --replicas and --replication-factor")
        if self.replicas is not None and (self.to is not None or replication_factor is not None):
            raise UsageError("--replicas says it all: leave out --to and --replication-factor")

    def partitions(self, cluster: Cluster, now: Placement) -> list[TopicPartition]:
        if self.choices:
            return chosen_partitions(cluster, self.choices)
        if self.all_topics:
            return sorted(now)
        raise UsageError("say of which topics: TOPIC, TOPIC:0,1 or --all-topics; or --from-file, --list, --cancel")

    def plan(self, cluster: Cluster) -> tuple[list[Move], list[Move]]:
        """What has to move, and what moves already to where it is to be."""
        now, under_way = layout(cluster)
        if self.from_file is not None:
            wanted = read_plan_file(self.from_file, "--from-file")
            moves, partitions = _listed(now, wanted), list(wanted)
        else:
            partitions = self.partitions(cluster, now)
            moves = self._moves(cluster, now, partitions)
        changed = {move.partition for move in moves}
        return moves, [under_way[found] for found in partitions if found in under_way and found not in changed]

    def _moves(self, cluster: Cluster, now: Placement, partitions: list[TopicPartition]) -> list[Move]:
        if self.replicas is not None:
            return _listed(now, dict.fromkeys(partitions, self.replicas))
        planner = Planner(now, _allowed(cluster, self.to))
        for partition in partitions:
            planner.place(partition, self.replication_factor)
        planner.spread()
        planner.share_leaders()
        return planner.moves()


def _broker_ids(text: str, option: str) -> tuple[int, ...]:
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isdecimal() and len(part) < 10 for part in parts) or len(set(parts)) != len(parts):
        raise UsageError(f"{option} {text!r}: write different broker ids with commas between them, such as 1,2,3")
    return tuple(map(int, parts))


def _allowed(cluster: Cluster, to: Sequence[int] | None) -> dict[int, str | None]:
    racks = {broker.node_id: broker.rack for broker in cluster.brokers()}
    unknown = [broker for broker in to or () if broker not in racks]
    if unknown:
        running = ", ".join(map(str, sorted(racks)))
        raise CommandError(f"broker {unknown[0]} does not run: there are brokers {running}", Exit.NOT_FOUND)
    return racks if to is None else {broker: racks[broker] for broker in to}


def _listed(now: Placement, wanted: Placement) -> list[Move]:
    for partition in wanted:
        if partition not in now:
            raise CommandError(f"there is no partition {partition}", Exit.NOT_FOUND)
    return [
        Move(partition, now[partition], replicas)
        for partition, replicas in sorted(wanted.items())
        if now[partition] != replicas
    ]


def _reassign(
    cluster: Cluster,
    wanted: _Wanted,
    output: Output | None,
    rate_bytes: int | None,
    *,
    dry_run: bool,
    export: bool,
    wait: bool,
) -> None:
    moves, under_way = wanted.plan(cluster)
    if export:
        sys.stdout.write(plan_text(moves))
        return
    if (moves or under_way) and not dry_run:
        carry_out(cluster, moves, throttle_bytes=rate_bytes, wait=wait, under_way=under_way)
    show_moves(moves, output, executed=not dry_run)
    copies = f"{len(moves)} partition{'' if len(moves) == 1 else 's'}, {new_replicas(moves)} new replicas"
    if not moves:
        say(f"{len(under_way)} partitions were on their way already" if under_way else "nothing has to move")
    elif dry_run:
        say(f"nothing was changed: without --dry-run this would move {copies}")
    else:
        say(f"moved {copies}" if wait else f"moving {copies}: `ottla cluster reassign --list` shows how far that is")


def show_moves(moves: Sequence[Move], output: Output | None, *, executed: bool) -> None:
    """The plan, or what was done of it."""
    rows = [
        {
            "topic": move.partition.topic,
            "partition": move.partition.partition,
            "before": list(move.before),
            "after": list(move.after),
        }
        for move in moves
    ]
    chosen = chosen_output(output)
    if chosen is Output.JSON:
        write_json({"executed": executed, "moves": rows})
    elif rows:
        write_rows(rows, ("topic", "partition", "before", "after"), chosen)


def _list(cluster: Cluster, wanted: _Wanted, output: Output | None) -> None:
    named = chosen_partitions(cluster, wanted.choices) if wanted.choices else None
    rows = [
        {
            "topic": partition.topic,
            "partition": partition.partition,
            "replicas": list(moving.replicas),
            "adding": list(moving.adding),
            "removing": list(moving.removing),
        }
        for partition, moving in sorted(Reassignments(cluster).under_way(named).items())
    ]
    write_rows(rows, ("topic", "partition", "replicas", "adding", "removing"), chosen_output(output))


def _cancel(cluster: Cluster, wanted: _Wanted, output: Output | None, *, dry_run: bool) -> None:
    reassignments = Reassignments(cluster)
    named = chosen_partitions(cluster, wanted.choices) if wanted.choices else None
    moving = reassignments.under_way(named)
    before = {
        partition: tuple(broker for broker in move.replicas if broker not in move.adding)
        for partition, move in moving.items()
    }
    moves = [Move(partition, moving[partition].target, replicas) for partition, replicas in sorted(before.items())]
    refused = {} if dry_run or not moves else reassignments.cancel(before)
    for error in refused.values():
        say(str(error))
    show_moves([move for move in moves if move.partition not in refused], output, executed=not dry_run)
    if refused:
        raise CommandError(f"{len(refused)} of {len(moves)} moves could not be stopped")
    say("nothing moves" if not moves else f"{'would stop' if dry_run else 'stopped'} {len(moves)} moves")


def _clear(cluster: Cluster) -> None:
    admin = Admin(cluster)
    topics = throttled_topics(cluster)
    clear_throttle(admin, topics)
    say(f"no throttle any more ({len(topics)} topics had one)")
