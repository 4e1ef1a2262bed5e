"""Waits must end, and must not come in step."""

from __future__ import annotations

from ottla.client.deadline import Backoff, Deadline
from ottla.client.settings import ClientSettings


def test_a_deadline_passes_and_leaves_nothing() -> None:
    deadline = Deadline(0)
    assert deadline.passed()
    assert deadline.seconds_left() == 0
    assert deadline.ms_left() == 0
    assert not Deadline(60_000).passed()


def test_pauses_double_up_to_their_bound_with_some_jitter() -> None:
    backoff = Backoff(ClientSettings(retry_backoff_ms=100, retry_backoff_ms_max=400))
    pauses = [backoff.next_pause_seconds() for _ in range(5)]
    for pause, expected in zip(pauses, (0.1, 0.2, 0.4, 0.4, 0.4), strict=True):
        assert expected * 0.79 <= pause <= expected * 1.21


def test_a_success_makes_the_next_pause_small_again() -> None:
    backoff = Backoff(ClientSettings(retry_backoff_ms=100, retry_backoff_ms_max=10_000))
    for _ in range(6):
        backoff.next_pause_seconds()
    backoff.reset()
    assert backoff.next_pause_seconds() < 0.13


def test_no_attempt_is_promised_when_no_time_is_left_for_it() -> None:
    assert not Backoff(ClientSettings(retry_backoff_ms=50), Deadline(0)).wait()
