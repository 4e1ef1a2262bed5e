"""Who votes, and where this node is found, as the config says it."""

from __future__ import annotations

from uuid import UUID

from ottla.core.quorum.effects import Position
from ottla.core.quorum.voters import ReplicaKey, Voter, VoterEndpoint
from ottla.model.configs.resolve import BrokerConfig
from ottla.runtime.quorum_settings import configured_voters, quorum_settings

KEY = ReplicaKey(1, UUID(int=1))
LISTED = "1@host-1:9092,2@host-2:9093"


def config(**properties: str) -> BrokerConfig:
    named = {key.replace("_", "."): value for key, value in properties.items()}
    return BrokerConfig.from_properties({"node.id": "1", "log.dirs": "data", **named})


def test_a_node_without_voters_is_the_only_one() -> None:
    alone = config(listeners="PLAINTEXT://127.0.0.1:9092")
    settings = quorum_settings(alone, KEY)
    assert settings.endpoints == (VoterEndpoint("PLAINTEXT", "127.0.0.1", 9092),)
    assert configured_voters(alone, settings).voters == (settings.as_voter,)
    assert settings.may_vote


def test_a_port_that_the_system_chooses_is_no_address() -> None:
    assert quorum_settings(config(listeners="PLAINTEXT://127.0.0.1:0"), KEY).endpoints == ()


def test_voters_are_listed_without_their_directories() -> None:
    listed = config(controller_quorum_voters=LISTED, listeners="PLAINTEXT://0.0.0.0:9092", cluster_id="x",
                    advertised_listeners="PLAINTEXT://elsewhere:9092")  # fmt: skip
    settings = quorum_settings(listed, KEY)
    voters = configured_voters(listed, settings)
    assert voters.ids == (1, 2)
    assert not voters.is_known
    assert voters.find(2) == Voter(2, endpoints=(VoterEndpoint("PLAINTEXT", "host-2", 9093),))
    assert settings.endpoints == (VoterEndpoint("PLAINTEXT", "host-1", 9092),), "as the list says, not the listener"


def test_a_list_of_itself_is_a_known_voter() -> None:
    sole = config(controller_quorum_voters="1@host-1:9092")
    settings = quorum_settings(sole, KEY)
    assert configured_voters(sole, settings).voters == (settings.as_voter,)


def test_who_asks_others_names_no_voters() -> None:
    joining = config(controller_quorum_bootstrap_servers="a:1,b:2")
    settings = quorum_settings(joining, KEY)
    assert configured_voters(joining, settings).voters == ()
    assert settings.bootstrap == (Position(-1, "a", 1), Position(-1, "b", 2))


def test_a_broker_does_not_vote() -> None:
    broker = config(process_roles="broker", controller_quorum_voters="2@host-2:9093", cluster_id="x")
    assert not quorum_settings(broker, KEY).may_vote
