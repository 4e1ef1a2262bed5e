"""What `ottla cluster info` says of a cluster."""

from __future__ import annotations

from ottla.cli.cluster import active_controller
from ottla.client.descriptions import ClusterDescription, Quorum

DESCRIBED_BY_BROKER_1 = ClusterDescription(cluster_id="c", controller_id=1, brokers=(), features={})


def test_the_controller_is_the_one_that_leads_and_not_the_broker_that_was_asked() -> None:
    quorum = Quorum(leader_id=3, leader_epoch=2, high_watermark=9, voters=(), observers=())
    assert active_controller(DESCRIBED_BY_BROKER_1, quorum) == 3


def test_a_cluster_without_a_quorum_names_its_controller_itself() -> None:
    assert active_controller(DESCRIBED_BY_BROKER_1, None) == 1
