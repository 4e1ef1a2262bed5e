"""`ottla cluster elect`: leaders where they belong, or any at all."""

from __future__ import annotations

from typing import Annotated

import typer

from ottla.cli.failures import CommandError, UsageError, say
from ottla.cli.options import DEFAULT_BOOTSTRAP, Bootstrap, OutputOption, chosen_output, connect
from ottla.cli.output import write_rows
from ottla.cli.partition_choice import chosen_partitions, parse_choice
from ottla.client.admin import Admin
from ottla.client.cluster import Cluster
from ottla.client.cluster_changes import ClusterChanges, ElectionResult, ElectionType
from ottla.client.metadata import NO_LEADER, PartitionMetadata
from ottla.model.ids import TopicPartition

EPILOG = (
    "`ottla cluster elect --all-topics`  (leadership back to the first replicas)  \n"
    "`ottla cluster elect orders:0,1 --dry-run`  \n"
    "`ottla cluster elect orders --unclean`  (a leader at any price: may lose records)"
)


def elect(
    topics: Annotated[
        list[str] | None,
        typer.Argument(metavar="[TOPIC[:0,1]]...", help="Topics, or some of their partitions.", show_default=False),
    ] = None,
    all_topics: Annotated[bool, typer.Option("--all-topics", help="Every topic.")] = False,
    unclean: Annotated[
        bool,
        typer.Option(
            "--unclean", help="Give partitions that have no leader any replica that lives, even if records are lost."
        ),
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show which partitions need an election.")] = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    output: OutputOption = None,
) -> None:
    """Make the first replica of each partition its leader again, where another one leads."""
    choices = [parse_choice(topic, "TOPIC") for topic in topics or ()]
    if bool(choices) == all_topics:
        raise UsageError("say of which topics: TOPIC, TOPIC:0,1 or --all-topics")
    kind = ElectionType.UNCLEAN if unclean else ElectionType.PREFERRED
    with connect(bootstrap) as cluster:
        now = _partitions(cluster)
        chosen = chosen_partitions(cluster, choices) if choices else sorted(now)
        needed = [partition for partition in chosen if _needs_election(now[partition], kind)]
        if dry_run or not needed:
            results = [ElectionResult(partition, None) for partition in needed]
        else:
            results = ClusterChanges(cluster).elect_leaders(kind, needed)
    rows = [_row(result, now[result.partition], kind) for result in results]
    write_rows(rows, ("topic", "partition", "leader", "elected", "error"), chosen_output(output))
    _conclude(results, dry_run=dry_run)


def _conclude(results: list[ElectionResult], *, dry_run: bool) -> None:
    failed = [result.error for result in results if result.error is not None]
    if failed:
        raise CommandError(f"{len(failed)} of {len(results)} elections failed; the first: {failed[0]}")
    if not results:
        say("no election is needed")
    elif dry_run:
        say(f"nothing was changed: without --dry-run {len(results)} leaders would be elected")
    else:
        say(f"elected {len(results)} leader{'' if len(results) == 1 else 's'}")


def _partitions(cluster: Cluster) -> dict[TopicPartition, PartitionMetadata]:
    return {
        TopicPartition(topic.name, entry.partition): entry
        for topic in Admin(cluster).list_topics()
        for entry in topic.partitions
    }


def _needs_election(partition: PartitionMetadata, kind: ElectionType) -> bool:
    if kind is ElectionType.UNCLEAN:
        return partition.leader == NO_LEADER
    return partition.leader != partition.replicas[0]


def _row(result: ElectionResult, before: PartitionMetadata, kind: ElectionType) -> dict[str, object]:
    elected = before.replicas[0] if kind is ElectionType.PREFERRED and result.error is None else None
    return {
        "topic": result.partition.topic,
        "partition": result.partition.partition,
        "leader": None if before.leader == NO_LEADER else before.leader,
        "elected": elected,
        "error": None if result.error is None else result.error.code.name,
    }
