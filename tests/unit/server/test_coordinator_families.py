"""What the metrics page says of coordinators."""

from __future__ import annotations

from types import SimpleNamespace

from ottla.core.transactions.records import TransactionRecord, TransactionState
from ottla.server.coordinator_families import coordinator_families
from tests.unit.server.broker_state import BrokerState


def group(kind: str, state_name: str) -> SimpleNamespace:
    return SimpleNamespace(kind=kind, state_name=state_name)


def test_groups_offsets_and_transactional_ids_are_counted() -> None:
    state = BrokerState()
    shards = [
        SimpleNamespace(
            groups={"a": group("classic", "Stable"), "b": group("classic", "Empty"), "c": group("consumer", "Stable")},
            offsets=SimpleNamespace(count=5),
        ),
        SimpleNamespace(groups={"d": group("classic", "Stable")}, offsets=SimpleNamespace(count=2)),
    ]
    state.groups.active = {
        index: SimpleNamespace(shard=SimpleNamespace(state=shard)) for index, shard in enumerate(shards)
    }
    state.groups.counts = lambda: {"active": 2, "loading": 1, "failed": 0}
    state.groups.load_ms_max = 17
    state.groups.records_skipped = 3
    states = {"x": TransactionState.ONGOING, "y": TransactionState.EMPTY, "z": TransactionState.EMPTY}
    ids = {name: TransactionRecord(transactional_id=name, state=state) for name, state in states.items()}
    state.transactions.active = {0: SimpleNamespace(shard=SimpleNamespace(table=SimpleNamespace(transactions=ids)))}
    page = "".join(coordinator_families(state.services))
    for line in (
        'kafka_server_group_coordinator_metrics_num_partitions{state="loading"} 1',
        "kafka_server_group_coordinator_metrics_partition_load_time_max 17",
        'kafka_server_group_coordinator_metrics_group_count{protocol="classic"} 3',
        'kafka_server_group_coordinator_metrics_group_count{protocol="consumer"} 1',
        'kafka_server_group_coordinator_metrics_consumer_group_count{state="stable"} 1',
        "kafka_coordinator_group_groupmetadatamanager_numgroups 3",
        "kafka_coordinator_group_groupmetadatamanager_numgroupsstable 2",
        "kafka_coordinator_group_groupmetadatamanager_numgroupsempty 1",
        "kafka_coordinator_group_groupmetadatamanager_numoffsets 7",
        'kafka_server_transaction_coordinator_metrics_num_partitions{state="active"} 0',
        'ottla_transactional_ids{state="empty"} 2',
        'ottla_transactional_ids{state="ongoing"} 1',
        'ottla_coordinator_records_skipped_total{topic="__consumer_offsets"} 3',
    ):
        assert f"{line}\n" in page
