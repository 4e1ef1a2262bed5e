"""`ottla txn`: list, describe, find the ones that hang, abort."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Final

import typer

from ottla.cli.durations import duration_text, parse_duration_ms
from ottla.cli.failures import UsageError, say
from ottla.cli.group_description import assignment_text
from ottla.cli.options import DEFAULT_BOOTSTRAP, Bootstrap, Output, OutputOption, choose, chosen_output, connect
from ottla.cli.output import write_json, write_pairs, write_rows
from ottla.cli.partition_choice import chosen_partitions, parse_choice
from ottla.client.admin import Admin
from ottla.client.cluster import Cluster
from ottla.client.metadata import NO_LEADER
from ottla.client.transactions import OpenTransaction, TransactionAdmin, TransactionDescription
from ottla.model.ids import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable

app = typer.Typer(add_completion=False, no_args_is_help=True, rich_markup_mode="markdown")


STATES: Final = (
    "Ongoing",
    "Empty",
    "PrepareCommit",
    "PrepareAbort",
    "CompleteCommit",
    "CompleteAbort",
    "PrepareEpochFence",
    "Dead",
)


@app.callback()
def txn() -> None:
    """List, describe and abort transactions, and find those that hang."""


@app.command(name="list", epilog="`ottla txn list`  \n`ottla txn list --state Ongoing --running-for 10m --output json`")
def list_transactions(
    state: Annotated[
        list[str] | None,
        typer.Option("--state", metavar="STATE", help="Only these: Ongoing, Empty, CompleteCommit...; several times."),
    ] = None,
    running_for: Annotated[
        str | None, typer.Option("--running-for", metavar="10m", help="Only those that are open for longer than this.")
    ] = None,
    producer_id: Annotated[
        list[int] | None, typer.Option("--producer-id", metavar="ID", help="Only of this producer; several times.")
    ] = None,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    output: OutputOption = None,
) -> None:
    """List transactional ids with their state, producer and coordinator."""
    running_ms = -1 if running_for is None else parse_duration_ms(running_for, "--running-for")
    states = choose(state, STATES, "--state")
    with connect(bootstrap) as cluster:
        found = TransactionAdmin(cluster).list_transactions(states, producer_id or (), running_ms=running_ms)
    rows = [
        {
            "transactional id": listed.transactional_id,
            "state": listed.state,
            "producer id": listed.producer_id,
            "coordinator": listed.coordinator,
        }
        for listed in found
    ]
    chosen = chosen_output(output)
    if chosen is Output.JSON:
        write_json([{key.replace(" ", "_"): value for key, value in row.items()} for row in rows])
    else:
        write_rows(rows, ("transactional id", "state", "producer id", "coordinator"), chosen)


@app.command(epilog="`ottla txn describe billing-1`")
def describe(
    transactional_id: Annotated[str, typer.Argument(metavar="ID", help="The transactional id.", show_default=False)],
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    output: OutputOption = None,
) -> None:
    """Show where a transactional id stands: state, producer, since when, in which partitions."""
    with connect(bootstrap) as cluster:
        found = TransactionAdmin(cluster).describe(transactional_id)
    chosen = chosen_output(output)
    if chosen is Output.JSON:
        write_json(_description_json(found))
        return
    pairs = {
        "transactional id": found.transactional_id,
        "state": found.state,
        "coordinator": found.coordinator,
        "producer id": found.producer_id,
        "producer epoch": found.producer_epoch,
        "time-out": duration_text(found.timeout_ms),
        "started": _moment(found.started_ms),
        "running for": duration_text(_now_ms() - found.started_ms) if found.running else None,
        "partitions": assignment_text(found.partitions),
    }
    write_pairs(pairs, chosen)


@app.command(epilog="`ottla txn hanging`  \n`ottla txn hanging --topic orders:0,1 --older-than 1h --output json`")
def hanging(
    topic: Annotated[
        list[str] | None,
        typer.Option("--topic", "-t", metavar="TOPIC[:0,1]", help="Only in this topic; several times. Else in all."),
    ] = None,
    older_than: Annotated[
        str,
        typer.Option("--older-than", metavar="15m", help="Leave out those that wrote since then."),
    ] = "15m",
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    output: OutputOption = None,
) -> None:
    """Find transactions that partitions have open and no coordinator knows. They block readers of committed records."""
    age_ms = parse_duration_ms(older_than, "--older-than")
    choices = [parse_choice(text) for text in topic or ()]
    with connect(bootstrap) as cluster:
        admin = TransactionAdmin(cluster)
        partitions = chosen_partitions(cluster, choices) if choices else _every_partition(cluster)
        candidates: list[OpenTransaction] = []
        with _progress(len(partitions)) as advance:
            for asked, found in admin.open_transactions(partitions):
                candidates += found
                advance(asked)
        horizon_ms = _now_ms() - age_ms
        left = admin.hanging([found for found in candidates if found.last_timestamp <= horizon_ms])
    rows = [_hanging_row(found) for found in sorted(left)]
    chosen = chosen_output(output)
    if chosen is Output.JSON:
        write_json(rows)
        return
    columns = ("topic", "partition", "start_offset", "producer_id", "producer_epoch", "last_written")
    write_rows(rows, columns, chosen)
    if rows:
        say("end one with `ottla txn abort --topic TOPIC --partition N --start-offset N`")


@app.command(epilog="`ottla txn abort billing-1`  \n`ottla txn abort --topic orders --partition 0 --start-offset 4200`")
def abort(
    transactional_id: Annotated[
        str | None, typer.Argument(metavar="[ID]", help="The transactional id.", show_default=False)
    ] = None,
    topic: Annotated[str | None, typer.Option("--topic", "-t", metavar="TOPIC", help="Where it hangs.")] = None,
    partition: Annotated[int | None, typer.Option("--partition", "-p", min=0, help="Where it hangs.")] = None,
    start_offset: Annotated[
        int | None, typer.Option("--start-offset", metavar="N", min=0, help="Where it starts.")
    ] = None,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """Abort the open transaction of an id, or one that hangs in a partition.

    By ID the coordinator aborts it everywhere and locks its producer out, which is always safe. By partition an abort
    marker is written there, which is refused as long as a coordinator knows the transaction.
    """
    if transactional_id is not None and topic is None and partition is None and start_offset is None:
        with connect(bootstrap) as cluster:
            aborted = TransactionAdmin(cluster).abort(transactional_id)
        typer.echo(f"aborted the transaction of {transactional_id}" if aborted else "no transaction is open")
        return
    if transactional_id is not None or topic is None or partition is None or start_offset is None:
        raise UsageError("say which: either ID, or all of --topic, --partition and --start-offset")
    with connect(bootstrap) as cluster:
        TransactionAdmin(cluster).abort_hanging(TopicPartition(topic, partition), start_offset)
    typer.echo(f"aborted the transaction at offset {start_offset} of {topic}-{partition}")


def _every_partition(cluster: Cluster) -> list[TopicPartition]:
    return [
        TopicPartition(topic.name, entry.partition)
        for topic in Admin(cluster).list_topics()
        for entry in topic.partitions
        if entry.leader != NO_LEADER
    ]


@contextmanager
def _progress(total: int) -> Iterator[Callable[[int], None]]:
    """A bar on standard error while a terminal watches."""
    if not sys.stderr.isatty():
        yield lambda count: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    columns = (BarColumn(), MofNCompleteColumn(), TextColumn("partitions"))
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("hanging", total=total)
        yield lambda count: progress.advance(task, count)


def _hanging_row(found: OpenTransaction) -> dict[str, object]:
    return {
        "topic": found.partition.topic,
        "partition": found.partition.partition,
        "start_offset": found.start_offset,
        "producer_id": found.producer_id,
        "producer_epoch": found.producer_epoch,
        "coordinator_epoch": found.coordinator_epoch,
        "last_written": _moment(found.last_timestamp),
    }


def _description_json(found: TransactionDescription) -> dict[str, object]:
    return {
        "transactional_id": found.transactional_id,
        "state": found.state,
        "coordinator": found.coordinator,
        "producer_id": found.producer_id,
        "producer_epoch": found.producer_epoch,
        "timeout_ms": found.timeout_ms,
        "started_ms": found.started_ms if found.started_ms >= 0 else None,
        "partitions": [partition._asdict() for partition in found.partitions],
    }


def _moment(timestamp_ms: int) -> str | None:
    if timestamp_ms < 0:
        return None
    return datetime.fromtimestamp(timestamp_ms / 1000, UTC).astimezone().isoformat(timespec="milliseconds")


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
