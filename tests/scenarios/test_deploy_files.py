"""The files of examples/deploy hold configs that a broker takes, and that mean what they say."""

from __future__ import annotations

import re
from pathlib import Path
from string import Template

from ottla.model.configs.properties import parse_properties
from ottla.model.configs.resolve import BrokerConfig
from ottla.model.configs.unserved import without_effect

DEPLOY = Path(__file__).resolve().parents[2] / "examples" / "deploy"


def test_the_config_file_of_a_host() -> None:
    given = parse_properties((DEPLOY / "node.properties").read_text())
    config = BrokerConfig.from_properties(given)
    assert without_effect(given) == []
    own = next(voter for voter in config.controller_quorum_voters if voter.node_id == config.node_id)
    assert (own.host, own.port) in [(listener.host, listener.port) for listener in config.advertised_listeners]


def test_each_node_of_the_compose_file_reaches_the_others_inside_and_clients_outside() -> None:
    compose = (DEPLOY / "compose.yaml").read_text()
    voters = re.search(r"OTTLA_VOTERS: (\S+)", compose)
    cluster_id = re.search(r"OTTLA_CLUSTER_ID: (\S+)", compose)
    nodes = re.findall(
        r"hostname: (\S+)\n.*OTTLA_NODE_ID: (\d), OTTLA_OUTSIDE_PORT: (\d+)}\n +ports: \[\"127.0.0.1:(\d+):(\d+)\"\]",
        compose,
    )
    assert voters is not None
    assert cluster_id is not None
    assert len(nodes) == 3
    for hostname, node_id, port, published, inside in nodes:
        assert port == published == inside
        environment = {
            "OTTLA_NODE_ID": node_id,
            "OTTLA_OUTSIDE_PORT": port,
            "OTTLA_VOTERS": voters[1],
            "OTTLA_CLUSTER_ID": cluster_id[1],
            "name": hostname,
        }
        set_keys = re.findall(r'--set "([^"]+)"', (DEPLOY / "start-node.sh").read_text())
        given = dict(Template(line).substitute(environment).split("=", 1) for line in set_keys)
        config = BrokerConfig.from_properties(given)
        assert without_effect(given) == []
        own = next(voter for voter in config.controller_quorum_voters if voter.node_id == config.node_id)
        advertised = {listener.listener: (listener.host, listener.port) for listener in config.advertised_listeners}
        assert advertised == {"INSIDE": (own.host, own.port), "OUTSIDE": ("127.0.0.1", int(port))}
