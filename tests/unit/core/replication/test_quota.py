"""A rate that is kept on average."""

from __future__ import annotations

from ottla.core.replication.quota import ReplicationQuota, is_throttled


def test_what_is_taken_beyond_the_rate_is_waited_for() -> None:
    quota = ReplicationQuota(1000)
    assert quota.wait_ms(5000) == 0
    quota.record(3000, 5000)
    assert quota.wait_ms(5000) == 2001
    assert quota.wait_ms(6000) == 1001
    assert quota.wait_ms(7001) == 0


def test_a_pause_saves_no_more_than_a_second() -> None:
    quota = ReplicationQuota(1000)
    quota.record(1, 1_000_000)
    quota.record(1500, 2_000_000)
    assert quota.wait_ms(2_000_000) == 501


def test_the_rate_over_a_minute_is_the_one_that_was_asked_for() -> None:
    quota, moved, now_ms = ReplicationQuota(10_000), 0, 0
    while now_ms < 60_000:
        wait_ms = quota.wait_ms(now_ms)
        if wait_ms:
            now_ms += wait_ms
        else:
            quota.record(7_000, now_ms)
            moved += 7_000
    assert 590_000 <= moved <= 630_000


def test_without_a_rate_nobody_waits_and_with_none_left_everybody_does() -> None:
    quota = ReplicationQuota()
    quota.record(1 << 60, 0)
    assert quota.wait_ms(0) == 0
    quota.set_rate(0)
    assert quota.wait_ms(0) == 1000


def test_replicas_are_named_by_partition_and_broker() -> None:
    assert is_throttled(("*",), 3, 1)
    assert is_throttled(("0:1", "3:2"), 3, 2)
    assert not is_throttled(("0:1", "3:2"), 3, 1)
    assert not is_throttled((), 3, 1)
