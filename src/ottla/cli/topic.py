"""`ottla topic`: create, list, describe, alter, delete."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from ottla.cli.config import check_known
from ottla.cli.failures import CommandError, Exit, UsageError
from ottla.cli.options import (
    DEFAULT_BOOTSTRAP,
    Bootstrap,
    ConfigPairs,
    Output,
    OutputOption,
    chosen_output,
    connect,
    parse_pairs,
)
from ottla.cli.output import size_text, write_json, write_pairs, write_rows
from ottla.cli.topic_description import describe_topic, topic_sizes
from ottla.client.admin import USE_DEFAULT, Admin
from ottla.client.errors import AlreadyExistsError, NotFoundError
from ottla.model.configs.definition import ResourceType

app = typer.Typer(add_completion=False, no_args_is_help=True, rich_markup_mode="markdown")

TopicName = Annotated[str, typer.Argument(metavar="TOPIC", help="The topic's name.", show_default=False)]


@app.callback()
def topic() -> None:
    """Create, list, describe, change and delete topics."""


@app.command(
    epilog="`ottla topic create orders`  \n"
    "`ottla topic create orders --partitions 6 --config retention.ms=86400000`  \n"
    "`ottla topic create state --config cleanup.policy=compact --if-not-exists`"
)
def create(
    name: TopicName,
    partitions: Annotated[
        int | None, typer.Option("--partitions", "-p", min=1, help="How many; by default what the broker says.")
    ] = None,
    replication_factor: Annotated[
        int | None, typer.Option("--replication-factor", "-r", min=1, help="Copies; by default what the broker says.")
    ] = None,
    config: ConfigPairs = None,
    if_not_exists: Annotated[bool, typer.Option("--if-not-exists", help="No error if it is there already.")] = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    output: OutputOption = None,
) -> None:
    """Create a topic."""
    configs = parse_pairs(config, "--config")
    with Admin(connect(bootstrap)) as admin:
        try:
            created = admin.create_topic(
                name,
                partitions=partitions or USE_DEFAULT,
                replication_factor=replication_factor or USE_DEFAULT,
                configs=dict(configs),
            )
        except AlreadyExistsError:
            if not if_not_exists:
                raise
            typer.echo(f"topic {name} exists already")
            return
    if output is Output.JSON:
        write_json({"topic": name, "partitions": created.partitions, "replication_factor": created.replication_factor})
    else:
        plural = "" if created.partitions == 1 else "s"
        typer.echo(f"created topic {name} with {created.partitions} partition{plural}")


@app.command(name="list", epilog="`ottla topic list`  \n`ottla topic list --internal --output json`")
def list_topics(
    internal: Annotated[bool, typer.Option("--internal", help="Show the broker's own topics too.")] = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    output: OutputOption = None,
) -> None:
    """List topics with their partitions, replicas and size on disk."""
    chosen = chosen_output(output)
    with Admin(connect(bootstrap)) as admin:
        topics = admin.list_topics(internal=internal)
        sizes = topic_sizes(admin)
    rows = [
        {
            "topic": topic.name,
            "partitions": len(topic.partitions),
            "replicas": max((len(partition.replicas) for partition in topic.partitions), default=0),
            "size": size_text(sizes.get(topic.name, 0)) if chosen is Output.TABLE else sizes.get(topic.name, 0),
        }
        for topic in topics
    ]
    write_rows(rows, ("topic", "partitions", "replicas", "size"), chosen)


@app.command(epilog="`ottla topic describe orders`  \n`ottla topic describe orders --all-configs --output json`")
def describe(
    name: TopicName,
    all_configs: Annotated[bool, typer.Option("--all-configs", help="Show configs that are not set, too.")] = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    output: OutputOption = None,
) -> None:
    """Show a topic's partitions, leaders, offsets, sizes and configs."""
    chosen = chosen_output(output)
    with connect(bootstrap) as cluster:
        described = describe_topic(cluster, name, all_configs=all_configs)
    if chosen is Output.JSON:
        write_json(described.as_json())
        return
    readable = chosen is Output.TABLE
    write_pairs(described.summary(readable=readable), chosen)
    columns = ("partition", "leader", "replicas", "isr", "start", "end", "records", "size")
    write_rows(described.partition_rows(readable=readable), columns, chosen)
    if described.configs:
        write_rows(described.config_rows(), ("config", "value", "source"), chosen)


@app.command(
    epilog="`ottla topic alter orders --partitions 12`  \n"
    "`ottla topic alter orders --config retention.ms=3600000 --delete-config max.message.bytes`"
)
def alter(
    name: TopicName,
    partitions: Annotated[
        int | None, typer.Option("--partitions", "-p", min=1, help="How many it has afterwards; never fewer than now.")
    ] = None,
    config: ConfigPairs = None,
    delete_config: Annotated[
        list[str] | None, typer.Option("--delete-config", metavar="KEY", help="A config to fall back to its default.")
    ] = None,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """Add partitions, set and unset configs."""
    configs = parse_pairs(config, "--config")
    if partitions is None and not configs and not delete_config:
        raise UsageError("nothing to change: give --partitions, --config or --delete-config")
    with Admin(connect(bootstrap)) as admin:
        admin.describe_topic(name)
        if delete_config:
            check_known(delete_config, admin, ResourceType.TOPIC, name)
        if configs or delete_config:
            admin.alter_configs(ResourceType.TOPIC, name, set_to=configs, unset=delete_config or ())
        if partitions is not None:
            admin.set_partition_count(name, partitions)
    typer.echo(f"changed topic {name}")


@app.command(epilog="`ottla topic delete orders`  \n`ottla topic delete orders payments --yes --if-exists`")
def delete(
    names: Annotated[list[str], typer.Argument(metavar="TOPIC...", help="The topics' names.", show_default=False)],
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    if_exists: Annotated[bool, typer.Option("--if-exists", help="No error if one is not there.")] = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """Delete topics with all their records. Asks first on a terminal."""
    if not yes:
        _confirm(names)
    with Admin(connect(bootstrap)) as admin:
        for name in names:
            try:
                admin.delete_topic(name)
            except NotFoundError:
                if not if_exists:
                    raise
                typer.echo(f"there is no topic {name}")
            else:
                typer.echo(f"deleted topic {name}")


def _confirm(names: list[str]) -> None:
    """Records cannot be brought back. A script has to say --yes only where a person could have been asked."""
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        return
    plural = "" if len(names) == 1 else "s"
    if not typer.confirm(f"Delete topic{plural} {', '.join(names)} with all records?", err=True):
        raise CommandError("nothing was deleted", Exit.FAILED)
