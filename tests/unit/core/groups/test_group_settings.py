"""Which heartbeat and assignment intervals groups get."""

from __future__ import annotations

from ottla.core.groups.group_settings import settings_of
from ottla.model.configs.resolve import BrokerConfig
from tests.unit.core.groups.consumers import Topics, image_of


def test_without_configs_intervals_follow_the_number_of_members() -> None:
    settings = settings_of("g", image_of(), BrokerConfig.from_properties())
    assert [settings.settled_interval_ms(n) for n in (1, 20, 100, 1000)] == [500, 600, 3000, 5000]
    assert [settings.moving_interval_ms(n) for n in (1, 20, 100, 1000)] == [100, 200, 1000, 5000]
    assert [settings.assignment_pause_ms(n) for n in (1, 20, 1000)] == [100, 200, 1000]
    assert settings.session_timeout_ms == 45_000


def test_what_an_operator_sets_holds_for_settled_members() -> None:
    config = BrokerConfig.from_properties(
        {"group.consumer.heartbeat.interval.ms": "7000", "group.consumer.assignment.interval.ms": "0"}
    )
    settings = settings_of("g", image_of(), config)
    assert settings.settled_interval_ms(1) == 7000
    assert settings.moving_interval_ms(1) == 100
    assert settings.assignment_pause_ms(50) == 0


def test_a_group_has_configs_of_its_own() -> None:
    c = Topics({"group.consumer.heartbeat.interval.ms": "7000"}, t=1)
    a = c.consumer("a", "t")
    a.join()
    assert a.beat().heartbeat_interval_ms == 100
    c.pass_ms(10_000)
    assert a.beat().heartbeat_interval_ms == 7000
    c.set_group_configs(consumer_heartbeat_interval_ms="6000", consumer_session_timeout_ms="50000")
    assert a.beat().heartbeat_interval_ms == 6000
    c.pass_ms(46_000)
    assert not c.g.is_empty
    c.pass_ms(4_001)
    assert c.g.is_empty


def test_a_group_that_moved_stays_awake_for_a_while() -> None:
    c = Topics(t=4)
    a, b = c.joined_consumers(2, "t")
    assert a.beat().heartbeat_interval_ms == 100
    c.pass_ms(3_000)
    assert a.beat().heartbeat_interval_ms == 500
    b.leave()
    assert a.beat().heartbeat_interval_ms == 100
