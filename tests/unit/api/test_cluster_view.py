"""What clients are told of leaders and replicas that are not there."""

from __future__ import annotations

from uuid import UUID

from ottla.api.cluster_view import leader_endpoints, leader_view, offline_replicas
from ottla.core.controller.image import BrokerImage, MetadataImage, PartitionImage
from ottla.core.controller.records import BrokerEndpoint
from ottla.model.errors import ErrorCode
from ottla.wire.fields import CurrentLeader

DIRECTORY, OTHER = UUID(int=11), UUID(int=12)


def broker(node_id: int, *, fenced: bool = False, log_dirs: tuple[UUID, ...] = (DIRECTORY,)) -> BrokerImage:
    endpoint = BrokerEndpoint("PLAINTEXT", f"host-{node_id}", 9092, 0)
    return BrokerImage(
        id=node_id,
        epoch=0,
        incarnation_id=UUID(int=node_id),
        endpoints=(endpoint,),
        fenced=fenced,
        log_dirs=log_dirs,
    )


IMAGE = MetadataImage(brokers={1: broker(1), 2: broker(2, fenced=True), 3: broker(3, log_dirs=(OTHER,))})
PARTITION = PartitionImage(
    replicas=(1, 2, 3, 4), isr=(1,), leader=1, directories=(DIRECTORY, DIRECTORY, DIRECTORY, DIRECTORY)
)


def test_a_leader_is_named_where_clients_can_reach_it() -> None:
    assert leader_view(IMAGE, PARTITION, "PLAINTEXT") == (1, ErrorCode.NONE)
    assert leader_view(IMAGE, PARTITION, "INTERNAL") == (-1, ErrorCode.LISTENER_NOT_FOUND)
    nobody = PartitionImage(replicas=(2,), isr=(2,), leader=-1)
    assert leader_view(IMAGE, nobody, "PLAINTEXT") == (-1, ErrorCode.LEADER_NOT_AVAILABLE)


def test_replicas_of_lost_brokers_and_lost_directories_are_offline() -> None:
    assert offline_replicas(IMAGE, PARTITION) == [2, 3, 4]


def test_endpoints_of_the_leaders_that_an_answer_names() -> None:
    found = leader_endpoints(IMAGE, "PLAINTEXT", [CurrentLeader(1, 5), CurrentLeader(2, 5), CurrentLeader(1, 6)])
    assert [endpoint.node_id for endpoint in found] == [1]
