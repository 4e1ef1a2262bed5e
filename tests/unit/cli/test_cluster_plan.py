"""What `--brokers N` makes of its options."""

from __future__ import annotations

from pathlib import Path

import pytest

from ottla.cli.cluster_plan import new_cluster_id, plan_cluster
from ottla.cli.failures import UsageError
from ottla.model.configs.resolve import BrokerConfig
from ottla.model.ids import CLUSTER_FILE


def test_three_brokers_are_all_voters_on_ports_that_count_up(tmp_path: Path) -> None:
    planned = plan_cluster(str(tmp_path), 3, None, 9092, {})
    assert [broker.port for broker in planned] == [9092, 9093, 9094]
    assert [broker.data for broker in planned] == [str(tmp_path / f"broker-{node_id}") for node_id in (1, 2, 3)]
    voters = "1@127.0.0.1:9092,2@127.0.0.1:9093,3@127.0.0.1:9094"
    assert {broker.properties["controller.quorum.voters"] for broker in planned} == {voters}
    assert len({broker.properties["cluster.id"] for broker in planned}) == 1
    for broker in planned:
        BrokerConfig.from_properties(broker.properties)


@pytest.mark.parametrize(("brokers", "voters"), [(2, 1), (3, 3), (4, 3), (5, 5), (7, 5)])
def test_how_many_vote(tmp_path: Path, brokers: int, voters: int) -> None:
    planned = plan_cluster(str(tmp_path), brokers, None, 9092, {})
    assert sum("controller" in broker.properties["process.roles"] for broker in planned) == voters


def test_defaults_fit_the_size_and_may_be_overridden(tmp_path: Path) -> None:
    first = plan_cluster(str(tmp_path), 3, None, 9092, {"min.insync.replicas": "3"})[0].properties
    assert first["default.replication.factor"] == first["offsets.topic.replication.factor"] == "3"
    assert first["min.insync.replicas"] == "3"
    assert plan_cluster(str(tmp_path / "two"), 2, None, 9092, {})[0].properties["min.insync.replicas"] == "1"


def test_a_cluster_keeps_its_id_and_voters_when_it_grows(tmp_path: Path) -> None:
    before = plan_cluster(str(tmp_path), 3, None, 9092, {})
    after = plan_cluster(str(tmp_path), 5, None, 9092, {})
    assert after[0].properties["cluster.id"] == before[0].properties["cluster.id"]
    assert after[0].properties["controller.quorum.voters"] == before[0].properties["controller.quorum.voters"]
    assert after[4].properties["process.roles"] == "broker"
    with pytest.raises(UsageError, match="has 5 brokers"):
        plan_cluster(str(tmp_path), 3, None, 9092, {})


def test_a_directory_that_is_no_clusters_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "meta.properties").write_text("version=1")
    with pytest.raises(UsageError, match="single broker"):
        plan_cluster(str(tmp_path), 3, None, 9092, {})
    (tmp_path / CLUSTER_FILE).write_text("cluster.id=x\n")
    with pytest.raises(UsageError, match="damaged"):
        plan_cluster(str(tmp_path), 3, None, 9092, {})


def test_every_address_is_advertised_by_name(tmp_path: Path) -> None:
    planned = plan_cluster(str(tmp_path), 3, "0.0.0.0", 9092, {})
    assert "0.0.0.0" not in planned[0].properties["advertised.listeners"]
    assert "0.0.0.0" not in planned[0].properties["controller.quorum.voters"]


def test_port_zero_takes_free_ports(tmp_path: Path) -> None:
    ports = [broker.port for broker in plan_cluster(str(tmp_path), 3, None, 0, {})]
    assert len(set(ports)) == 3
    assert min(ports) > 0
    with pytest.raises(UsageError, match="--port"):
        plan_cluster(str(tmp_path), 3, None, 65534, {})


def test_an_id_can_be_given_to_a_command() -> None:
    assert all(len(text) == 22 and not text.startswith("-") for text in (new_cluster_id() for _ in range(200)))
