"""`ottla group`: list, describe, reset, delete."""

from __future__ import annotations

import sys
from typing import Annotated, Final

import typer

from ottla.cli.failures import CommandError, Exit
from ottla.cli.group_description import describe_group
from ottla.cli.group_reset import EPILOG, reset
from ottla.cli.options import DEFAULT_BOOTSTRAP, Bootstrap, Output, OutputOption, choose, chosen_output, connect
from ottla.cli.output import write_json, write_pairs, write_rows
from ottla.cli.partition_choice import PartitionChoice, parse_choice
from ottla.client.errors import NotFoundError
from ottla.client.groups import GroupAdmin
from ottla.model.ids import TopicPartition

app = typer.Typer(add_completion=False, no_args_is_help=True, rich_markup_mode="markdown")
offsets_app = typer.Typer(add_completion=False, no_args_is_help=True, rich_markup_mode="markdown")
app.command(epilog=EPILOG)(reset)
app.add_typer(offsets_app, name="offsets")

STATES: Final = (
    "Stable",
    "Empty",
    "PreparingRebalance",
    "CompletingRebalance",
    "Assigning",
    "Reconciling",
    "NotReady",
    "Dead",
)
TYPES: Final = ("classic", "consumer", "share", "streams")
"""Kafka's, some of which this broker has not: the command works with any cluster."""

GroupId = Annotated[str, typer.Argument(metavar="GROUP", help="The group's id.", show_default=False)]


@app.callback()
def group() -> None:
    """List, describe, reset and delete consumer groups of both protocols."""


@offsets_app.callback()
def offsets() -> None:
    """Single offsets of a group; `ottla group describe` shows them."""


@app.command(
    name="list", epilog="`ottla group list`  \n`ottla group list --state stable --type consumer --output json`"
)
def list_groups(
    state: Annotated[
        list[str] | None,
        typer.Option("--state", metavar="STATE", help="Only these: stable, empty, assigning...; several times."),
    ] = None,
    kind: Annotated[
        list[str] | None, typer.Option("--type", metavar="TYPE", help="Only these: classic, consumer; several times.")
    ] = None,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    output: OutputOption = None,
) -> None:
    """List groups with their type, state and coordinator."""
    chosen = chosen_output(output)
    states, types = choose(state, STATES, "--state"), choose(kind, TYPES, "--type")
    with connect(bootstrap) as cluster:
        groups = GroupAdmin(cluster).list_groups(states, types)
    rows = [
        {
            "group": listed.group_id,
            "type": listed.type,
            "state": listed.state,
            "protocol": listed.protocol_type,
            "coordinator": listed.coordinator,
        }
        for listed in groups
    ]
    write_rows(rows, ("group", "type", "state", "protocol", "coordinator"), chosen)


@app.command(epilog="`ottla group describe billing`  \n`ottla group describe billing --members --output json`")
def describe(
    group_id: GroupId,
    members: Annotated[bool, typer.Option("--members", help="Members, their hosts and assignments.")] = False,
    offsets: Annotated[bool, typer.Option("--offsets", help="Committed offsets and lag.")] = False,
    state: Annotated[bool, typer.Option("--state", help="State, coordinator, assignor.")] = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    output: OutputOption = None,
) -> None:
    """Show a group's state, offsets with lag, and members. Without a choice: state and offsets. JSON has everything."""
    chosen = chosen_output(output)
    with connect(bootstrap) as cluster:
        picture = describe_group(cluster, group_id)
    if chosen is Output.JSON:
        write_json(picture.as_json())
        return
    of_members = ("member", "instance", "host", "client", "protocol", "epoch", "partitions", "assignment", "target")
    of_offsets = ("topic", "partition", "committed", "end", "lag", "member", "host", "client")
    usual = not (members or offsets or state)
    if state or usual:
        write_pairs(picture.state(), chosen)
    if offsets or usual:
        write_rows(picture.offset_rows(), of_offsets, chosen)
    if members:
        write_rows(picture.member_rows(), of_members, chosen)


@app.command(epilog="`ottla group delete billing`  \n`ottla group delete billing audit --yes --if-exists`")
def delete(
    group_ids: Annotated[list[str], typer.Argument(metavar="GROUP...", help="The groups' ids.", show_default=False)],
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    if_exists: Annotated[bool, typer.Option("--if-exists", help="No error if one is not there.")] = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """Delete groups that nobody is in, with their offsets. Asks first on a terminal."""
    if not yes:
        _confirm(group_ids)
    with connect(bootstrap) as cluster:
        admin = GroupAdmin(cluster)
        for group_id in group_ids:
            try:
                admin.delete_group(group_id)
            except NotFoundError:
                if not if_exists:
                    raise
                typer.echo(f"there is no group {group_id}")
            else:
                typer.echo(f"deleted group {group_id}")


@offsets_app.command(
    name="delete",
    epilog="`ottla group offsets delete billing --topic orders`  \n"
    "`ottla group offsets delete billing --topic orders:0,1`",
)
def delete_offsets(
    group_id: GroupId,
    topic: Annotated[
        list[str],
        typer.Option("--topic", "-t", metavar="TOPIC[:0,1]", help="Of this topic; may be given several times."),
    ],
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """Forget the group's offsets in a topic that its members, if any, are not subscribed to."""
    choices = [parse_choice(text) for text in topic]
    with connect(bootstrap) as cluster:
        admin = GroupAdmin(cluster)
        admin.describe_group(group_id)
        # By what is committed, not by what the topic has: it may be gone, and its offsets are still to be forgotten.
        chosen = sorted(part for part in admin.fetch_offsets(group_id) if any(_chosen(part, c) for c in choices))
        if not chosen:
            raise CommandError(f"group {group_id!r} has no offsets there; see `ottla group describe`", Exit.NOT_FOUND)
        admin.delete_offsets(group_id, chosen)
    typer.echo(f"deleted {len(chosen)} offset{'' if len(chosen) == 1 else 's'} of group {group_id}")


def _chosen(partition: TopicPartition, choice: PartitionChoice) -> bool:
    everything = choice.numbers is None
    return partition.topic == choice.topic and (everything or partition.partition in (choice.numbers or ()))


def _confirm(group_ids: list[str]) -> None:
    """Offsets cannot be brought back. A script has to say --yes only where a person could have been asked."""
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        return
    plural = "" if len(group_ids) == 1 else "s"
    if not typer.confirm(f"Delete group{plural} {', '.join(group_ids)} with all offsets?", err=True):
        raise CommandError("nothing was deleted", Exit.FAILED)
