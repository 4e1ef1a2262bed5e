"""What is wrong in a cluster, judged by what its brokers say of it. No input and output here."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from ottla.cli.durations import duration_text
from ottla.cli.finding import Finding, fail, ok, warn
from ottla.cli.output import size_text
from ottla.client.descriptions import ClusterDescription, LogDirectory, Quorum, QuorumReplica
from ottla.client.metadata import NO_LEADER, PartitionMetadata, TopicMetadata
from ottla.client.reassignments import Reassignment
from ottla.model.ids import TopicPartition

VOTER_SILENT_MS_MAX: Final = 10_000
FREE_LOW: Final = 0.10
FREE_VERY_LOW: Final = 0.03
LED_ELSEWHERE_MAX: Final = 0.10
NAMED_MAX: Final = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterState:
    """What was found out about a cluster. None where it is too old to tell."""

    described: ClusterDescription
    topics: Sequence[TopicMetadata]
    min_insync: Mapping[str, int]
    directories: Sequence[LogDirectory]
    quorum: Quorum | None = None
    moving: Mapping[TopicPartition, Reassignment] | None = None
    controller_silent: str | None = None
    """Why the controller could not be asked; then `quorum` and `moving` are None."""
    directories_silent: str | None = None
    """Why not all brokers could be asked for `directories`, of which there are none then."""


def examine(state: ClusterState) -> Iterator[Finding]:
    """One finding per check, the same checks in the same order each time."""
    yield _brokers(state)
    if state.controller_silent is not None:
        advice = "see that a majority of the controllers runs: without it nothing can be changed, and no leader elected"
        yield fail("metadata quorum", f"the controller does not answer ({state.controller_silent})", advice)
    elif state.quorum is not None:
        yield _quorum(state.quorum, len(state.described.brokers) + len(state.described.fenced))
    yield from _partitions(state)
    yield _leadership(state)
    yield _single_replicas(state)
    yield _moves(state)
    yield _disks(state)


def _brokers(state: ClusterState) -> Finding:
    running, fenced = state.described.brokers, state.described.fenced
    known = {broker.node_id for broker in (*running, *fenced)}
    holding = {broker for topic in state.topics for entry in topic.partitions for broker in entry.replicas}
    if fenced:
        names = _some([str(broker) for broker in fenced])
        return fail(
            "brokers",
            f"{len(running)} run, {len(fenced)} not: {names}",
            "start it again, or take it out with `ottla cluster decommission`",
        )
    if holding - known:
        missing = _some([f"broker {broker}" for broker in sorted(holding - known)])
        return fail(
            "brokers",
            f"{len(running)} run, but replicas are on brokers that are not in the cluster: {missing}",
            "start them, or move their replicas with `ottla cluster reassign --all-topics`",
        )
    return ok("brokers", f"{len(running)} run")


def _quorum(quorum: Quorum, brokers: int) -> Finding:
    check, voters = "metadata quorum", quorum.voters
    silent = [voter for voter in voters if _silent_ms(quorum, voter) > VOTER_SILENT_MS_MAX]
    seen = f"leader {quorum.leader_id}, {len(voters)} voter{'' if len(voters) == 1 else 's'}"
    if quorum.leader_id < 0:
        return fail(check, "no leader", "see that a majority of the controllers runs")
    if silent:
        longest_ms = max(_silent_ms(quorum, voter) for voter in silent)
        seen += f", {len(silent)} silent for {duration_text(longest_ms)}: " + _some(
            [f"voter {voter.node_id}" for voter in silent]
        )
        spare = len(voters) - len(silent) - (len(voters) // 2 + 1)
        advice = "start it again, or replace it (`ottla cluster remove-voter`, `ottla cluster add-voter`)"
        return warn(check, seen, advice) if spare > 0 else fail(check, f"{seen}; no other may fail", advice)
    if len(voters) == 1 and brokers > 1:
        return warn(check, seen, "if its machine fails nothing can be changed any more: have 3 voters")
    if len(voters) % 2 == 0:
        return warn(check, seen, f"{len(voters)} survive no more failures than {len(voters) - 1}: have an odd number")
    return ok(check, seen)


def _silent_ms(quorum: Quorum, voter: QuorumReplica) -> int:
    """By the leader's clock, which stamps itself with the time of its answer."""
    leader = next((known for known in quorum.voters if known.node_id == quorum.leader_id), None)
    if leader is None or voter is leader or leader.last_fetch_ms < 0:
        return 0
    if voter.last_fetch_ms < 0:
        return VOTER_SILENT_MS_MAX + 1 if voter.log_end_offset < 0 else 0
    return max(leader.last_fetch_ms - voter.last_fetch_ms, 0)


