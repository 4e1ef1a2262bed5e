"""`ottla cluster`: who is in it and how it is."""

from __future__ import annotations

from dataclasses import asdict

import typer

from ottla.cli import (
    cluster_decommission,
    cluster_elect,
    cluster_features,
    cluster_health,
    cluster_quorum,
    cluster_reassign,
)
from ottla.cli.cluster_health import quorum_or_none
from ottla.cli.options import DEFAULT_BOOTSTRAP, Bootstrap, Output, OutputOption, chosen_output, connect
from ottla.cli.output import size_text, write_json, write_pairs, write_rows
from ottla.client.admin import Admin
from ottla.client.descriptions import ClusterDescription, LogDirectory, Quorum

app = typer.Typer(add_completion=False, no_args_is_help=True, rich_markup_mode="markdown")


@app.callback()
def cluster() -> None:
    """Show the cluster, and change who does what in it."""


@app.command(epilog="`ottla cluster info`  \n`ottla cluster info --bootstrap kafka:9092 --output json`")
def info(bootstrap: Bootstrap = DEFAULT_BOOTSTRAP, output: OutputOption = None) -> None:
    """Show brokers, controller, metadata quorum, log directories and features."""
    chosen = chosen_output(output)
    with Admin(connect(bootstrap)) as admin:
        described = admin.describe_cluster()
        topics = admin.list_topics()
        directories = admin.describe_log_dirs()
        quorum = quorum_or_none(admin)
    if chosen is Output.JSON:
        write_json(_as_json(described, quorum, directories))
        return
    partitions = sum(len(topic.partitions) for topic in topics)
    led = sum(partition.leader >= 0 for topic in topics for partition in topic.partitions)
    write_pairs(
        {
            "cluster id": described.cluster_id,
            "controller": active_controller(described, quorum),
            "brokers": len(described.brokers),
            "fenced brokers": [broker.node_id for broker in described.fenced],
            "topics": len(topics),
            "partitions": partitions,
            "without leader": partitions - led,
            **({} if quorum is None else _quorum_pairs(quorum)),
            "features": [f"{name}={level}" for name, level in described.features.items()],
        },
        chosen,
    )
    write_rows(_broker_rows(described), ("broker", "address", "rack", "state"), chosen)
    write_rows(
        _directory_rows(directories, readable=chosen is Output.TABLE),
        ("broker", "log directory", "replicas", "size", "free", "state"),
        chosen,
    )


app.command(epilog=cluster_health.EPILOG)(cluster_health.health)
app.command(epilog=cluster_quorum.QUORUM_EPILOG)(cluster_quorum.quorum)
app.command(epilog=cluster_reassign.EPILOG)(cluster_reassign.reassign)
app.command(epilog=cluster_elect.EPILOG)(cluster_elect.elect)
app.command(epilog=cluster_decommission.EPILOG)(cluster_decommission.decommission)
app.command(epilog=cluster_features.EPILOG)(cluster_features.features)
app.command("add-voter", epilog=cluster_quorum.ADD_EPILOG)(cluster_quorum.add_voter)
app.command("remove-voter", epilog=cluster_quorum.REMOVE_EPILOG)(cluster_quorum.remove_voter)
app.command("new-id", epilog=cluster_quorum.NEW_ID_EPILOG)(cluster_quorum.new_id)


def active_controller(described: ClusterDescription, quorum: Quorum | None) -> int:
    """Who leads the quorum, where there is one: a broker names itself as the controller, since it hands on what it is
    asked."""
    return described.controller_id if quorum is None else quorum.leader_id


def _quorum_pairs(quorum: Quorum) -> dict[str, object]:
    return {
        "quorum leader": f"{quorum.leader_id} (epoch {quorum.leader_epoch})",
        "quorum voters": [voter.node_id for voter in quorum.voters],
        "quorum observers": [observer.node_id for observer in quorum.observers],
        "quorum high watermark": quorum.high_watermark,
    }


def _broker_rows(described: ClusterDescription) -> list[dict[str, object]]:
    states = [(broker, "running") for broker in described.brokers]
    states += [(broker, "fenced") for broker in described.fenced]
    return [
        {"broker": broker.node_id, "address": str(broker.address), "rack": broker.rack, "state": state}
        for broker, state in sorted(states)
    ]


def _directory_rows(directories: list[LogDirectory], *, readable: bool) -> list[dict[str, object]]:
    rows: list[dict[str, object]] = []
    for directory in directories:
        size = sum(replica.size_bytes for replica in directory.replicas)
        rows.append(
            {
                "broker": directory.node_id,
                "log directory": directory.path,
                "replicas": len(directory.replicas),
                "size": size_text(size) if readable else size,
                "free": size_text(directory.usable_bytes) if readable else directory.usable_bytes,
                "state": directory.error or "online",
            }
        )
    return rows


def _quorum_json(quorum: Quorum) -> dict[str, object]:
    return {
        **asdict(quorum),
        "endpoints": {
            node_id: [f"{name}://{address}" for name, address in endpoints]
            for node_id, endpoints in quorum.endpoints.items()
        },
    }


def _as_json(
    described: ClusterDescription, quorum: Quorum | None, directories: list[LogDirectory]
) -> dict[str, object]:
    return {
        "cluster_id": described.cluster_id,
        "controller_id": active_controller(described, quorum),
        "brokers": [
            {"id": broker.node_id, "host": broker.address.host, "port": broker.address.port, "rack": broker.rack}
            for broker in described.brokers
        ],
        "fenced_brokers": [broker.node_id for broker in described.fenced],
        "features": described.features,
        "quorum": None if quorum is None else _quorum_json(quorum),
        "log_directories": [
            {
                "broker": directory.node_id,
                "path": directory.path,
                "error": directory.error,
                "total_bytes": directory.total_bytes,
                "usable_bytes": directory.usable_bytes,
                "size_bytes": sum(replica.size_bytes for replica in directory.replicas),
                "replicas": len(directory.replicas),
            }
            for directory in directories
        ],
    }
