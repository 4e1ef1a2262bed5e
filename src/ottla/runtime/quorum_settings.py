"""What the config says about the quorum: its voters, its times, and what this node is in it."""

from __future__ import annotations

from ottla.core.quorum.effects import Position, QuorumSettings
from ottla.core.quorum.voters import ReplicaKey, Voter, VoterEndpoint, VoterSet
from ottla.model.configs.resolve import BrokerConfig


def quorum_settings(config: BrokerConfig, key: ReplicaKey) -> QuorumSettings:
    """This node in the quorum."""
    return QuorumSettings(
        key=key,
        endpoints=_own_endpoints(config),
        may_vote="controller" in config.process_roles,
        bootstrap=tuple(Position(-1, host, port) for host, port in config.controller_quorum_bootstrap_servers),
        election_timeout_ms=max(config.controller_quorum_election_timeout_ms, 1),
        election_backoff_ms_max=config.controller_quorum_election_backoff_max_ms,
        fetch_timeout_ms=max(config.controller_quorum_fetch_timeout_ms, 2),
        retry_backoff_ms=max(config.controller_quorum_retry_backoff_ms, 1),
    )


def configured_voters(config: BrokerConfig, settings: QuorumSettings) -> VoterSet:
    """The voters of a log that names none: those of the config, or this node alone."""
    if config.controller_quorum_voters:
        return (
            VoterSet.of(
                [
                    Voter(voter.node_id, endpoints=(VoterEndpoint(_listener_name(config), voter.host, voter.port),))
                    for voter in config.controller_quorum_voters
                ]
            )
            if not _is_sole(config)
            else VoterSet((settings.as_voter,))
        )
    if config.controller_quorum_bootstrap_servers:
        return VoterSet(())
    return VoterSet((settings.as_voter,))


def _is_sole(config: BrokerConfig) -> bool:
    return [voter.node_id for voter in config.controller_quorum_voters] == [config.node_id]


def _listener_name(config: BrokerConfig) -> str:
    controllers = [item.listener for item in config.listeners if item.listener in config.controller_listener_names]
    return (controllers or [item.listener for item in config.listeners] or ["CONTROLLER"])[0]


def _own_endpoints(config: BrokerConfig) -> tuple[VoterEndpoint, ...]:
    """Where other voters find this node: as the voters' list says, or its listener; none if its port is not known."""
    for voter in config.controller_quorum_voters:
        if voter.node_id == config.node_id:
            return (VoterEndpoint(_listener_name(config), voter.host, voter.port),)
    name = _listener_name(config)
    for endpoint in (*config.advertised_listeners, *config.listeners):
        if endpoint.listener == name and endpoint.port > 0:
            return (VoterEndpoint(name, endpoint.host, endpoint.port),)
    return ()
