"""How far the replicas are, as a leader sees it."""

from __future__ import annotations

from ottla.core.quorum.progress import OBSERVER_FORGOTTEN_MS, OBSERVERS_MAX, Progress
from ottla.model.ids import ZERO_UUID
from tests.unit.core.quorum.replica import key, voters

THREE = voters(1, 2, 3)


def test_who_reaches_the_end_of_the_time_before_was_caught_up_then() -> None:
    progress = Progress(0)
    progress.fetched(key(2), 5, 10, 100)
    found = progress.find(key(2))
    assert found is not None
    assert (found.end_offset, found.fetched_ms, found.caught_up_ms) == (5, 100, -1)
    progress.fetched(key(2), 10, 20, 200)
    assert found.caught_up_ms == 100
    progress.fetched(key(2), 20, 20, 300)
    assert found.caught_up_ms == 300


def test_only_the_disk_on_record_counts() -> None:
    progress = Progress(0)
    progress.fetched(key(2, disk=1), 9, 10, 100)
    assert progress.ends(THREE) == {}
    assert progress.heard_ms(THREE.voters[1]) == 0
    progress.fetched(key(2), 7, 10, 50)
    assert progress.ends(THREE) == {2: 7}
    assert [item.key for item in progress.observers(THREE)] == [key(2, disk=1)]


def test_while_directories_are_not_known_the_last_one_to_fetch_is_the_voter() -> None:
    unknown = THREE.with_directories(dict.fromkeys((1, 2, 3), ZERO_UUID))
    progress = Progress(0)
    progress.fetched(key(2), 7, 10, 50)
    progress.fetched(key(2, disk=1), 1, 10, 60)
    assert progress.ends(unknown) == {2: 1}
    assert progress.directories(unknown) == {2: key(2, disk=1).directory_id}
    progress.fetched(key(2), 7, 10, 70)
    assert progress.directories(unknown) == {2: key(2).directory_id}


def test_observers_that_are_gone_are_forgotten_and_voters_never() -> None:
    progress = Progress(0)
    progress.fetched(key(2), 7, 10, 0)
    progress.fetched(key(9), 7, 10, 0)
    progress.forget_idle(THREE, OBSERVER_FORGOTTEN_MS)
    assert progress.find(key(9)) is not None
    progress.forget_idle(THREE, OBSERVER_FORGOTTEN_MS + 1)
    assert progress.find(key(9)) is None
    assert progress.find(key(2)) is not None


def test_there_are_never_too_many() -> None:
    progress = Progress(0)
    for number in range(OBSERVERS_MAX + 10):
        progress.fetched(key(number), 0, 0, 0)
    assert len(list(progress.observers(THREE))) <= OBSERVERS_MAX