def _partitions(state: ClusterState) -> Iterator[Finding]:
    every = [(topic.name, entry) for topic in state.topics for entry in topic.partitions]
    leaderless = [_name(*found) for found in every if found[1].leader == NO_LEADER]
    below_min = [
        _name(*found)
        for found in every
        if found[1].leader != NO_LEADER and len(found[1].isr) < _min_insync(state, *found)
    ]
    lagging = [_name(*found) for found in every if len(found[1].isr) < _copies(state, *found)]
    if leaderless:
        yield fail(
            "leaders",
            f"{len(leaderless)} of {len(every)} partitions have none: {_some(leaderless)}",
            "start the brokers that have them; if those are lost for good, `ottla cluster elect --unclean`",
        )
    else:
        yield ok("leaders", f"all {len(every)} partitions have one")
    if below_min:
        yield fail(
            "min.insync.replicas",
            f"{len(below_min)} partitions take no writes with acks=all: {_some(below_min)}",
            "start the brokers that are missing",
        )
    else:
        yield ok("min.insync.replicas", "met everywhere")
    if lagging:
        advice = "replicas of stopped or slow brokers; it passes by itself once they run"
        yield warn("in-sync replicas", f"{len(lagging)} partitions miss some: {_some(lagging)}", advice)
    else:
        yield ok("in-sync replicas", "all replicas are in sync")


def _min_insync(state: ClusterState, topic: str, entry: PartitionMetadata) -> int:
    """A partition with fewer replicas than that is judged by what it can have."""
    return min(state.min_insync.get(topic, 1), len(entry.replicas))


def _copies(state: ClusterState, topic: str, entry: PartitionMetadata) -> int:
    """How many replicas are to be in sync: new ones only when their move is over."""
    move = (state.moving or {}).get(TopicPartition(topic, entry.partition))
    return len(entry.replicas) - (0 if move is None else len(move.adding))


def _leadership(state: ClusterState) -> Finding:
    every = [entry for topic in state.topics for entry in topic.partitions]
    elsewhere = sum(entry.leader not in (NO_LEADER, entry.replicas[0]) for entry in every if entry.replicas)
    seen = f"{elsewhere} of {len(every)} partitions are not led by their first replica"
    if elsewhere > len(every) * LED_ELSEWHERE_MAX:
        return warn("balance", seen, "it evens out within minutes, or at once with `ottla cluster elect --all-topics`")
    return ok("balance", seen)


def _single_replicas(state: ClusterState) -> Finding:
    single = [topic.name for topic in state.topics if any(len(entry.replicas) == 1 for entry in topic.partitions)]
    if single and len(state.described.brokers) + len(state.described.fenced) > 1:
        return warn(
            "replication",
            f"{len(single)} topics have one copy only: {_some(single)}",
            "they are gone with their broker: `ottla cluster reassign TOPIC --replication-factor 3`",
        )
    return ok("replication", "one broker" if single else "every topic has several copies")


def _moves(state: ClusterState) -> Finding:
    if state.controller_silent is not None:
        return warn("moves", "not known", "only the controller knows")
    if not state.moving:
        return ok("moves", "no replica moves")
    return ok("moves", f"{len(state.moving)} partitions move: {_some([str(found) for found in sorted(state.moving)])}")


def _disks(state: ClusterState) -> Finding:
    if state.directories_silent is not None:
        advice = "see whether the broker runs; one that has just gone is known to be gone when this is asked again"
        return fail("disks", f"a broker does not answer ({state.directories_silent})", advice)
    directories = state.directories
    offline = [f"{entry.path} of broker {entry.node_id} ({entry.error})" for entry in directories if entry.error]
    if offline:
        return fail("disks", f"offline: {_some(offline)}", "replace the disk, and start the broker again")
    free = [
        (entry.usable_bytes / entry.total_bytes, entry)
        for entry in directories
        if entry.total_bytes > 0 and entry.usable_bytes >= 0
    ]
    if not free:
        return ok("disks", f"{len(directories)} log directories are online")
    share, fullest = min(free, key=lambda found: found[0])
    seen = f"{fullest.path} of broker {fullest.node_id} has {size_text(fullest.usable_bytes)} free ({share:.0%})"
    advice = "lower retention.ms or retention.bytes of large topics, or move replicas away"
    if share < FREE_VERY_LOW:
        return fail("disks", seen, advice)
    return warn("disks", seen, advice) if share < FREE_LOW else ok("disks", f"the fullest, {seen}")


def _name(topic: str, entry: PartitionMetadata) -> str:
    return str(TopicPartition(topic, entry.partition))


def _some(names: Sequence[str]) -> str:
    more = len(names) - NAMED_MAX
    return ", ".join(names[:NAMED_MAX]) + (f" and {more} more" if more > 0 else "")
