"""A broker that is silent for too long is noticed, and nobody else."""

from __future__ import annotations

from ottla.core.controller.sessions import BrokerSessions
from tests.unit.core.controller.cluster import Cluster


def test_a_session_ends_so_long_after_the_broker_was_heard_last() -> None:
    cluster = Cluster(brokers=3)
    brokers = cluster.image.brokers
    sessions = BrokerSessions(9000, now_ms=100)
    assert sessions.next_end_ms(brokers, except_for=-1) == 9100
    sessions.heard(1, 5000)
    sessions.heard(2, 6000)
    assert [broker.id for broker in sessions.ended(brokers, 9099, except_for=-1)] == []
    assert [broker.id for broker in sessions.ended(brokers, 9100, except_for=-1)] == [3]
    assert [broker.id for broker in sessions.ended(brokers, 99_000, except_for=2)] == [1, 3]
    cluster.fence(3)
    assert sessions.next_end_ms(cluster.image.brokers, except_for=-1) == 14_000
    assert sessions.next_end_ms(cluster.image.brokers, except_for=1) == 15_000


def test_who_is_fenced_has_no_session() -> None:
    cluster = Cluster()
    sessions = BrokerSessions(9000, now_ms=0)
    cluster.fence(1)
    assert sessions.next_end_ms(cluster.image.brokers, except_for=-1) is None
    assert sessions.ended(cluster.image.brokers, 99_000, except_for=-1) == []
