"""`ottla cluster health`: what is wrong, and what to do about it."""

from __future__ import annotations

from dataclasses import asdict, replace

import typer

from ottla.cli.doctor import print_finding
from ottla.cli.failures import Exit
from ottla.cli.finding import Health
from ottla.cli.health import ClusterState, examine
from ottla.cli.options import DEFAULT_BOOTSTRAP, Bootstrap, Output, OutputOption
from ottla.cli.output import write_json
from ottla.client.admin import Admin
from ottla.client.cluster import Cluster
from ottla.client.descriptions import LogDirectory, Quorum
from ottla.client.errors import BrokerError, ClientError, RequestTimeoutError, UnsupportedVersionError
from ottla.client.reassignments import Reassignment, Reassignments
from ottla.client.settings import ClientSettings
from ottla.client.topic_configs import describe_topics
from ottla.model.configs.resolve import MIN_INSYNC
from ottla.model.ids import TopicPartition

EPILOG = "`ottla cluster health`  \n`ottla cluster health --bootstrap kafka:9092 --output json`"
TIMEOUT_MS = 5_000


def health(bootstrap: Bootstrap = DEFAULT_BOOTSTRAP, output: OutputOption = None) -> None:
    """Check brokers, quorum, partitions and disks. One line for each check, with what to do.

    Exit code 1 if a check fails; warnings alone leave it at 0.
    """
    settings = replace(ClientSettings.of(bootstrap), request_timeout_ms=TIMEOUT_MS, api_timeout_ms=TIMEOUT_MS)
    with Cluster(settings) as cluster:
        findings = list(examine(_state(cluster)))
    if output is Output.JSON:
        write_json([asdict(finding) for finding in findings])
    else:
        for finding in findings:
            print_finding(finding)
    if any(finding.health is Health.FAIL for finding in findings):
        raise typer.Exit(Exit.FAILED)


def _state(cluster: Cluster) -> ClusterState:
    admin = Admin(cluster)
    topics = admin.list_topics()
    configs = describe_topics(cluster, [topic.name for topic in topics], (MIN_INSYNC,))
    quorum, moving, silent = None, None, None
    directories: list[LogDirectory] = []
    directories_silent = None
    try:
        directories = admin.describe_log_dirs()
    except ClientError as error:
        directories_silent = str(error)
    described = admin.describe_cluster()  # After all brokers were asked: one that was left out is known to be gone.
    try:
        quorum, moving = _quorum(admin), _moving(cluster)
    except ClientError as error:
        silent = str(error)
    return ClusterState(
        described=described,
        topics=topics,
        min_insync={name: int(found[MIN_INSYNC].value or 1) for name, found in configs.items() if MIN_INSYNC in found},
        directories=directories,
        quorum=quorum,
        moving=moving,
        controller_silent=silent,
        directories_silent=directories_silent,
    )


def _quorum(admin: Admin) -> Quorum | None:
    try:
        return admin.describe_quorum()
    except UnsupportedVersionError:
        return None  # a cluster with ZooKeeper has none


def quorum_or_none(admin: Admin) -> Quorum | None:
    """None of a cluster with ZooKeeper, or one that cannot tell just now."""
    try:
        return admin.describe_quorum()
    except (BrokerError, RequestTimeoutError, UnsupportedVersionError):
        return None


def _moving(cluster: Cluster) -> dict[TopicPartition, Reassignment] | None:
    try:
        return Reassignments(cluster).under_way()
    except UnsupportedVersionError:
        return None
