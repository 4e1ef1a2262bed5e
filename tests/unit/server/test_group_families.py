"""What a dashboard made for kafka_exporter finds of consumer groups."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from ottla.core.groups.offset_store import OffsetStore
from ottla.core.groups.records import OffsetRecord
from ottla.server import group_families as module
from ottla.server.group_families import group_families
from tests.unit.server.broker_state import BrokerState, partition


def committed(*offsets: tuple[str, int, int], group: str = "billing") -> OffsetStore:
    store = OffsetStore()
    for topic, index, offset in offsets:
        store.replay(OffsetRecord(group_id=group, topic=topic, partition=index, offset=offset), -1)
    return store


@pytest.fixture
def state() -> BrokerState:
    """Two partitions of `orders` are known here, a third one is not, and nothing of `elsewhere`."""
    state = BrokerState()
    state.add_topic("orders", partition(), partition(), partition())
    state.touch("orders", 0, end=10)
    state.touch("orders", 1, end=4)
    offsets = committed(("orders", 0, 7), ("orders", 1, 4), ("orders", 2, 5), ("elsewhere", 0, 9))
    groups = {"billing": SimpleNamespace(members={"a": 1, "b": 2}), 'odd"one': SimpleNamespace(members={})}
    shard = SimpleNamespace(state=SimpleNamespace(groups=groups, offsets=offsets))
    state.groups.active = {0: SimpleNamespace(shard=shard)}
    return state


def test_members_offsets_and_lag_have_the_names_that_dashboards_know(state: BrokerState) -> None:
    page = "".join(group_families(state.services))
    assert [line for line in page.splitlines() if not line.startswith("#")] == [
        'kafka_consumergroup_members{consumergroup="billing"} 2',
        'kafka_consumergroup_members{consumergroup="odd\\"one"} 0',
        'kafka_consumergroup_current_offset{consumergroup="billing",topic="orders",partition="0"} 7',
        'kafka_consumergroup_current_offset{consumergroup="billing",topic="orders",partition="1"} 4',
        'kafka_consumergroup_current_offset{consumergroup="billing",topic="orders",partition="2"} 5',
        'kafka_consumergroup_current_offset{consumergroup="billing",topic="elsewhere",partition="0"} 9',
        'kafka_consumergroup_current_offset_sum{consumergroup="billing",topic="orders"} 16',
        'kafka_consumergroup_current_offset_sum{consumergroup="billing",topic="elsewhere"} 9',
        'kafka_consumergroup_lag{consumergroup="billing",topic="orders",partition="0"} 3',
        'kafka_consumergroup_lag{consumergroup="billing",topic="orders",partition="1"} 0',
        'kafka_consumergroup_lag_sum{consumergroup="billing",topic="orders"} 3',
    ]
    assert state.logs_opened == [("orders", 0), ("orders", 1)]


def test_lag_is_known_of_a_log_that_nobody_has_touched_since_the_start(state: BrokerState) -> None:
    state.ends_at_rest["orders", 2] = 25
    page = "".join(group_families(state.services))
    assert 'kafka_consumergroup_lag{consumergroup="billing",topic="orders",partition="2"} 20' in page
    assert 'kafka_consumergroup_lag_sum{consumergroup="billing",topic="orders"} 23' in page
    assert state.logs_opened == [("orders", 0), ("orders", 1)]


def test_a_broker_with_very_many_offsets_shows_the_groups_alone(
    state: BrokerState, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "OFFSETS_MAX", 3)
    page = "".join(group_families(state.services))
    assert "kafka_consumergroup_members" in page
    assert "kafka_consumergroup_current_offset" not in page
