"""`ottla cluster quorum`, `add-voter`, `remove-voter`, `new-id`: who decides on the cluster's metadata."""

from __future__ import annotations

import uuid
from datetime import UTC, datetime
from typing import Annotated

import typer

from ottla.cli.cluster_plan import new_cluster_id
from ottla.cli.failures import CommandError, Exit, UsageError, say
from ottla.cli.options import DEFAULT_BOOTSTRAP, Bootstrap, Output, OutputOption, chosen_output, connect
from ottla.cli.output import write_json, write_pairs, write_rows
from ottla.client.admin import Admin
from ottla.client.cluster import Cluster
from ottla.client.cluster_changes import ClusterChanges
from ottla.client.descriptions import Quorum, QuorumReplica, VoterEndpoint
from ottla.client.settings import parse_address
from ottla.model.ids import ZERO_UUID, uuid_from_base64, uuid_to_base64

QUORUM_EPILOG = "`ottla cluster quorum`  \n`ottla cluster quorum --output json`"
ADD_EPILOG = (
    "`ottla cluster add-voter 4`  (a node that runs as a controller and is no voter yet)  \n"
    "`ottla cluster add-voter 4 --address host4:9092`"
)
REMOVE_EPILOG = (
    "`ottla cluster remove-voter 2`  \n"
    "`ottla cluster remove-voter 2 --directory-id 3Db5QLSqSZieL3rJBUUegA`  (one of two with the same id)"
)
NEW_ID_EPILOG = "`ottla cluster new-id`  \n`echo cluster.id=$(ottla cluster new-id) >> node.properties`"

NodeId = Annotated[int, typer.Argument(metavar="ID", min=0, help="The node's id.", show_default=False)]
DirectoryId = Annotated[
    str | None,
    typer.Option("--directory-id", metavar="ID", help="The id of its metadata directory; by default the one it has."),
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Only show what would be done.")]


def quorum(bootstrap: Bootstrap = DEFAULT_BOOTSTRAP, output: OutputOption = None) -> None:
    """Show the metadata quorum: its leader, who votes, and how far each node is."""
    chosen = chosen_output(output)
    with connect(bootstrap) as cluster:
        found = Admin(cluster).describe_quorum()
    rows = [_row(found, replica, "voter") for replica in found.voters]
    rows += [_row(found, replica, "observer") for replica in found.observers]
    pairs = {"leader": found.leader_id, "epoch": found.leader_epoch, "high watermark": found.high_watermark}
    if chosen is Output.JSON:
        write_json(
            {
                "leader_id": found.leader_id,
                "leader_epoch": found.leader_epoch,
                "high_watermark": found.high_watermark,
                "nodes": rows,
            }
        )
        return
    write_pairs(pairs, chosen)
    write_rows(rows, ("node", "role", "log_end_offset", "lag", "last_fetch", "directory_id", "endpoints"), chosen)


def _row(quorum: Quorum, replica: QuorumReplica, role: str) -> dict[str, object]:
    leader = next((voter for voter in quorum.voters if voter.node_id == quorum.leader_id), replica)
    known_end = replica.log_end_offset >= 0 and leader.log_end_offset >= 0
    return {
        "node": replica.node_id,
        "role": "leader" if replica is leader and role == "voter" else role,
        "log_end_offset": replica.log_end_offset,
        "lag": max(leader.log_end_offset - replica.log_end_offset, 0) if known_end else None,
        "last_fetch": _moment(replica.last_fetch_ms),
        "last_caught_up": _moment(replica.last_caught_up_ms),
        "directory_id": None if replica.directory_id == ZERO_UUID else uuid_to_base64(replica.directory_id),
        "endpoints": [f"{name}://{address}" for name, address in quorum.endpoints.get(replica.node_id, ())],
    }


def _moment(timestamp_ms: int) -> str | None:
    if timestamp_ms < 0:
        return None
    return datetime.fromtimestamp(timestamp_ms / 1000, UTC).astimezone().isoformat(timespec="milliseconds")


def add_voter(
    node_id: NodeId,
    address: Annotated[
        str | None,
        typer.Option("--address", metavar="HOST:PORT", help="Where it listens; by default as a broker says."),
    ] = None,
    listener: Annotated[
        str | None,
        typer.Option("--listener", metavar="NAME", help="The listener's name; by default that of other voters."),
    ] = None,
    directory_id: DirectoryId = None,
    dry_run: DryRun = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """Let a controller that runs vote on the metadata. It has to have caught up first."""
    with connect(bootstrap) as cluster:
        found = Admin(cluster).describe_quorum()
        if any(voter.node_id == node_id for voter in found.voters):
            raise CommandError(f"node {node_id} votes already", Exit.ALREADY_EXISTS)
        directory = _directory_of(found.observers, node_id, directory_id, "it is not seen: start it as a controller")
        endpoint = _endpoint(cluster, found, node_id, address, listener)
        if dry_run:
            say(f"would add voter {node_id} with directory {uuid_to_base64(directory)} at {endpoint.address}")
            return
        ClusterChanges(cluster).add_voter(node_id, directory, [endpoint])
    say(f"node {node_id} votes: there are {len(found.voters) + 1} voters now")


def remove_voter(
    node_id: NodeId,
    directory_id: DirectoryId = None,
    dry_run: DryRun = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """Let a controller vote no more, one that runs or one that is lost. The rest has to have a majority."""
    with connect(bootstrap) as cluster:
        found = Admin(cluster).describe_quorum()
        directory = _directory_of(found.voters, node_id, directory_id, "it is no voter; see `ottla cluster quorum`")
        if len(found.voters) == 1:
            raise CommandError(f"node {node_id} is the only voter: add another one first")
        if dry_run:
            say(f"would remove voter {node_id} with directory {uuid_to_base64(directory)}")
            return
        ClusterChanges(cluster).remove_voter(node_id, directory)
    say(f"node {node_id} votes no more: there are {len(found.voters) - 1} voters now")


def _directory_of(replicas: tuple[QuorumReplica, ...], node_id: int, given: str | None, missing: str) -> uuid.UUID:
    if given is not None:
        try:
            return uuid_from_base64(given)
        except ValueError:
            raise UsageError(f"--directory-id {given!r}: write it as `ottla cluster quorum` shows it") from None
    known = [replica.directory_id for replica in replicas if replica.node_id == node_id]
    if not known:
        raise CommandError(f"node {node_id}: {missing}", Exit.NOT_FOUND)
    if len(known) > 1:
        raise UsageError(f"node {node_id} is there with {len(known)} directories: say which with --directory-id")
    return known[0]


def _endpoint(
    cluster: Cluster, quorum: Quorum, node_id: int, address: str | None, listener: str | None
) -> VoterEndpoint:
    names = [endpoint.listener for endpoints in quorum.endpoints.values() for endpoint in endpoints]
    name = listener or (names[0] if names else "CONTROLLER")
    if address is not None:
        return VoterEndpoint(name, parse_address(address))
    broker = next((known for known in cluster.brokers() if known.node_id == node_id), None)
    if broker is None:
        raise UsageError(f"node {node_id} is no broker that could tell its address: say it with --address HOST:PORT")
    return VoterEndpoint(name, broker.address)


def new_id() -> None:
    """Print a new id for a cluster, to write as `cluster.id` into the config of each of its nodes."""
    typer.echo(new_cluster_id())
