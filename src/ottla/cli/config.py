"""`ottla config`: get, set and unset configs of topics and brokers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, NamedTuple

import typer

from ottla.cli.failures import CommandError, Exit, UsageError
from ottla.cli.options import DEFAULT_BOOTSTRAP, Bootstrap, Output, OutputOption, chosen_output, connect, parse_pairs
from ottla.cli.output import write_json, write_rows
from ottla.cli.topic_description import source_text
from ottla.client.admin import Admin
from ottla.client.cluster_admin import EVERY_BROKER, resource_title
from ottla.client.descriptions import ConfigEntry
from ottla.model.configs.definition import ConfigSource, ResourceType

app = typer.Typer(add_completion=False, no_args_is_help=True, rich_markup_mode="markdown")

TopicOption = Annotated[str | None, typer.Option("--topic", "-t", metavar="TOPIC", help="Configs of this topic.")]
BrokerOption = Annotated[int | None, typer.Option("--broker", metavar="ID", help="Configs of this broker.")]
AllBrokersOption = Annotated[
    bool, typer.Option("--all-brokers", help="The defaults of all brokers (Kafka's broker-default).")
]


class Resource(NamedTuple):
    """What the configs belong to."""

    kind: ResourceType
    name: str

    @property
    def own_source(self) -> ConfigSource:
        """The source of values that were set for this very resource."""
        if self.kind is ResourceType.TOPIC:
            return ConfigSource.DYNAMIC_TOPIC
        return ConfigSource.DYNAMIC_BROKER if self.name else ConfigSource.DYNAMIC_DEFAULT_BROKER


@app.callback()
def config() -> None:
    """Get, set and unset configs of topics and brokers, by Kafka's names."""


@app.command(
    epilog="`ottla config get --topic orders`  \n"
    "`ottla config get --topic orders retention.ms`  \n"
    "`ottla config get --broker 1 --all --output json`"
)
def get(
    keys: Annotated[
        list[str] | None, typer.Argument(metavar="[KEY]...", help="The configs to show.", show_default=False)
    ] = None,
    topic: TopicOption = None,
    broker: BrokerOption = None,
    all_brokers: AllBrokersOption = False,
    everything: Annotated[bool, typer.Option("--all", help="Show configs that are at their default, too.")] = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    output: OutputOption = None,
) -> None:
    """Show configs: the ones that were set, or the ones that are named, or all."""
    resource = _resource(topic, broker, all_brokers)
    chosen = chosen_output(output)
    with _admin(bootstrap, broker) as admin:
        entries = admin.describe_configs(resource.kind, resource.name, keys or None)
    _check_among(keys or (), entries, resource_title(*resource))
    shown = [entry for entry in entries if everything or keys or _was_set(entry, resource)]
    if chosen is Output.JSON:
        write_json({entry.name: entry.value for entry in shown})
    else:
        write_rows([_row(entry) for entry in shown], ("config", "value", "source"), chosen)


@app.command(
    name="set",
    epilog="`ottla config set --topic orders retention.ms=3600000 cleanup.policy=compact`  \n"
    "`ottla config set --all-brokers log.retention.ms=86400000`",
)
def set_configs(
    pairs: Annotated[list[str], typer.Argument(metavar="KEY=VALUE...", help="What to set.", show_default=False)],
    topic: TopicOption = None,
    broker: BrokerOption = None,
    all_brokers: AllBrokersOption = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """Set configs; all of them or, if one is refused, none."""
    resource = _resource(topic, broker, all_brokers)
    values = parse_pairs(pairs, "config")
    with _admin(bootstrap, broker) as admin:
        admin.alter_configs(resource.kind, resource.name, set_to=values)
    typer.echo(f"set {', '.join(values)} of {resource_title(*resource)}")


@app.command(epilog="`ottla config unset --topic orders retention.ms`")
def unset(
    keys: Annotated[list[str], typer.Argument(metavar="KEY...", help="What to unset.", show_default=False)],
    topic: TopicOption = None,
    broker: BrokerOption = None,
    all_brokers: AllBrokersOption = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """Let configs fall back to their defaults."""
    resource = _resource(topic, broker, all_brokers)
    with _admin(bootstrap, broker) as admin:
        if not all_brokers:  # their list has only what was set
            check_known(keys, admin, resource.kind, resource.name)
        admin.alter_configs(resource.kind, resource.name, unset=keys)
    typer.echo(f"unset {', '.join(keys)} of {resource_title(*resource)}")


def _resource(topic: str | None, broker: int | None, all_brokers: bool) -> Resource:
    if (topic is not None) + (broker is not None) + all_brokers != 1:
        raise UsageError("say whose configs: one of --topic TOPIC, --broker ID, --all-brokers")
    if topic is not None:
        return Resource(ResourceType.TOPIC, topic)
    return Resource(ResourceType.BROKER, EVERY_BROKER if broker is None else str(broker))


def _admin(bootstrap: str, broker: int | None) -> Admin:
    """For a broker that runs: one that does not would be waited for, as if it were being restarted."""
    cluster = connect(bootstrap)
    if broker is not None and all(known.node_id != broker for known in cluster.brokers()):
        cluster.close()
        raise CommandError(f"no broker {broker} runs in this cluster; see `ottla cluster info`", Exit.NOT_FOUND)
    return Admin(cluster)


def check_known(keys: Sequence[str], admin: Admin, kind: ResourceType, name: str) -> None:
    """A UsageError names a key that there is not. The cluster takes it from whoever unsets it, as Kafka does."""
    _check_among(keys, admin.describe_configs(kind, name), resource_title(kind, name))


def _check_among(keys: Sequence[str], entries: Sequence[ConfigEntry], title: str) -> None:
    missing = set(keys) - {entry.name for entry in entries}
    if missing:
        raise UsageError(f"{title} has no config {', '.join(sorted(missing))}")


def _was_set(entry: ConfigEntry, resource: Resource) -> bool:
    static = resource.kind is ResourceType.BROKER and entry.source is ConfigSource.STATIC_BROKER
    return static or entry.source is resource.own_source


def _row(entry: ConfigEntry) -> dict[str, object]:
    return {
        "config": entry.name,
        "value": "(secret)" if entry.sensitive and entry.value is None else entry.value,
        "source": source_text(entry.source),
    }
